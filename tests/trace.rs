//! `shade-load trace` records a live training, which `shade-load simulate` replays; recorders come,
//! go and die, and the training does not notice.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;
use shade_client::{JobSpec, Options, PlanSpec, Session, WeightTable};
use shade_formats::control::{PROTOCOL, REFUSE_DATASET, REFUSE_PROTOCOL, Reply, Request, socket_name};
use shade_formats::trace::Line;
use shade_job::Sampler;
use shade_tests::{
    Daemon, Packed, Peer, Recorder, Taken, attach, attach_to, copy, eventually, next, program,
    recorded_lines as lines, spec, stats, take_epoch,
};

/// Something listens, takes what it is told, and never answers, as a daemon does that reads its
/// index.
fn silent(dataset: &Path) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let name = socket_name(rustix::process::geteuid().as_raw(), dataset);
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new_abstract_name(&name).unwrap()).unwrap();
    listen(&socket, 8).unwrap();
    socket
}

#[test]
fn a_daemon_that_is_not_ready_yet_is_not_called_another_version() {
    let packed = Packed::mixed(3);
    let _daemon = silent(&packed.dataset);
    let (text, code) = refusal(&packed.dataset, &packed.beside("a.trace"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("has not answered for 10 s") && text.contains("reading its index"), "{text}");
    assert!(!text.contains("same version"), "{text}");
}

/// What a recorder that does not come to record says, and its exit code.
fn refusal(dataset: &Path, out: &Path) -> (String, Option<i32>) {
    let output = Recorder::command(dataset, out).output().unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

fn simulate(file: &Path, args: &str) -> Output {
    let mut command = Command::new(program("shade-load"));
    command.args(["simulate", "--json", "--trace"]).arg(file).args(args.split_whitespace());
    command.output().unwrap()
}

/// A simulation that comes to something, and what it warned of.
fn simulated(file: &Path, args: &str) -> (Value, String) {
    let output = simulate(file, args);
    let warnings = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{warnings}");
    (serde_json::from_slice(&output.stdout).unwrap(), warnings)
}

fn pads(batch_size: u32, world_size: u32) -> JobSpec {
    JobSpec {
        plan: PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() },
        ..spec(batch_size, world_size)
    }
}

/// Some samples are harder than others.
fn losses(batch: &Taken) -> Vec<f32> {
    batch.ids.iter().map(|id| f32::from(u16::try_from(id * 37 % 101).unwrap())).collect()
}

/// Trains an epoch: every batch is reported and given back at once.
fn train(session: &Session, epoch: u32) -> u64 {
    session.start_epoch(epoch, 0).unwrap();
    let mut samples = 0;
    while let Some(batch) = next(session).unwrap() {
        let batch = copy(&batch);
        session.report(batch.id, &losses(&batch)).unwrap();
        samples += batch.ids.len() as u64;
    }
    samples
}

fn total(session: &Session, name: &str) -> u64 {
    stats(session)["total"][name].as_u64().unwrap()
}

/// The daemon offers each record to the cache when it is read, and keeps what is being copied; the
/// simulator offers all of a batch when as many batches are open as when its last read was back. So
/// their hits may differ, by few as long as the cache is larger than what is on its way.
#[test]
fn a_training_is_replayed_with_about_the_daemons_own_hits() {
    let packed = Packed::pngs(200, 16);
    // Where plans are drawn early, a replay knows the next one as early as the daemon did.
    let cases = [("lookahead", 1, false), ("app", 1, false), ("lookahead", 2, false), ("lookahead", 1, true)];
    for (policy, world_size, draw_ahead) in cases {
        let mut job = pads(4, world_size);
        job.plan.draw_ahead = draw_ahead;
        let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%", &"--policy", &policy]);
        let file = packed.beside(&format!("{policy}{world_size}{draw_ahead}.trace"));
        let recorder = Recorder::start(&packed.dataset, &file);
        let ranks = shade_tests::all_ranks(&packed.dataset, job, |_, session| {
            let mut reports = 0;
            for epoch in 0..4 {
                reports += usize::try_from(train(session, epoch)).unwrap() / 4;
                // What waits for the recorder is limited: an epoch of this training fits.
                eventually("the recorder keeps up", || {
                    fs::read_to_string(&file).unwrap().matches("\"report\"").count() >= reports
                });
            }
            (total(session, "accesses"), total(session, "hits"), total(session, "prefetched"))
        });
        recorder.stop();
        let (accesses, hits, prefetched) = ranks.into_iter().max().unwrap();
        let (header, lines) = lines(&file);
        assert_eq!((header.policy.as_str(), header.samples), (policy, 603));
        assert!(!lines.iter().any(|line| matches!(line, Line::Lost(_))));
        let args = format!("--policy {policy},lru --cache {}", header.cache_bytes);
        let (found, warnings) = simulated(&file, &args);
        assert_eq!(warnings, "");
        assert_eq!(found["recorded"]["accesses"], accesses, "{policy}");
        assert_eq!(found["recorded"]["hits"], hits, "every access was recorded as it was served");
        assert_eq!((&found["epochs"], &found["samples"]), (&4.into(), &603.into()));
        let played = found["rows"][0]["hits"].as_u64().unwrap();
        // Nothing is prefetched there, so what the daemon prefetched may be a hit. Seen beyond
        // that: up to 1.3 of 100.
        let few = accesses * 4 / 100;
        assert!(
            played + few >= hits && played <= hits + prefetched + few,
            "{policy}: {played} instead of {hits} and {prefetched} prefetched of {accesses}"
        );
        if draw_ahead {
            let text =
                fs::read_to_string(&file).unwrap().replace(r#""draw_ahead":true"#, r#""draw_ahead":false"#);
            fs::write(&file, text).unwrap();
            let of_late = simulated(&file, &args).0["rows"][0]["hits"].as_u64().unwrap();
            assert!(of_late + accesses / 50 < played, "{of_late} and {played} of {accesses}");
        }
        if policy == "lookahead" {
            assert!(found["rows"][1]["hits"].as_u64().unwrap() < hits, "lru is worse: {found}");
        }
        drop(daemon);
    }
}

/// The recording has the accesses, so a replay needs no table of weights.
#[test]
fn a_training_by_a_table_of_weights_is_replayed_without_the_table() {
    let packed = Packed::pngs(33, 16);
    let samples = 102;
    let table = WeightTable::new((0..samples).map(|id| f64::from(id % 5))).unwrap();
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%"]);
    let file = packed.beside("weighted.trace");
    let recorder = Recorder::start(&packed.dataset, &file);
    let plan = PlanSpec { sampler: Sampler::Weighted, ..PlanSpec::default() };
    let job = JobSpec { plan, ..spec(1, 1) };
    let options = Options::default();
    let session =
        Session::connect_with(&packed.dataset, "default", 0, job, table.clone().into(), &options).unwrap();
    let accesses: usize = (0..3).map(|epoch| take_epoch(&session, epoch).unwrap().len()).sum();
    drop(session);
    eventually("the recorder has it all", || {
        fs::read_to_string(&file).unwrap().matches("\"done\"").count() >= accesses
    });
    recorder.stop();
    drop(daemon);
    let (_, lines) = lines(&file);
    let Some(Line::Job(job)) = lines.iter().find(|line| matches!(line, Line::Job(_))) else {
        panic!("no job")
    };
    let job = shade_job::JobSpec::from_value(job.document.clone()).unwrap();
    assert_eq!((job.plan.sampler, job.plan.weights_digest), (Sampler::Weighted, table.digest()));
    let (found, _) = simulated(&file, "--policy lookahead,lru --cache 20%");
    assert_eq!(found["recorded"]["accesses"], accesses, "{found}");
    assert_eq!(found["rows"][1]["accesses"], accesses, "{found}");
    let distinct = found["rows"][1]["distinct_share"].as_f64().unwrap();
    assert!(distinct < 0.8, "samples of weight 0 never come: {distinct}");
}

/// With one sample in a batch and one batch on its way at a time nothing comes between a miss and
/// its offer: then the simulator is the daemon, hit for hit. Not so where scores decide and are
/// reported: a simulated loss comes as many batches behind its own as most did, a real one when it
/// comes.
#[test]
fn one_access_at_a_time_is_replayed_hit_for_hit() {
    let packed = Packed::pngs(33, 16);
    for (policy, reports) in [("lookahead", true), ("app", true), ("lru", true), ("app", false)] {
        let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%", &"--policy", &policy]);
        let file = packed.beside(&format!("{policy}-{reports}.trace"));
        let recorder = Recorder::start(&packed.dataset, &file);
        // A ring of three batches, two of which are in hand from the beginning to the end. The
        // others come as copies.
        let session = attach(&packed.dataset, 0, JobSpec { ring_bytes: 4096, ..pads(1, 1) });
        let mut held = Vec::new();
        for epoch in 0..3 {
            session.start_epoch(epoch, 0).unwrap();
            while let Some(batch) = next(&session).unwrap() {
                let seen = copy(&batch);
                if reports {
                    session.report(seen.id, &losses(&seen)).unwrap();
                }
                if held.len() < 2 {
                    held.push(batch);
                }
            }
        }
        let (hits, prefetched) = (total(&session, "hits"), total(&session, "prefetched"));
        assert!(hits > 20, "{policy}: {hits}");
        recorder.stop();
        let (found, _) =
            simulated(&file, &format!("--policy {policy} --cache {}", lines(&file).0.cache_bytes));
        assert_eq!(found["recorded"]["hits"], hits);
        let played = found["rows"][0]["hits"].as_u64().unwrap();
        // A daemon with lookahead prefetches, too, at the cost of hits that the simulation of a
        // recording has.
        assert!(policy == "lookahead" || prefetched == 0);
        let late = if policy == "app" && reports { hits / 5 } else { 0 };
        assert!(
            played + late >= hits && played <= hits + prefetched + late,
            "{policy}, reports {reports}: {played} instead of {hits}"
        );
        drop(daemon);
    }
}

#[test]
fn a_recorder_may_come_late_and_the_losses_reach_the_simulation() {
    let packed = Packed::pngs(33, 16);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%"]);
    let session = attach(&packed.dataset, 0, pads(8, 1));
    train(&session, 0);
    // The daemon has taken in whatever was said before it answers: no report of this epoch is left
    // for the recorder.
    let _ = stats(&session);
    let file = packed.beside("late.trace");
    let recorder = Recorder::start(&packed.dataset, &file);
    (1..3).for_each(|epoch| assert!(train(&session, epoch) > 0));
    // The same again: all reports are in the trace.
    let _ = stats(&session);
    recorder.stop();
    let (_, all) = lines(&file);
    let jobs: Vec<bool> = all
        .iter()
        .filter_map(|line| if let Line::Job(job) = line { Some(job.under_way) } else { None })
        .collect();
    assert_eq!(jobs, [true]);
    let count = |kind: fn(&Line) -> bool| all.iter().filter(|line| kind(line)).count();
    assert_eq!(count(|line| matches!(line, Line::Open(_))), 26);
    assert_eq!(count(|line| matches!(line, Line::Done(_))), 26);
    assert_eq!(count(|line| matches!(line, Line::Report(_))), 26);
    let (_, warnings) = simulated(&file, "--policy app --cache 20%");
    assert!(warnings.contains("was under way"), "{warnings}");

    // Without the reports all samples rank alike.
    let text = fs::read_to_string(&file).unwrap();
    let without: String =
        text.lines().filter(|line| !line.contains("report")).map(|l| format!("{l}\n")).collect();
    fs::write(packed.beside("silent.trace"), without).unwrap();
    let came_to = |name: &str| {
        let (found, _) = simulated(&packed.beside(name), "--policy topc --cache 20%");
        ["hits", "evictions", "bypasses"].map(|count| found["rows"][0][count].as_u64().unwrap())
    };
    assert_ne!(came_to("late.trace"), came_to("silent.trace"));
    drop(daemon);
}

#[test]
fn a_recorder_that_is_killed_or_stopped_harms_nobody_and_holds_no_place() {
    let packed = Packed::pngs(33, 16);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%"]);
    let out = |name: &str| -> PathBuf { packed.beside(name) };
    let mut killed = Recorder::start(&packed.dataset, &out("killed.trace"));
    let session = attach(&packed.dataset, 0, pads(4, 1));
    train(&session, 0);
    let (text, code) = refusal(&packed.dataset, &out("second.trace"));
    assert!(text.contains("is being recorded already") && code == Some(1), "{text}");
    assert!(!out("second.trace").exists());

    eventually("the epoch is in the file", || {
        fs::read_to_string(out("killed.trace")).unwrap().matches("{\"open\"").count() == 26
    });
    killed.signal(Signal::KILL);
    killed.wait();
    let stopped = Recorder::start(&packed.dataset, &out("stopped.trace"));
    stopped.signal(Signal::STOP);
    let resources = daemon.session_resources();
    for epoch in 1..3 {
        assert_eq!(train(&session, epoch), 102);
    }
    stopped.signal(Signal::CONT);
    stopped.stop();
    eventually("nothing of it is left", || daemon.session_resources() < resources);
    assert_eq!(take_epoch(&session, 3).unwrap().iter().map(|batch| batch.ids.len()).sum::<usize>(), 102);

    let (found, _) = simulated(&out("killed.trace"), "--policy lru --cache 20%");
    assert_eq!(found["rows"][0]["accesses"], 102);
    let (found, _) = simulated(&out("stopped.trace"), "--policy lru --cache 20%");
    assert_eq!(found["rows"][0]["accesses"], 204);

    // As if it had been killed while it wrote.
    let bytes = fs::read(out("killed.trace")).unwrap();
    fs::write(out("cut.trace"), &bytes[..bytes.len() - 3]).unwrap();
    let (found, warnings) = simulated(&out("cut.trace"), "--policy lru --cache 20%");
    assert_eq!(found["rows"][0]["accesses"], 102);
    assert!(warnings.contains("cut.trace line ") && warnings.contains("cut off"), "{warnings}");
    drop(daemon);
}

#[test]
fn it_ends_with_the_daemon_and_has_all_of_it() {
    let packed = Packed::pngs(10, 16);
    let mut daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%"]);
    let file = packed.beside("run.trace");
    let mut recorder = Recorder::start(&packed.dataset, &file);
    let session = attach(&packed.dataset, 0, pads(4, 1));
    assert_eq!(train(&session, 0), 33);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert_eq!(recorder.wait().code(), Some(0));
    eventually("it says what it has", || recorder.said().contains("33 accesses"));
    let (found, _) = simulated(&file, "--cache 50% --store latency=1ms");
    assert_eq!(found["rows"][0]["accesses"], 33);
    assert!(found["compute_s_per_sample"].as_f64().unwrap() > 0.0);
}

#[test]
fn each_job_has_a_recording_of_its_own() {
    let packed = Packed::pngs(3, 16);
    let daemon = Daemon::start(&packed.dataset, &[]);
    // The first job begins after its recording.
    let files = ["a", "b"].map(|job| packed.beside(&format!("{job}.trace")));
    let first = Recorder::start_of("a", &packed.dataset, &files[0]);
    let sessions =
        [("a", 2), ("b", 3)].map(|(job, rows)| attach_to(&packed.dataset, job, 0, spec(rows, 1)).unwrap());
    let (text, code) = refusal(&packed.dataset, &packed.beside("none.trace"));
    assert!(text.contains("name one of them with --job: a, b") && code == Some(1), "{text}");
    let second = Recorder::start_of("b", &packed.dataset, &files[1]);
    for (epoch, session) in [(0, &sessions[0]), (0, &sessions[1]), (1, &sessions[0])] {
        take_epoch(session, epoch).unwrap();
    }
    let mut again = Recorder::command(&packed.dataset, &packed.beside("again.trace"));
    let text = String::from_utf8(again.args(["--job", "a"]).output().unwrap().stderr).unwrap();
    assert!(text.contains("job \"a\" is being recorded already"), "{text}");
    [first, second].into_iter().for_each(Recorder::stop);
    for (file, (job, batches)) in files.iter().zip([("a", 12), ("b", 4)]) {
        let (header, lines) = lines(file);
        let opened = lines.iter().filter(|line| matches!(line, Line::Open(_))).count();
        assert_eq!((header.job.as_str(), opened), (job, batches));
        let begun = lines.iter().find_map(|line| if let Line::Job(job) = line { Some(job) } else { None });
        assert_eq!(begun.unwrap().under_way, job == "b");
    }
    drop(daemon);
}

#[test]
fn what_is_wrong_is_said() {
    let packed = Packed::pngs(3, 16);
    let file = packed.beside("run.trace");
    let (text, code) = refusal(&packed.dataset, &file);
    assert!(text.contains("no daemon serves") && text.contains("start the training first"), "{text}");
    assert!(code == Some(1) && !file.exists());
    let (text, code) = refusal(&packed.images, &file);
    assert!(text.contains("pack the ImageFolder first") && code == Some(1), "{text}");

    let daemon = Daemon::start(&packed.dataset, &[]);
    Recorder::start(&packed.dataset, &file).stop();
    let (text, code) = refusal(&packed.dataset, &file);
    assert!(text.contains("name another file") && code == Some(1), "{text}");
    let output = simulate(&file, "");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("there is no batch in it") && output.status.code() == Some(1), "{text}");
    drop(daemon);
}

#[test]
fn observers_that_break_the_rules_are_refused() {
    let packed = Packed::pngs(3, 16);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let dataset = packed.dataset.to_str().unwrap().to_owned();
    let content = packed.index().content_id().0;
    let observe = |dataset: &str, protocol, content_id| {
        let (dataset, job) = (dataset.to_owned(), "default".to_owned());
        Request::Observe { protocol, samples: 12, content_id, dataset, job }.encode()
    };
    let good = observe(&dataset, PROTOCOL, content);
    let no_pipe = rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (_, pipe) = std::io::pipe().unwrap();
    let pipe = OwnedFd::from(pipe);
    for (message, fd, expected) in [
        (&good, None, REFUSE_PROTOCOL),
        (&good, Some(&no_pipe), REFUSE_PROTOCOL),
        (&observe(&dataset, PROTOCOL + 1, content), Some(&pipe), REFUSE_PROTOCOL),
        (&observe("/elsewhere", PROTOCOL, content), Some(&pipe), REFUSE_DATASET),
        (&observe(&dataset, PROTOCOL, content + 1), Some(&pipe), REFUSE_DATASET),
    ] {
        let peer = Peer::connect(&packed.dataset);
        assert!(peer.send(message, fd));
        match peer.receive() {
            Some((Reply::Refuse { code, .. }, _)) => assert_eq!(code, expected),
            other => panic!("not refused: {other:?}"),
        }
    }
    // One who closes the pipe and stays holds no place.
    let peer = Peer::connect(&packed.dataset);
    assert!(peer.send(&good, Some(&pipe)));
    // Its session is over, perhaps before it was told that it began.
    while let Some((reply, _)) = peer.receive() {
        assert!(matches!(reply, Reply::Observing { samples: 12, .. }), "{reply:?}");
    }
    Recorder::start(&packed.dataset, &packed.beside("run.trace")).stop();
    drop(daemon);
}
