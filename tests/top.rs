//! `shade-load top` tells of live daemons what their trainings wait for.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;
use shade_formats::control::socket_name;
use shade_tests::{Daemon, Packed, attach_to, eventually, program, spec, take_epoch};

/// Exit code, standard output and standard error of `shade-load top` on this dataset's daemon.
fn top(packed: &Packed, args: &[&str]) -> (Option<i32>, String, String) {
    let name = socket_name(rustix::process::geteuid().as_raw(), &packed.dataset);
    let socket = format!("@{}", String::from_utf8(name).unwrap());
    let mut command = Command::new(program("shade-load"));
    let Output { status, stdout, stderr } =
        command.args(["top", "--socket", &socket]).args(args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_training_on_a_slow_store_waits_for_storage() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"1%", &"--store", &"latency=20ms"]);
    let (slow, waiting) = ("slow", "waiting");
    // One of two ranks waits for the other.
    let half = attach_to(&packed.dataset, waiting, 1, spec(8, 2)).unwrap();
    half.start_epoch(0, 0).unwrap();
    let training = attach_to(&packed.dataset, slow, 0, spec(4, 1)).unwrap();
    let job = |figures: &Value, name: &str| {
        let jobs = figures[0]["jobs"].as_array().unwrap().clone();
        jobs.into_iter().find(|job| job["name"] == name).unwrap()
    };
    let names_the_causes = || {
        let (code, out, errors) = top(&packed, &["--once", "--json", "--interval", "200ms"]);
        assert_eq!(code, Some(0), "{errors}");
        let figures: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(figures[0]["pid"], daemon.pid());
        let (slow, waiting) = (job(&figures, slow), job(&figures, waiting));
        assert_eq!(waiting["by_rank"][0]["rank"], 1);
        slow["remedy"]["cause"] == "storage"
            && slow["samples_per_s"].as_f64().unwrap() > 0.0
            && slow["waits"]["storage"].as_f64().unwrap() > 0.1
            && waiting["remedy"]["cause"] == "ranks"
            && waiting["waits"]["ranks"].as_f64().unwrap() > 0.9
    };
    // What the first line advises, as a user pastes it.
    let recommends = || {
        let mut command = Command::new(program("shade-load"));
        let args = ["simulate", packed.dataset.to_str().unwrap(), "--recommend", "--cache", "1%"];
        let Output { status, stdout, stderr } = command.args(args).output().unwrap();
        let (out, said) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        // Between two epochs nothing is taken.
        if said.contains("no training takes batches") {
            return false;
        }
        assert!(status.success() && said.contains("as job slow of process"), "{said}");
        assert!(out.contains("uniform plans") && out.contains("SIMULATED store latency="), "{out}");
        out.contains("\n  lookahead: ") && out.contains(" of the time")
    };
    std::thread::scope(|threads| {
        let watching = threads.spawn(|| {
            eventually("top names the causes", names_the_causes);
            eventually("simulate goes by the training", recommends);
        });
        for epoch in 0.. {
            take_epoch(&training, epoch).unwrap();
            if watching.is_finished() {
                break;
            }
        }
    });
    let (code, out, _) = top(&packed, &["--once", "--interval", "50ms"]);
    assert!(code == Some(0) && out.starts_with("waiting WAITS ") && out.contains("for ranks: "), "{out}");
    eventually("the log says it, too", || daemon.log().contains("job \"slow\", epoch 0: waited "));
}

#[test]
fn without_a_terminal_or_a_daemon_it_says_so() {
    let packed = Packed::mixed(3);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let (code, _, error) = top(&packed, &[]);
    assert!(code == Some(1) && error.contains("--once"), "{error}");
    let recommend = || {
        let mut command = Command::new(program("shade-load"));
        let output = command.arg("simulate").arg(&packed.dataset).arg("--recommend").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = recommend();
    assert!(
        code == Some(2) && error.contains("no training takes batches") && error.contains("doctor /"),
        "{error}"
    );
    drop(daemon);
    let (code, _, error) = top(&packed, &["--once"]);
    assert!(code == Some(1) && error.contains("no daemon listens"), "{error}");
    let (code, error) = recommend();
    assert!(code == Some(2) && error.contains("no daemon of yours serves it now"), "{error}");
}
