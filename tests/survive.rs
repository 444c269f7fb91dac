//! Daemons are killed with SIGKILL under running jobs, which go on in a successor as if nothing had
//! happened; or end with an error that says why not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shade_client::{
    Batch, BatchId, ClientError, JobSpec, Launch, Next, Options, Order, PlanSpec, Sampler, Session, Settings,
};
use shade_job::{EpochLength, Filters, Pair, Parts, Transform};
use shade_tests::{Daemon, Packed, Taken, copy, eventually, is_gone, program, spec};

/// Ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(120);
const EPOCHS: u32 = 3;

/// These tests count what this process has open, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts private daemons by `binary`.
fn options_of(binary: PathBuf, dataset: &Path) -> Options {
    let settings = Settings::from_text(r#"{"linger": 0.2}"#).unwrap();
    let launch = Some(Launch::new(binary, dataset, None, &settings));
    Options { launch, settings, timeout: Duration::from_secs(60), ..Options::default() }
}

fn options(dataset: &Path) -> Options {
    options_of(program("shade-load"), dataset)
}

fn connect(packed: &Packed, rank: u32, job: &JobSpec, options: &Options) -> Session {
    Session::connect(&packed.dataset, "job", rank, job.clone(), options).unwrap()
}

fn job_of(plan: PlanSpec, world_size: u32) -> JobSpec {
    JobSpec { plan, ring_bytes: 4096, ..spec(6, world_size) }
}

fn decoded(job: JobSpec) -> JobSpec {
    let (scale, ratio) = ([0.25, 1.0], [0.75, 4.0 / 3.0]);
    let interpolation = Filters::default();
    let crop = Transform::RandomResizedCrop { size: Pair([16, 16]), scale, ratio, interpolation };
    let decode = vec![crop, Transform::RandomHorizontalFlip { p: 0.5 }].into();
    JobSpec { decode, ring_bytes: 1 << 15, ..job }
}

/// The next batch, also of a successor; `None` at the epoch's end.
fn next(session: &Session) -> Result<Option<Batch>, ClientError> {
    let started = Instant::now();
    loop {
        match session.next(Duration::from_millis(100))? {
            Next::Batch(batch) => return Ok(Some(batch)),
            Next::EpochEnd => return Ok(None),
            Next::Pending => assert!(started.elapsed() < PATIENCE, "no batch within {PATIENCE:?}"),
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    // It may be dead already.
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
}

/// Kills the daemon that serves now, and waits until it answers nothing any more.
fn kill(session: &Session) {
    let pid = session.daemon_pid();
    signal(pid, Signal::KILL);
    eventually("it is dead", || is_gone(pid));
}

/// A batch without hits and misses: a successor's cache begins empty.
fn seen(batch: &Batch) -> Taken {
    Taken { hits: 0, misses: 0, ..copy(batch) }
}

/// Reports losses for a batch that was taken: of some all, of some the first half, of others none.
fn report(session: &Session, taken: &Taken, id: BatchId) {
    let losses: Vec<f32> = taken.ids.iter().map(|id| ((id * 31 + 17 * taken.epoch) % 97) as f32).collect();
    match taken.number % 4 {
        0 => {}
        1 => session.report(id, losses.split_at(losses.len() / 2).0).unwrap(),
        _ => session.report(id, &losses).unwrap(),
    }
}

/// All batches of the epochs, with `at` called before each call of the client. Losses are reported
/// a batch later, and the last ones of an epoch before the next begins.
fn train(session: &Session, mut at: impl FnMut(usize)) -> Vec<Taken> {
    let (mut taken, mut late, mut moment) = (Vec::new(), Vec::new(), 0);
    let mut tick = || {
        at(moment);
        moment += 1;
    };
    for epoch in 0..EPOCHS {
        tick();
        session.start_epoch(epoch, 0).unwrap();
        loop {
            tick();
            let Some(batch) = next(session).unwrap() else { break };
            taken.push(seen(&batch));
            tick();
            late.extend(taken.last().cloned().map(|taken| (taken, batch.id())));
            if late.len() > 1 {
                let (taken, id) = late.remove(0);
                report(session, &taken, id);
            }
        }
        tick();
        late.drain(..).for_each(|(taken, id)| report(session, &taken, id));
    }
    taken
}

/// Warnings, of which there is one for each successor.
fn warnings(session: &Session) -> Vec<String> {
    let told: Vec<String> = std::iter::from_fn(|| session.take_warning()).collect();
    assert_eq!(told.len(), session.successors() as usize, "{told:?}");
    told
}

/// Names of shared memory that this process has open or mapped.
fn shared_memory() -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let open = open.filter(|file| file.to_string_lossy().contains("shade-")).count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    open + maps.lines().filter(|line| line.contains("memfd:shade")).count()
}

/// Plans that do not go by what is cached: of their documents alone, by losses, by deliveries.
fn plans() -> Vec<PlanSpec> {
    let samplers = [
        PlanSpec::default(),
        PlanSpec { sampler: Sampler::Replacement, cover: 0, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Balanced, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Balanced, replacement: false, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Echo, ..PlanSpec::default() },
        PlanSpec { draw_ahead: true, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Iis, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Cis, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Infobatch, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Seta, ..PlanSpec::default() },
        PlanSpec { sampler: Sampler::Replacement, ..PlanSpec::default() },
    ];
    let orders = [Order::Shuffled, Order::Spaced];
    let all = samplers.into_iter().flat_map(|plan| orders.map(|order| PlanSpec { order, seed: 7, ..plan }));
    let sequential = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    all.chain([sequential]).collect()
}

#[test]
fn batches_are_those_of_an_undisturbed_run_whenever_daemons_are_killed() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let options = options(&packed.dataset);
    let mut seed = 1_usize;
    for plan in plans() {
        for is_decoded in [false, true] {
            let job = job_of(plan, 1);
            let job = if is_decoded { decoded(job) } else { job };
            let job = JobSpec { admit: plan.sampler != Sampler::Sequential, ..job };
            let mut moments = 0;
            let session = connect(&packed, 0, &job, &options);
            let undisturbed = train(&session, |moment| moments = moment + 1);
            drop(session);
            // Before the first epoch and its first batch, twice in a row in the middle, before and
            // after an epoch's end.
            let per_epoch = moments / EPOCHS as usize;
            let mut kills: BTreeSet<usize> = [0, 1, per_epoch - 1, per_epoch, per_epoch + 1].into();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let middle = per_epoch + 3 + (seed >> 33) % (per_epoch - 5);
            kills.extend([middle, middle + 1, 2 * per_epoch + 1 + (seed >> 50) % (per_epoch - 2)]);
            let session = connect(&packed, 0, &job, &options);
            let mut pids = BTreeSet::new();
            let survived = train(&session, |moment| {
                pids.insert(session.daemon_pid());
                if kills.contains(&moment) {
                    // Every other time the one before was noticed.
                    if moment % 2 == 1 {
                        session.stats().unwrap();
                    }
                    kill(&session);
                }
            });
            assert!(survived == undisturbed, "{plan:?}, decoded: {is_decoded}, kills at {kills:?}");
            let told = warnings(&session);
            assert!(told.len() >= 3, "{plan:?}: {} of {kills:?}", told.len());
            // On a busy machine the last word of one may come late, or its first.
            let late = ["not ended yet", "another process has started it"];
            let is_known = |text: &String| {
                text.contains("it was killed") || late.iter().any(|words| text.contains(words))
            };
            assert!(told.iter().all(is_known), "{told:?}");
            let stats: serde_json::Value = serde_json::from_str(&session.stats().unwrap()).unwrap();
            assert_eq!(stats["successors"], session.successors());
            drop(session);
            eventually("nothing is left", || pids.iter().all(|&pid| is_gone(pid)));
        }
    }
    eventually("no memory is left", || shared_memory() == 0);
}

#[test]
fn ranks_of_a_node_go_on_together_wherever_each_of_them_is() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let options = options(&packed.dataset);
    let run = |plan: PlanSpec, kills: usize| {
        let job = decoded(job_of(plan, 2));
        let sessions = [0, 1].map(|rank| connect(&packed, rank, &job, &options));
        let (steps, is_over) = ([0, 1].map(|_| AtomicUsize::new(0)), AtomicBool::new(false));
        let mut killed = 0;
        let taken = std::thread::scope(|scope| {
            let ranks = [0, 1].map(|rank| {
                let (session, steps) = (&sessions[rank], &steps[rank]);
                scope.spawn(move || {
                    train(session, |moment| {
                        steps.store(moment, Ordering::Relaxed);
                        // The second is slower, and the first waits for it at each epoch's end.
                        std::thread::sleep(Duration::from_millis(5 + 10 * rank as u64));
                    })
                })
            });
            let killer = scope.spawn(|| {
                let (mut killed, mut before) = (0, [0; 2]);
                while !is_over.load(Ordering::Relaxed) && killed < kills {
                    // Both ranks have gone on since, and both have found the successor.
                    let now = [0, 1].map(|rank: usize| steps[rank].load(Ordering::Relaxed));
                    let go_on = (0..2).all(|rank| now[rank] > before[rank] + 1);
                    if go_on && sessions[0].daemon_pid() == sessions[1].daemon_pid() {
                        kill(&sessions[0]);
                        (killed, before) = (killed + 1, now);
                    }
                    std::thread::sleep(Duration::from_millis(1 + (killed as u64 * 37) % 90));
                }
                killed
            });
            let taken = ranks.map(|rank| rank.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            killed = killer.join().unwrap();
            taken
        });
        sessions.iter().for_each(|session| drop(warnings(session)));
        (taken, killed)
    };
    for sampler in [Sampler::Uniform, Sampler::Pads] {
        let plan = PlanSpec { sampler, ..PlanSpec::default() };
        let (undisturbed, _) = run(plan, 0);
        let (survived, killed) = run(plan, 20);
        assert!(killed > 3, "{killed}");
        assert!(survived == undisturbed, "{plan:?}: after {killed} kills");
    }
}

#[test]
fn a_rank_at_an_epochs_end_waits_for_one_that_is_in_it() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let options = options(&packed.dataset);
    let job = job_of(PlanSpec::default(), 2);
    let run = |kills: bool| {
        let [first, second] = [0, 1].map(|rank| connect(&packed, rank, &job, &options));
        [&first, &second].iter().for_each(|rank| rank.start_epoch(0, 0).unwrap());
        let mut taken = Vec::new();
        while let Some(batch) = next(&first).unwrap() {
            taken.push(seen(&batch));
        }
        first.start_epoch(1, 0).unwrap();
        let held = next(&second).unwrap().unwrap();
        let before = seen(&held);
        if kills {
            kill(&first);
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| seen(&next(&first).unwrap().unwrap()));
            while let Some(batch) = next(&second).unwrap() {
                taken.push(seen(&batch));
            }
            second.start_epoch(1, 0).unwrap();
            taken.push(seen(&next(&second).unwrap().unwrap()));
            taken.push(waiting.join().unwrap());
        });
        assert!(seen(&held) == before, "a batch in hand stays as it is");
        // A state that the successor saves is one of this place.
        let state = first.save_state(1, 1).unwrap();
        assert_eq!([&first, &second].map(Session::successors), [u32::from(kills); 2]);
        (taken, state)
    };
    let (undisturbed, state) = run(false);
    let (survived, saved) = run(true);
    assert!(survived == undisturbed);
    let place = |state: &[u8]| state[48..60].to_vec();
    assert_eq!(place(&saved), place(&state));
}

