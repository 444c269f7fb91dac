//! Names in a dataset, and its own, are a stranger's: no log, no error of a trainer and no `status`
//! writes what a terminal obeys.

use std::fs;
use std::process::Command;

use shade_client::{ClientError, JobSpec, OnError};
use shade_formats::printable::is_obeyed;
use shade_tests::{Daemon, Packed, Source, attach, eventually, png, program, spec, take_epoch};

/// A title for the window, a bell, a colour, a forged line, text shown backwards.
const NAME: &str = "a\u{1b}]0;owned\u{7}\u{9b}31m\nERROR forged\u{202e}";

#[track_caller]
fn is_plain(text: &str) {
    assert!(!text.contains(|c| is_obeyed(c) && !matches!(c, '\n' | '\t')), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("ERROR forged")), "{text:?}");
}

#[test]
fn log_error_and_status_spell_out_control_characters() {
    let source = |n: u64| Source { path: format!("{NAME}/{n}.png"), label: 0, bytes: png(16, 16, n) };
    let packed = Packed::of((0..8).map(source).collect());
    packed.damage(3);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let session = attach(&packed.dataset, 0, JobSpec { on_error: OnError::Raise, ..spec(4, 1) });
    let error = take_epoch(&session, 0).unwrap_err();
    assert!(matches!(error, ClientError::Record { .. }), "{error:?}");
    assert!(error.to_string().contains("owned"), "{error}");
    is_plain(&error.to_string());
    eventually("the daemon's log names the sample", || daemon.log().contains("owned"));
    is_plain(&daemon.log());
    drop((session, daemon));

    // The dataset's own path.
    let dataset = packed.beside(NAME);
    fs::rename(&packed.dataset, &dataset).unwrap();
    let socket = packed.beside("control.socket");
    let daemon = Daemon::start(&dataset, &[&"--socket", &socket]);
    is_plain(&daemon.log());
    let said = |arguments: &[&str]| {
        let mut command = Command::new(program("shade-load"));
        let output = command.args(arguments).arg("--socket").arg(&socket).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("owned"), "{output:?}");
        is_plain(&String::from_utf8_lossy(&output.stdout));
        is_plain(&String::from_utf8_lossy(&output.stderr));
    };
    for arguments in [&["status"][..], &["status", "--json"], &["resize", "50%"], &["drain"]] {
        said(arguments);
    }
}
