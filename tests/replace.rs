//! `shade-load serve --replace`: a daemon takes the place of another under running trainings, which
//! go on in it; or is refused where one of them could not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use shade_client::{Batch, JobSpec, Launch, Next, Options, PlanSpec, Sampler, Session, Settings};
use shade_tests::{Daemon, Packed, Taken, copy, eventually, is_gone, program, sorted_ids, spec};

/// Ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// Changes of daemons, of each kind of socket, while trainings begin.
const ROUNDS: u32 = 12;

/// A training that may start daemons, and whose daemons may not die.
fn options(dataset: &Path) -> Options {
    let settings = Settings::from_text(r#"{"linger": 0.2}"#).unwrap();
    let launch = Some(Launch::new(program("shade-load"), dataset, None, &settings));
    let timeout = Duration::from_secs(60);
    Options { launch, settings, timeout, deaths_max: 0, ..Options::default() }
}

fn job(sampler: Sampler, world_size: u32) -> JobSpec {
    let plan = PlanSpec { sampler, ..PlanSpec::default() };
    JobSpec { plan, ring_bytes: 4096, ..spec(6, world_size) }
}

fn connect(packed: &Packed, name: &str, rank: u32, job: JobSpec) -> Session {
    Session::connect(&packed.dataset, name, rank, job, &options(&packed.dataset)).unwrap()
}

/// What `serve --replace` says that ends at once.
fn refused(packed: &Packed, args: &[&str]) -> String {
    let mut command = Command::new(program("shade-load"));
    let Output { status, stderr, .. } =
        command.arg("serve").arg(&packed.dataset).arg("--replace").args(args).output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{text}");
    text
}

/// A batch without hits and misses: the cache begins empty.
fn seen(batch: &Batch) -> Taken {
    Taken { hits: 0, misses: 0, ..copy(batch) }
}

#[test]
fn trainings_go_on_in_the_daemon_that_takes_its_place() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    let run = |sampler: Sampler, replaces: bool, args: &[&dyn AsRef<OsStr>], by_hand: bool| {
        let mut daemons = Vec::from_iter(by_hand.then(|| Daemon::start(&packed.dataset, args)));
        let named =
            Options { socket: (!args.is_empty()).then(|| socket.clone()), ..options(&packed.dataset) };
        let sessions = [0, 1].map(|rank| {
            let job = job(sampler, 2);
            Session::connect(&packed.dataset, "job", rank, job, &named).unwrap()
        });
        let mut taken: Vec<Taken> = Vec::new();
        for epoch in 0..3 {
            sessions.iter().for_each(|session| session.start_epoch(epoch, 0).unwrap());
            for step in 0..sessions[0].batches_per_epoch() {
                taken.extend(sessions.iter().map(|session| seen(&next(session).unwrap())));
                if replaces && (epoch, step) < (2, 0) && step == 4 {
                    let with: Vec<&dyn AsRef<OsStr>> =
                        [&"--replace" as &dyn AsRef<OsStr>].into_iter().chain(args.iter().copied()).collect();
                    let before = sessions[0].daemon_pid();
                    daemons.push(Daemon::start(&packed.dataset, &with));
                    eventually("the other one has ended", || is_gone(before));
                }
            }
            sessions.iter().for_each(|session| assert!(next(session).is_none()));
        }
        if replaces {
            let last = daemons.pop().unwrap();
            for session in &sessions {
                assert_eq!((session.successors(), session.daemon_pid()), (2, last.pid()));
                for _ in 0..2 {
                    let told = session.take_warning().unwrap();
                    assert!(told.contains("was replaced by process"), "{told}");
                    assert!(
                        told.contains("(shade-load serve --replace): job \"job\" goes on at batch"),
                        "{told}"
                    );
                }
                assert_eq!(session.take_warning(), None);
            }
            // In order, as when it is stopped.
            assert!(daemons.iter_mut().all(|daemon| daemon.wait().success()));
        }
        let pid = sessions[0].daemon_pid();
        drop(sessions);
        if daemons.is_empty() && !replaces {
            eventually("the private daemon has ended", || is_gone(pid));
        }
        taken
    };
    // The second one's plans go by what was delivered, which a successor is handed.
    for sampler in [Sampler::Uniform, Sampler::Replacement] {
        let undisturbed = run(sampler, false, &[], false);
        assert!(run(sampler, true, &[], true) == undisturbed, "{sampler}: by hand");
        assert!(run(sampler, true, &[], false) == undisturbed, "{sampler}: one that a Loader has started");
        assert!(run(sampler, true, &[&"--socket", &socket], true) == undisturbed, "{sampler}: a socket file");
    }
}

/// The next batch; `None` at the epoch's end.
fn next(session: &Session) -> Option<Batch> {
    let started = Instant::now();
    loop {
        match session.next(Duration::from_millis(100)).unwrap() {
            Next::Batch(batch) => return Some(batch),
            Next::EpochEnd => return None,
            Next::Pending => assert!(started.elapsed() < PATIENCE, "no batch within {PATIENCE:?}"),
        }
    }
}