#[test]
fn a_state_asked_for_at_once_is_of_the_batch_that_is_next() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let session = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &options(&packed.dataset));
    session.start_epoch(0, 0).unwrap();
    for _ in 0..5 {
        next(&session).unwrap().unwrap();
    }
    kill(&session);
    let state = session.save_state(0, 5).unwrap();
    assert_eq!(session.successors(), 1);
    let fields = |at: usize| u32::from_le_bytes(state[at..at + 4].try_into().unwrap());
    assert_eq!([48, 52, 56].map(fields), [0, 5, 30], "epoch, batch, position");
    let rest: Vec<Taken> = std::iter::from_fn(|| next(&session).unwrap().map(|batch| seen(&batch))).collect();
    session.load_state(&state, 0).unwrap();
    session.start_epoch(0, 5).unwrap();
    let again: Vec<Taken> =
        std::iter::from_fn(|| next(&session).unwrap().map(|batch| seen(&batch))).collect();
    assert!(rest == again && rest.len() == 12);
    // What went on from a state does so again, and is known as it is until an epoch begins.
    session.load_state(&state, 0).unwrap();
    kill(&session);
    eventually("a successor is there", || session.successors() == 2);
    assert!(session.save_state(0, 5).unwrap() == state);
    session.start_epoch(0, 5).unwrap();
    let mut again = Vec::new();
    while let Some(batch) = next(&session).unwrap() {
        again.push(seen(&batch));
        if again.len() == 4 {
            kill(&session);
        }
    }
    assert!(rest == again);
}

