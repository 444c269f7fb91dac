//! `shade-load status`, `stop` and `drain`: daemons are listed with their jobs, ended at once with
//! a reason for every trainer, or ended after their last rank.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use shade_client::{ClientError, JobSpec, Options, Session};
use shade_formats::control::{REFUSE_DRAINING, socket_name};
use shade_tests::{
    Daemon, Packed, attach_to, eventually, left_out, program, sorted_ids, spec, stats, take_epoch, take_rest,
    try_attach,
};

/// Something that a trainer asks.
type Way = fn(&Session) -> Result<(), ClientError>;

fn shade_load(args: &[&dyn AsRef<OsStr>]) -> Output {
    let args = args.iter().map(|arg| arg.as_ref());
    Command::new(program("shade-load")).args(args).output().unwrap()
}

/// Exit code, standard output and standard error.
fn said(args: &[&dyn AsRef<OsStr>]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = shade_load(args);
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// The abstract address, as `--socket` takes it. Other daemons of this user are left alone.
fn address(packed: &Packed) -> String {
    let name = socket_name(rustix::process::geteuid().as_raw(), &packed.dataset);
    format!("@{}", String::from_utf8(name).unwrap())
}

#[test]
fn status_has_a_line_and_an_object_for_each_job() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%"]);
    let socket = address(&packed);
    let (code, out, _) = said(&[&"status", &"--socket", &socket]);
    let (pid, dataset) = (daemon.pid().to_string(), packed.dataset.display().to_string());
    assert!(code == Some(0) && out.contains(&pid) && out.contains(&dataset), "{out}");

    let training = attach_to(&packed.dataset, "training", 0, spec(8, 1)).unwrap();
    let half = attach_to(&packed.dataset, "half", 1, spec(8, 2)).unwrap();
    for epoch in 0..2 {
        take_epoch(&training, epoch).unwrap();
    }
    let (code, out, _) = said(&[&"status", &"--socket", &socket]);
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((code, lines.len()), (Some(0), 3), "{out}");
    let ends = |line: &[&str], end: &[&str]| assert!(line.ends_with(end), "{out}");
    ends(&lines[1], &["training", "1/1", "1", "50.0", "%"]);
    ends(&lines[2], &["half", "1/2", "-", "-"]);

    let (code, out, _) = said(&[&"status", &"--json", &"--socket", &socket]);
    let list: Value = serde_json::from_str(&out).unwrap();
    let told = &list[0];
    assert_eq!((code, list.as_array().unwrap().len()), (Some(0), 1));
    assert_eq!(
        (told["pid"].as_u64(), told["dataset"].as_str()),
        (Some(daemon.pid().into()), Some(&*dataset))
    );
    assert_eq!((&told["settings"]["cache"], &told["linger_s"]), (&"100%".into(), &Value::Null));
    assert_eq!((told["socket"].as_str(), told["draining"].as_bool()), (Some(&*socket), Some(false)));
    let job = &told["jobs"][0];
    let total = &stats(&training)["total"];
    assert_eq!((&job["name"], &job["epoch"], &job["admit"]), (&"training".into(), &1.into(), &true.into()));
    assert_eq!((&job["accesses"], &job["hits"]), (&total["accesses"], &total["hits"]));
    assert_eq!(told["resident"].as_u64(), Some(102));
    let ranks = |job: &Value| {
        job["by_rank"].as_array().unwrap().iter().map(|told| told["rank"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((ranks(job), ranks(&told["jobs"][1])), (vec![0.into()], vec![1.into()]));
    drop(half);
}

#[test]
fn the_environment_names_a_socket_where_the_command_line_names_nothing() {
    let packed = Packed::mixed(3);
    let socket = packed.beside("daemon.socket");
    let with_variable = |socket: &OsStr| {
        let mut command = Command::new(program("shade-load"));
        command.env("SHADE_SOCKET", socket);
        command
    };
    let said = |socket: &OsStr, args: &[&dyn AsRef<OsStr>]| {
        let Output { status, stdout, stderr } =
            with_variable(socket).args(args.iter().map(|arg| arg.as_ref())).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    };
    let mut daemon = Daemon::start_by(with_variable(socket.as_os_str()), &packed.dataset, &[]);
    assert!(socket.exists());
    let (code, out, _) = said(socket.as_os_str(), &[&"status"]);
    assert!(code == Some(0) && out.contains(&daemon.pid().to_string()), "{out}");
    let (code, _, error) = said(socket.as_os_str(), &[&"resize", &"50%"]);
    assert_eq!(code, Some(0), "{error}");

    // What is named wins: the dataset's own socket, where no daemon is, and another file.
    let (code, _, error) = said(socket.as_os_str(), &[&"stop", &packed.dataset]);
    assert!(code == Some(1) && error.contains("no daemon serves"), "{error}");
    let other = packed.beside("other.socket");
    let (code, _, error) = said(socket.as_os_str(), &[&"status", &"--socket", &other]);
    assert!(code == Some(1) && error.contains("other.socket"), "{error}");
    // Empty is not set, and then a target is missing.
    let (code, _, error) = said("".as_ref(), &[&"stop"]);
    assert!(code == Some(2) && error.contains("--socket"), "{error}");
    assert!(daemon.is_alive());

    let (code, _, error) = said(socket.as_os_str(), &[&"stop"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_private_daemon_does_not_stay_for_questions() {
    let packed = Packed::mixed(3);
    let mut daemon = Daemon::start(&packed.dataset, &[&"--private", &"--linger", &"1s"]);
    drop(try_attach(&packed.dataset, 0, spec(4, 1)).unwrap());
    eventually("it ends", || {
        let _ = shade_load(&[&"status", &"--socket", &address(&packed)]);
        !daemon.is_alive()
    });
}

#[test]
fn stop_ends_it_now_and_tells_every_job_why() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    // A ring that has no room for an epoch.
    let spec = JobSpec { ring_bytes: 4096, ..spec(8, 1) };
    let jobs = ["a", "b", "c"].map(|job| attach_to(&packed.dataset, job, 0, spec.clone()).unwrap());
    jobs[2].start_epoch(0, 0).unwrap();
    let (code, out, errors) = said(&[&"stop", &packed.dataset]);
    assert_eq!(code, Some(0), "{errors}");
    let line = format!(
        "stopped process {}, which served {} (jobs a, b, c)\n",
        daemon.pid(),
        packed.dataset.display()
    );
    assert_eq!(out, line);
    // `stop` has seen its sockets closed, which the system does just before the process is gone.
    eventually("it has ended", || !daemon.is_alive());
    assert!(daemon.wait().success());
    // Whatever a trainer does next tells it that the daemon is gone, and the reason.
    let ways: [Way; 3] = [
        |session| session.stats().map(|_| ()),
        |session| session.report_validation(0.0),
        |session| take_rest(session).map(|_| ()),
    ];
    for (session, way) in jobs.iter().zip(ways) {
        for error in [way(session).unwrap_err(), session.stats().unwrap_err()] {
            assert!(
                matches!(&error, ClientError::DaemonGone { end, .. } if end.contains("shade-load stop")),
                "{error}"
            );
        }
    }
    let (code, _, errors) = said(&[&"stop", &packed.dataset]);
    assert!(code == Some(1) && errors.contains("no daemon serves"), "{errors}");
}

#[test]
fn drain_takes_no_new_job_and_ends_it_with_the_last_rank() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let first = attach_to(&packed.dataset, "old", 0, spec(8, 2)).unwrap();
    let (code, out, errors) = said(&[&"drain", &packed.dataset]);
    assert!(code == Some(0) && out.contains("takes no new job and ends after job old"), "{out}{errors}");
    let any = Options { or_free_name: true, ..Options::default() };
    for refused in [
        attach_to(&packed.dataset, "new", 0, spec(8, 1)),
        Session::connect(&packed.dataset, "old", 0, spec(8, 1), &any),
    ] {
        match refused {
            Err(ClientError::Refused { code: REFUSE_DRAINING, text, .. }) => {
                assert!(text.contains("is drained") && text.contains("(old)"), "{text}");
            }
            other => panic!("not refused: {other:?}"),
        }
    }
    let (_, out, _) = said(&[&"status", &"--socket", &address(&packed)]);
    assert!(out.contains("(draining)"), "{out}");
    // A rank of a job that is there.
    let second = attach_to(&packed.dataset, "old", 1, spec(8, 2)).unwrap();
    for session in [&first, &second] {
        session.start_epoch(0, 0).unwrap();
    }
    let rest = [&first, &second].map(|session| take_rest(session).unwrap());
    assert!(sorted_ids(&rest.concat()).into_iter().eq(0..102));
    drop(first);
    assert!(daemon.is_alive());
    drop(second);
    assert!(daemon.wait().success());
}

#[test]
fn drain_ends_a_daemon_without_ranks_at_once() {
    let packed = Packed::mixed(3);
    let mut daemon = Daemon::start(&packed.dataset, &[&"--socket", &packed.beside("d.socket")]);
    let (code, out, errors) = said(&[&"drain", &"--socket", &packed.beside("d.socket")]);
    assert!(code == Some(0) && out.contains("has no job and ends now"), "{out}{errors}");
    assert!(daemon.wait().success());
}

#[test]
fn what_is_wrong_is_said() {
    let packed = Packed::mixed(3);
    for command in ["stop", "drain"] {
        let (code, _, errors) = said(&[&command, &packed.dataset]);
        assert!(code == Some(1) && errors.contains("shade-load status lists"), "{errors}");
        let (code, _, errors) = said(&[&command, &"--socket", &packed.beside("none.socket")]);
        assert!(code == Some(1) && errors.contains("no daemon listens at"), "{errors}");
        let (code, _, errors) = said(&[&command]);
        assert!(code == Some(2) && errors.contains("--all"), "{errors}");
        let (code, _, _) = said(&[&command, &packed.dataset, &"--all"]);
        assert_eq!(code, Some(2), "one target");
    }
    let (code, _, errors) = said(&[&"status", &"--socket", &packed.beside("none.socket")]);
    assert!(code == Some(1) && errors.contains("no daemon listens at"), "{errors}");
    let (code, _, errors) = said(&[&"serve", &packed.dataset, &"--job", &"a"]);
    assert!(code == Some(2) && errors.contains("--job"), "{errors}");
}

/// In a network namespace, where no other daemon is seen: `--all` would end those, too.
#[test]
fn all_daemons_are_found_and_ended() {
    let ways: [&[&str]; 2] = [&[], &["--user", "--map-current-user"]];
    let works = |way: &&&[&str]| {
        let mut command = Command::new("unshare");
        command.args(**way).args(["--net", "true"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let Some(way) = ways.iter().find(works) else { return left_out("no network namespace can be had here") };
    let (one, two) = (Packed::mixed(3), Packed::mixed(4));
    let script = r#"
        "$0" status && "$0" status --json && "$0" drain --all || exit 9
        "$0" serve "$1" & "$0" serve "$2" &
        until [ "$("$0" status --json | grep -o '"pid"' | wc -l)" = 2 ]; do sleep 0.02; done
        "$0" status | tail -n +2 && "$0" stop --all && wait && "$0" status"#;
    let mut command = Command::new("unshare");
    command.args(*way).args(["--net", "sh", "-c", script]).arg(program("shade-load"));
    let output = command.args([&one.dataset, &two.dataset]).output().unwrap();
    let (out, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let lines: Vec<_> = out.lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(0), 7), "{out}{errors}");
    let of = |lines: &[&str], what: &str| lines.iter().all(|line| line.contains(what));
    assert!(of(&[lines[0], lines[6]], "no daemon of user") && lines[1] == "[]", "{out}");
    for dataset in [&one.dataset, &two.dataset] {
        let named = |line: &&&str| line.contains(&*dataset.display().to_string());
        assert_eq!(lines[2..6].iter().filter(named).count(), 2, "listed and stopped: {out}");
    }
    assert!(of(&lines[4..6], "stopped process"), "{out}");
}