#[test]
fn it_is_refused_where_a_training_would_end_and_the_message_names_it() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let fixed = connect(&packed, "fixed", 0, job(Sampler::Uniform, 1));
    fixed.start_epoch(0, 0).unwrap();
    next(&fixed).unwrap();

    let mortal = Options { survive: false, ..options(&packed.dataset) };
    let mortal = Session::connect(&packed.dataset, "mortal", 0, job(Sampler::Uniform, 1), &mortal).unwrap();
    let text = refused(&packed, &[]);
    assert!(text.contains("job mortal: survive is off") && !text.contains("job fixed"), "{text}");
    assert!(daemon.is_alive());
    drop(mortal);
    let new = Daemon::start(&packed.dataset, &[&"--replace"]);
    assert!(daemon.wait().success());
    fixed.stats().unwrap();
    assert_eq!((fixed.daemon_pid(), fixed.successors()), (new.pid(), 1));
    next(&fixed).unwrap();
}

#[test]
fn one_that_gives_up_while_the_daemon_is_suspended_ends_nothing() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let session = connect(&packed, "job", 0, job(Sampler::Uniform, 1));
    daemon.signal(Signal::STOP);
    let told = refused(&packed, &[]);
    assert!(told.contains("has not answered for 10 s"), "{told}");
    // It finds what was asked of it, and nobody who would listen.
    daemon.signal(Signal::CONT);
    let begun = Instant::now();
    for epoch in 0.. {
        session.start_epoch(epoch, 0).unwrap();
        while next(&session).is_some() {}
        if begun.elapsed() > Duration::from_secs(3) {
            break;
        }
    }
    let another = connect(&packed, "another", 0, job(Sampler::Uniform, 1));
    assert_eq!((session.successors(), session.daemon_pid()), (0, daemon.pid()));
    assert_eq!(another.daemon_pid(), daemon.pid());
}

#[test]
fn without_another_one_it_just_starts_and_what_cannot_start_ends_nothing() {
    let packed = Packed::mixed(3);
    let mut daemon = Daemon::start(&packed.dataset, &[&"--replace"]);
    let session = connect(&packed, "job", 0, job(Sampler::Uniform, 1));
    // It finds that out before it asks for the place.
    let other = Packed::mixed(3);
    other.claim_to_be_huge();
    let (index, kept) = (packed.dataset.join("dataset.shade"), packed.beside("kept"));
    std::fs::rename(&index, &kept).unwrap();
    std::fs::copy(other.dataset.join("dataset.shade"), &index).unwrap();
    let text = refused(&packed, &["--cache", "100%"]);
    assert!(text.contains("of memory"), "{text}");
    std::fs::rename(&kept, &index).unwrap();
    // Nor do reads that cannot start.
    let text = refused(&packed, &["--engine", "threads", "--store", "latency=1ms"]);
    assert!(text.contains("--store"), "{text}");
    assert!(daemon.is_alive());
    session.stats().unwrap();
    assert_eq!(session.successors(), 0);
}

#[test]
fn a_training_that_begins_at_that_moment_is_served_by_one_of_the_two() {
    let packed = Packed::mixed(33);
    let socket = packed.beside("control.socket");
    let random = &mut StdRng::seed_from_u64(11);
    for file in [None, Some(&socket)] {
        let args: Vec<&dyn AsRef<OsStr>> = match file {
            None => Vec::new(),
            Some(path) => vec![&"--socket", path],
        };
        let with: Vec<&dyn AsRef<OsStr>> =
            [&"--replace" as &dyn AsRef<OsStr>].into_iter().chain(args.iter().copied()).collect();
        let named = Options { socket: file.cloned(), ..options(&packed.dataset) };
        let mut old = Daemon::start(&packed.dataset, &args);
        for round in 0..ROUNDS {
            // As long as the new one takes, and a little longer.
            let moments = [0, 1].map(|_| Duration::from_micros(random.random_range(0..60_000)));
            let (named, dataset) = (&named, &packed.dataset);
            let begin = |job: &'static str, moment: Duration| {
                std::thread::sleep(moment);
                let session = Session::connect(dataset, job, 0, self::job(Sampler::Uniform, 1), named);
                let session = session.unwrap();
                let began_in = session.daemon_pid();
                session.start_epoch(0, 0).unwrap();
                let taken: Vec<Taken> =
                    std::iter::from_fn(|| next(&session)).map(|batch| seen(&batch)).collect();
                (began_in, sorted_ids(&taken), session)
            };
            let (new, begun) = std::thread::scope(|scope| {
                let begun = [("a", moments[0]), ("b", moments[1])]
                    .map(|(job, moment)| scope.spawn(move || begin(job, moment)));
                let new = Daemon::start(dataset, &with);
                (new, begun.map(|thread| thread.join().unwrap()))
            });
            for (began_in, ids, session) in begun {
                assert!(
                    [old.pid(), new.pid()].contains(&began_in),
                    "round {round}: process {began_in} serves it"
                );
                session.stats().unwrap();
                assert_eq!(session.daemon_pid(), new.pid(), "round {round}");
                assert!(ids.into_iter().eq(0..u32::try_from(packed.len()).unwrap()), "round {round}");
            }
            assert!(old.wait().success());
            old = new;
        }
    }
    assert!(socket.exists());
}