/// All batches of the epoch that was started, with losses of each.
fn rest(session: &Session) -> Vec<Taken> {
    let mut taken = Vec::new();
    while let Some(batch) = next(session).unwrap() {
        let copy = seen(&batch);
        let losses: Vec<f32> = copy.ids.iter().map(|id| (id * 31 % 97) as f32).collect();
        session.report(batch.id(), &losses).unwrap();
        taken.push(copy);
    }
    taken
}

#[test]
fn a_base_that_nobody_took_is_gone_once_a_state_is_loaded() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let by_losses = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let session = connect(&packed, 0, &job_of(by_losses, 1), &options(&packed.dataset));
    session.start_epoch(0, 0).unwrap();
    rest(&session);
    session.start_epoch(1, 0).unwrap();
    next(&session).unwrap().unwrap();
    let state = session.save_state(1, 1).unwrap();
    let undisturbed = rest(&session);
    // It has begun, so its base has come.
    session.start_epoch(2, 0).unwrap();
    eventually("epoch 2 has begun", || session.save_state(2, 0).is_ok());
    session.load_state(&state, 0).unwrap();
    kill(&session);
    session.start_epoch(1, 1).unwrap();
    assert!(rest(&session) == undisturbed);
    assert_eq!(session.successors(), 1);
}

