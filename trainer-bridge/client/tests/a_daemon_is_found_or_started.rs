//! The client finds the daemon of its dataset, starts one when none answers, and says why when
//! neither works.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use shade_client::{ClientError, Decode, Launch, Options, Session, Settings};
use support::{Listener, connect, dataset, options, spec, unique};

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique(name));
    let _ = std::fs::remove_file(&path);
    path
}

/// A shell script in the daemon's place.
fn script(text: &str, arg: &Path) -> Launch {
    let args = vec!["-c".into(), text.into(), "sh".into(), arg.into()];
    Launch { binary: "/bin/sh".into(), args, settings: Settings::default() }
}

fn open(name: &str, options: &Options) -> Result<Session, ClientError> {
    Session::connect(&dataset(name), "j", 1, spec(), options)
}

/// A daemon that listens once the script in its place has come to writing to the pipe.
fn started_by_script(test: &str, said: &str) {
    let name = unique(test);
    let pipe = scratch(&format!("{test}.pipe"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let launch = script(&format!("echo go > \"$1\"; echo '{said}'"), &pipe);
    let (daemon_name, daemon_pipe) = (name.clone(), pipe.clone());
    let daemon = std::thread::spawn(move || {
        assert_eq!(std::fs::read_to_string(&daemon_pipe).unwrap(), "go\n");
        Listener::bind(&daemon_name).serve()
    });
    let session = open(&name, &Options { launch: Some(launch), ..options() }).unwrap();
    assert_eq!(session.samples(), 1000);
    daemon.join().unwrap();
    std::fs::remove_file(pipe).unwrap();
}

#[test]
fn a_daemon_is_started_when_none_answers() {
    started_by_script("ready", r#"{"ready":true,"pid":1,"socket":"x"}"#);
}

#[test]
fn the_loser_of_a_race_connects_to_the_winner() {
    started_by_script("lost", r#"{"error":"binding the socket: Address already in use (os error 98)"}"#);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let options = Options {
        launch: Some(script(r#"echo '{"error":"no dataset.shade here"}'"#, Path::new("x"))),
        ..options()
    };
    match open(&unique("broken"), &options).unwrap_err() {
        ClientError::Launch { text, binary, socket, .. } => {
            assert_eq!((text.as_str(), binary.as_path()), ("no dataset.shade here", Path::new("/bin/sh")));
            assert!(socket.contains("shade-load/"), "{socket}");
        }
        other => panic!("{other:?}"),
    }
    let missing = Launch { binary: "/nonexistent/shade-load".into(), ..script("", Path::new("x")) };
    let error = open(&unique("missing"), &Options { launch: Some(missing), ..options }).unwrap_err();
    assert!(matches!(error, ClientError::Launch { .. }), "{error}");
    assert!(error.to_string().starts_with("/nonexistent/shade-load could not be started"), "{error}");
}

#[test]
fn a_daemon_that_is_killed_while_it_comes_up_is_gone() {
    let launch = Some(script("kill -9 $$", Path::new("x")));
    let error = open(&unique("killed"), &Options { launch, ..options() }).unwrap_err();
    assert!(matches!(error, ClientError::DaemonGone { .. }), "{error}");
    assert!(error.to_string().contains("while it came up, it was killed by signal 9"), "{error}");
}

#[test]
fn a_started_daemon_has_its_own_process_group_and_is_reaped() {
    let note = scratch("note");
    let text = r#"read -r pid _ _ _ group _ < /proc/$$/stat; echo "$pid $group" > "$1"; exit 3"#;
    let error =
        open(&unique("group"), &Options { launch: Some(script(text, &note)), ..options() }).unwrap_err();
    assert!(error.to_string().contains("exit status: 3"), "{error}");
    let note_text = std::fs::read_to_string(&note).unwrap();
    let (pid, group) = note_text.trim().split_once(' ').unwrap();
    assert_eq!(pid, group);
    assert!(!Path::new("/proc").join(pid).exists(), "a zombie stayed behind");
    std::fs::remove_file(note).unwrap();
}

#[test]
fn nobody_at_all_is_reported_with_the_socket() {
    let error = open(&unique("nobody"), &Options { timeout: Duration::ZERO, ..options() }).unwrap_err();
    assert!(matches!(error, ClientError::NoDaemon { .. }), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let path = scratch("no.sock");
    let error = open(
        &unique("nobody"),
        &Options { socket: Some(path.clone()), timeout: Duration::ZERO, ..options() },
    )
    .unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_socket_in_the_file_system_serves_as_well() {
    let path = scratch("s");
    let listener = Listener::bind_path(&path);
    let daemon = std::thread::spawn(move || listener.serve());
    let session = open(&unique("any"), &Options { socket: Some(path.clone()), ..options() }).unwrap();
    assert_eq!(session.samples(), 1000);
    daemon.join().unwrap();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_daemon_that_is_just_ending_is_tried_again() {
    let name = unique("ending");
    let listener = Listener::bind(&name);
    let daemon = std::thread::spawn(move || {
        drop(listener.accept());
        listener.serve()
    });
    assert_eq!(connect(&name).samples(), 1000);
    daemon.join().unwrap();
}

#[test]
fn impossible_wishes_are_refused_before_anyone_is_asked() {
    let bad_spec =
        |spec| Session::connect(&dataset(&unique("wishes")), "j", 0, spec, &options()).unwrap_err();
    let error = bad_spec(shade_client::JobSpec { batch_size: 0, ..spec() });
    assert!(error.to_string().starts_with("batch_size is 0"), "{error}");
    let error = bad_spec(shade_client::JobSpec { decode: Decode::cover(0, 8), ..spec() });
    assert!(error.to_string().starts_with("decode: Cover: size is 0"), "{error}");
    let error = Session::connect(&dataset(&unique("wishes")), "j", 2, spec(), &options()).unwrap_err();
    assert!(error.to_string().contains("world_size, 2"), "{error}");
    let error = Session::connect(Path::new("/nonexistent/set"), "j", 0, spec(), &options()).unwrap_err();
    assert!(matches!(error, ClientError::Index { .. }), "{error}");
}