#[test]
fn an_epoch_that_is_longer_than_the_dataset_has_states_and_successors() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let options = options(&packed.dataset);
    let parts = Parts::new(&[(40, 0.5), (62, 0.5)]).unwrap();
    // Far more bytes than 102 samples have.
    let epoch_length = EpochLength::Samples(300_000);
    let by_losses = PlanSpec { sampler: Sampler::Pads, parts, epoch_length, ..PlanSpec::default() };
    let run = |kills: bool| {
        let session = connect(&packed, 0, &job_of(by_losses, 1), &options);
        session.start_epoch(0, 0).unwrap();
        let mut taken = vec![seen(&next(&session).unwrap().unwrap())];
        if kills {
            kill(&session);
        }
        taken.push(seen(&next(&session).unwrap().unwrap()));
        let state = session.save_state(0, 2).unwrap();
        session.load_state(&state, 0).unwrap();
        if kills {
            kill(&session);
        }
        session.start_epoch(0, 2).unwrap();
        taken.push(seen(&next(&session).unwrap().unwrap()));
        taken
    };
    assert!(run(true) == run(false));
}

#[test]
fn a_successor_has_the_settings_of_the_daemon_before_whoever_starts_it() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let settings = r#"{"linger": 0.3, "policy": "lru", "cache": "30%", "depth": 9, "fields": "mask,text"}"#;
    let settings = Settings::from_text(settings).unwrap();
    let launch = Some(Launch::new(program("shade-load"), &packed.dataset, None, &settings));
    let of_training = Options { launch, settings, ..options(&packed.dataset) };
    let asked = Settings::from_text(r#"{"linger": 0.2, "fields": "text"}"#).unwrap();
    let launch = Some(Launch::new(program("shade-load"), &packed.dataset, None, &asked));
    let of_validation = Options { launch, settings: asked, ..options(&packed.dataset) };
    let of_onlooker = Options { launch: None, settings: Settings::default(), ..options(&packed.dataset) };
    let job = JobSpec { admit: false, ..job_of(PlanSpec::default(), 1) };
    let attach = |name, options| Session::connect(&packed.dataset, name, 0, job.clone(), options).unwrap();
    let training = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &of_training);
    let validation = attach("validation", &of_validation);
    let before = attach("onlooker", &of_onlooker).settings();
    assert_eq!([&before["policy"], &before["fields"]], ["lru", "mask,text"]);
    drop(training);
    kill(&validation);
    validation.stats().unwrap();
    assert_eq!(validation.successors(), 1);
    assert_eq!(attach("onlooker", &of_onlooker).settings(), before);
    assert_eq!(validation.settings()["fields"], "text", "what it asked for is read");
}

/// The error of a job whose daemon is not replaced.
fn told(session: &Session) -> String {
    let started = Instant::now();
    loop {
        let error = session.stats().map(drop).err();
        if let Some(error) = error {
            assert!(matches!(error, ClientError::DaemonGone { .. }), "{error:?}");
            return error.to_string();
        }
        assert!(started.elapsed() < PATIENCE, "no error");
    }
}

#[test]
fn what_goes_by_the_cache_loses_no_row_and_the_warning_says_so() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let quiver = Settings::from_text(r#"{"linger": 0.2, "policy": "quiver", "cache": "30%"}"#).unwrap();
    let launch = Some(Launch::new(program("shade-load"), &packed.dataset, None, &quiver));
    let exchanging = Options { launch, settings: quiver, ..options(&packed.dataset) };
    let order = |order| PlanSpec { order, ..PlanSpec::default() };
    let cases = [
        (order(Order::Opportunistic), options(&packed.dataset), "the order goes by the cache"),
        (order(Order::HitsFirst), options(&packed.dataset), "the order goes by the cache"),
        (PlanSpec::default(), exchanging, "the policy quiver exchanges samples"),
    ];
    for (plan, options, why) in cases {
        let session = connect(&packed, 0, &job_of(plan, 1), &options);
        let taken = train(&session, |moment| {
            if moment % 13 == 5 {
                kill(&session);
            }
        });
        for epoch in 0..EPOCHS {
            let of_epoch = taken.iter().filter(|taken| taken.epoch == epoch).flat_map(|taken| &taken.ids);
            let mut ids: Vec<u32> = of_epoch.copied().collect();
            ids.sort_unstable();
            let all = 0..session.samples();
            assert!(ids.iter().copied().eq(all), "{plan:?}: {ids:?}");
        }
        let told = warnings(&session);
        assert!(told.len() > 3 && told.iter().all(|text| text.contains(why)), "{told:?}");
        // The next one's daemon has other settings. One that was killed last has a successor yet.
        eventually("it is replaced", || !is_gone(session.daemon_pid()));
        let pid = session.daemon_pid();
        drop(session);
        eventually("nothing is left", || is_gone(pid));
    }
}

#[test]
fn who_does_not_want_a_successor_gets_an_error() {
    let _turn = turn();
    let packed = Packed::mixed(10);
    let options = Options { survive: false, ..options(&packed.dataset) };
    let session = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &options);
    session.start_epoch(0, 0).unwrap();
    next(&session).unwrap();
    kill(&session);
    let text = told(&session);
    assert!(text.contains("it was killed") && !text.contains("not replaced"), "{text}");
    assert_eq!(session.successors(), 0);
}

#[test]
fn a_daemon_that_is_stopped_is_not_replaced() {
    let _turn = turn();
    let packed = Packed::mixed(10);
    let options = options(&packed.dataset);
    let by_command = |_: u32| {
        let stop = Command::new(program("shade-load")).arg("stop").arg(&packed.dataset).status();
        assert!(stop.unwrap().success());
    };
    let ways: [(&dyn Fn(u32), &str); 2] =
        [(&|pid| signal(pid, Signal::TERM), "stopped by a signal"), (&by_command, "with shade-load stop")];
    for (stop, why) in ways {
        let sessions = [0, 1].map(|rank| connect(&packed, rank, &job_of(PlanSpec::default(), 2), &options));
        sessions.iter().for_each(|session| session.start_epoch(0, 0).unwrap());
        stop(sessions[0].daemon_pid());
        for session in &sessions {
            let text = told(session);
            assert!(text.contains("not replaced: it was stopped") && text.contains(why), "{text}");
            assert_eq!(session.successors(), 0);
        }
    }
}

#[test]
fn a_daemon_that_somebody_starts_again_is_waited_for() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let job = job_of(PlanSpec::default(), 1);
    let undisturbed = {
        let session = connect(&packed, 0, &job, &options(&packed.dataset));
        let undisturbed = train(&session, |_| {});
        let pid = session.daemon_pid();
        drop(session);
        eventually("the private daemon has ended", || is_gone(pid));
        undisturbed
    };
    let first = Daemon::start(&packed.dataset, &[]);
    let mut daemon = None;
    // Like a Loader, which could start one, too.
    let session = connect(&packed, 0, &job, &options(&packed.dataset));
    assert_eq!(session.daemon_pid(), first.pid());
    let mut first = Some(first);
    let survived = std::thread::scope(|scope| {
        let mut starts = None;
        let survived = train(&session, |moment| {
            if moment == 9 {
                first.take().unwrap().kill();
                starts = Some(scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(700));
                    Daemon::start(&packed.dataset, &[])
                }));
            }
        });
        daemon = starts.map(|starts| starts.join().unwrap());
        survived
    });
    assert!(survived == undisturbed);
    assert_eq!((session.successors(), session.daemon_pid()), (1, daemon.unwrap().pid()));
}

#[test]
fn the_third_daemon_that_dies_before_the_same_batch_is_an_error() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let session = connect(&packed, 0, &job_of(PlanSpec::default(), 2), &options(&packed.dataset));
    // Without the other rank no batch comes.
    session.start_epoch(0, 0).unwrap();
    assert!(matches!(session.next(Duration::from_millis(10)), Ok(Next::Pending)));
    for successors in 0..2 {
        kill(&session);
        eventually("it has a successor", || {
            assert!(matches!(session.next(Duration::from_millis(10)), Ok(Next::Pending)));
            session.successors() == successors + 1
        });
        // It waits for the batch of this one, too.
        assert!(matches!(session.next(Duration::from_millis(10)), Ok(Next::Pending)));
    }
    kill(&session);
    let text = told(&session);
    assert!(text.contains("3 daemons in a row") && text.contains("batch 0 of epoch 0"), "{text}");
    assert!(told(&session) == text, "and stays one");
}

#[test]
fn a_rank_that_asks_for_nothing_finds_the_successor_as_well() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let options = options(&packed.dataset);
    let [idle, busy] = [0, 1].map(|rank| connect(&packed, rank, &job_of(PlanSpec::default(), 2), &options));
    [&idle, &busy].iter().for_each(|rank| rank.start_epoch(0, 0).unwrap());
    while next(&idle).unwrap().is_some() {}
    let first = next(&busy).unwrap().unwrap().descriptor().batch;
    // More than may die before one batch: it waits for none, as one that validates.
    for successors in 1..=5 {
        kill(&busy);
        eventually("both have a successor", || {
            [&idle, &busy].iter().all(|rank| rank.successors() == successors)
        });
    }
    let mut batches = vec![first];
    while let Some(batch) = next(&busy).unwrap() {
        batches.push(batch.descriptor().batch);
    }
    assert!(batches.into_iter().eq(0..busy.batches_per_epoch()));
}

/// A program that is killed as often as the file says, and is the daemon then.
fn killed_at_first(packed: &Packed, times: usize) -> PathBuf {
    let (script, left) = (packed.beside("daemon.sh"), packed.beside("left"));
    std::fs::write(&left, "x".repeat(times)).unwrap();
    let text = format!(
        "#!/bin/sh\nleft={}\nif [ -f \"$left.armed\" ] && [ -s \"$left\" ]; then\n  truncate -s -1 \"$left\"\n  kill -9 $$\nfi\n\
         exec {} \"$@\"\n",
        left.display(),
        program("shade-load").display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn successors_that_die_before_they_serve_are_counted_and_replaced() {
    let _turn = turn();
    for (deaths, survives) in [(1, true), (3, false)] {
        let packed = Packed::mixed(10);
        let options = options_of(killed_at_first(&packed, deaths), &packed.dataset);
        let session = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &options);
        std::fs::write(packed.beside("left.armed"), "").unwrap();
        session.start_epoch(0, 0).unwrap();
        next(&session).unwrap().unwrap();
        kill(&session);
        if survives {
            session.stats().unwrap();
            assert_eq!(session.successors(), 1);
        } else {
            let text = told(&session);
            assert!(text.contains("3 daemons in a row"), "{text}");
        }
    }
}

#[test]
fn more_deaths_within_an_hour_than_are_allowed_are_an_error() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let options = Options { deaths_max: 3, ..options(&packed.dataset) };
    let session = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &options);
    session.start_epoch(0, 0).unwrap();
    // The training goes on after each, so no batch is blamed.
    for successors in 1..=3 {
        next(&session).unwrap().unwrap();
        kill(&session);
        session.stats().unwrap();
        assert_eq!(session.successors(), successors);
    }
    next(&session).unwrap().unwrap();
    kill(&session);
    let text = told(&session);
    assert!(text.contains("4 daemons of this rank have died within an hour, more than 3"), "{text}");
    assert!(text.contains("it was killed"), "{text}");
}

#[test]
fn a_successor_that_cannot_start_says_why() {
    let _turn = turn();
    let packed = Packed::mixed(10);
    let (script, limit) = (packed.beside("daemon.sh"), packed.beside("limit"));
    let (limit_path, program) = (limit.display(), program("shade-load"));
    let text = format!(
        "#!/bin/sh\n[ ! -e {limit_path} ] || ulimit -n $(cat {limit_path})\nexec {} \"$@\"\n",
        program.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let session = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &options_of(script, &packed.dataset));
    // Files: enough to begin, and no more.
    std::fs::write(&limit, "6").unwrap();
    kill(&session);
    let text = told(&session);
    // By its own report, or by its refusal if the rank has connected before.
    assert!(text.contains("it has no successor") && text.contains("cannot start: "), "{text}");
}

#[test]
fn a_program_that_was_replaced_on_disk_is_the_successor() {
    let _turn = turn();
    let packed = Packed::mixed(33);
    let binary = packed.beside("shade-load");
    std::fs::copy(program("shade-load"), &binary).unwrap();
    let options = options_of(binary.clone(), &packed.dataset);
    let run = |replaces: bool| {
        let session = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &options);
        let mut files = BTreeSet::new();
        let taken = train(&session, |moment| {
            let file = std::fs::metadata(format!("/proc/{}/exe", session.daemon_pid()));
            files.extend(file.map(|file| file.ino()));
            if replaces && moment == 9 {
                // As pip does it: another file in its place, while the old one runs.
                let new = packed.beside("new");
                std::fs::copy(program("shade-load"), &new).unwrap();
                std::fs::rename(&new, &binary).unwrap();
            }
            if replaces && moment == 12 {
                kill(&session);
            }
        });
        let pid = session.daemon_pid();
        drop(session);
        eventually("nothing is left", || is_gone(pid));
        (taken, files.len())
    };
    let (undisturbed, one) = run(false);
    let (survived, two) = run(true);
    assert_eq!((one, two), (1, 2));
    assert!(survived == undisturbed);
}

#[test]
fn a_dataset_that_grew_has_no_successor() {
    let _turn = turn();
    let packed = Packed::mixed(10);
    let other = Packed::mixed(11);
    let session = connect(&packed, 0, &job_of(PlanSpec::default(), 1), &options(&packed.dataset));
    std::fs::rename(&packed.dataset, packed.beside("before")).unwrap();
    std::fs::rename(&other.dataset, &packed.dataset).unwrap();
    kill(&session);
    let text = told(&session);
    assert!(text.contains("it has no successor") && text.contains("added to or replaced since"), "{text}");
}
