//! Several jobs on one daemon: each delivers its own epochs and has its own figures, name and saved
//! state, whatever becomes of the others; all share the cache.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::Value;
use shade_client::{ClientError, JobSpec, Options, PlanSpec, Sampler, Session};
use shade_formats::control::REFUSE_RESOURCES;
use shade_formats::limits::JOBS_MAX;
use shade_tests::{
    Daemon, Packed, Taken, TrainerProcess, attach_to, copy, eventually, next, sorted_ids, spec, stats,
    take_epoch, take_rest,
};

/// A uniform job of one rank.
fn uniform(batch_size: u32, seed: u64) -> JobSpec {
    JobSpec { plan: PlanSpec { seed, ..PlanSpec::default() }, ..spec(batch_size, 1) }
}

/// A validation: every sample once, in order, and nothing stays in the cache.
fn validation() -> JobSpec {
    let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    JobSpec { plan, admit: false, ..spec(8, 1) }
}

/// Attaches to the job `default`, or to the next free name.
fn any_name(packed: &Packed, spec: JobSpec) -> Session {
    let options = Options { or_free_name: true, ..Options::default() };
    Session::connect(&packed.dataset, "default", 0, spec.clone(), &options).unwrap()
}

fn count(stats: &Value, name: &str) -> u64 {
    stats["total"][name].as_u64().unwrap_or_else(|| panic!("no total.{name} in {stats}"))
}

/// All samples come once, with their labels.
fn is_whole(packed: &Packed, epoch: &[Taken]) {
    assert!(sorted_ids(epoch).into_iter().eq(0..102));
    for batch in epoch {
        for (&id, &label) in batch.ids.iter().zip(&batch.labels) {
            assert_eq!(packed.sources[id as usize].label, label, "sample {id}");
        }
    }
}

fn orders(epochs: &[Vec<Taken>]) -> Vec<Vec<u32>> {
    epochs.iter().map(|epoch| epoch.iter().flat_map(|batch| batch.ids.clone()).collect()).collect()
}

#[test]
fn each_has_its_own_epochs_and_figures_and_finds_what_the_other_has_read() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%"]);
    let (first, second) = (any_name(&packed, uniform(8, 1)), any_name(&packed, uniform(5, 2)));
    assert_eq!([first.job(), second.job()], ["default", "default-2"]);
    assert_eq!((first.daemon_pid(), second.daemon_pid()), (daemon.pid(), daemon.pid()));
    let epochs = [take_epoch(&first, 0).unwrap(), take_epoch(&first, 1).unwrap()];
    let others = [take_epoch(&second, 0).unwrap()];
    epochs.iter().chain(&others).for_each(|epoch| is_whole(&packed, epoch));
    let alone = |spec: JobSpec, epochs: u32| {
        let packed = Packed::mixed(33);
        let daemon = Daemon::start(&packed.dataset, &[]);
        let session = attach_to(&packed.dataset, "alone", 0, spec.clone()).unwrap();
        let epochs: Vec<_> = (0..epochs).map(|epoch| take_epoch(&session, epoch).unwrap()).collect();
        drop(daemon);
        orders(&epochs)
    };
    assert_eq!(orders(&epochs), alone(uniform(8, 1), 2), "the plans are those of a job by itself");
    assert_eq!(orders(&others), alone(uniform(5, 2), 1));

    let (one, two) = (stats(&first), stats(&second));
    assert_eq!((count(&one, "accesses"), count(&two, "accesses")), (204, 102));
    let read = |stats| (count(stats, "reads") + count(stats, "coalesced"), count(stats, "bytes_read") > 0);
    assert_eq!((read(&one), read(&two)), ((102, true), (0, false)), "the second finds all in the cache");
    assert_eq!((count(&two, "hits"), one["resident"].as_u64()), (102, Some(102)));
    let names: Vec<_> = one["jobs"].as_array().unwrap().iter().map(|job| &job["name"]).collect();
    assert_eq!(names, ["default", "default-2"]);
    assert_eq!(one["jobs"][1]["hit_ratio"].as_f64(), Some(1.0));
    drop(second);
    eventually("a job that has left is not listed", || stats(&first)["jobs"].as_array().unwrap().len() == 1);
}

#[test]
fn names_that_are_asked_for_at_once_differ() {
    const AT_ONCE: usize = 8;
    let packed = Packed::mixed(3);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let start = std::sync::Barrier::new(AT_ONCE);
    let mut names: Vec<String> = std::thread::scope(|scope| {
        let open = || {
            start.wait();
            any_name(&packed, uniform(4, 0))
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(open)).collect();
        let sessions: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        sessions.iter().map(|session| session.job()).collect()
    });
    names.sort();
    let numbered = (2..=AT_ONCE).map(|number| format!("default-{number}"));
    assert!(
        names.iter().eq(&std::iter::once("default".to_owned()).chain(numbered).collect::<Vec<_>>()),
        "{names:?}"
    );
    drop(daemon);
}

#[test]
fn a_killed_trainer_leaves_the_others_alone_and_its_name_is_free() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let steady = attach_to(&packed.dataset, "steady", 0, uniform(8, 5)).unwrap();
    steady.start_epoch(0, 0).unwrap();
    let first = next(&steady).unwrap().unwrap();
    let idle = daemon.session_resources();
    for _ in 0..3 {
        let mut trainer = TrainerProcess::start(&packed.dataset, 0, 1, 8, 3);
        trainer.holds_batches();
        trainer.kill();
        eventually("what belonged to it is gone", || daemon.session_resources() <= idle);
    }
    let again = attach_to(&packed.dataset, "default", 0, spec(8, 1)).unwrap();
    is_whole(&packed, &take_epoch(&again, 0).unwrap());
    let mut epoch = vec![copy(&first)];
    drop(first);
    epoch.extend(take_rest(&steady).unwrap());
    is_whole(&packed, &epoch);
}

#[test]
fn a_job_that_admits_nothing_reads_past_the_cache_and_leaves_it_as_it_is() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
    let training = attach_to(&packed.dataset, "t", 0, uniform(8, 1)).unwrap();
    take_epoch(&training, 0).unwrap();
    // All 13 batches of its next epoch are open, all is read, and no record is held past the cache.
    eventually("its next epoch is read ahead", || {
        let now = stats(&training);
        let held = now["arena_used_bytes"].as_u64().unwrap() - now["cache_used_bytes"].as_u64().unwrap();
        now["rank"]["open"] == 13 && now["reads_submitted"] == 0 && held == 0
    });
    let before = stats(&training);
    let resident = before["resident"].as_u64().unwrap();
    assert!(resident > 0 && resident < 102, "{before}");
    let validating = attach_to(&packed.dataset, "t.eval", 0, validation()).unwrap();
    let hits = |epoch: &[Taken]| epoch.iter().map(|batch| batch.hits).collect::<Vec<_>>();
    let first = take_epoch(&validating, 0).unwrap();
    assert!(first.iter().flat_map(|batch| &batch.ids).copied().eq(0..102), "in order");
    assert_eq!(hits(&first).iter().sum::<u32>() as u64, resident, "each resident once");
    // Which samples are resident shows in the hits of each batch.
    assert_eq!(hits(&take_epoch(&validating, 1).unwrap()), hits(&first));
    let its = stats(&validating);
    assert_eq!((count(&its, "admitted"), count(&its, "evicted")), (0, 0), "{its}");
    assert_eq!(count(&its, "misses"), 2 * (102 - resident), "{its}");
    assert_eq!(
        count(&its, "reads") + count(&its, "coalesced"),
        count(&its, "misses"),
        "misses are read: {its}"
    );
    drop(validating);
    // Workers may still copy what is in the cache: their time alone may grow.
    let but_for_workers = |mut told: Value| {
        told["total"]["fill_ns"].take();
        told
    };
    let (before, after) = (but_for_workers(before), but_for_workers(stats(&training)));
    for name in ["total", "resident", "cache_used_bytes"] {
        assert_eq!(after[name], before[name], "{name}");
    }
    drop(daemon);
}

#[test]
fn a_saved_state_is_resumed_in_mid_epoch_while_another_job_goes_on() {
    const BEFORE: u32 = 5;
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
    let other = attach_to(&packed.dataset, "other", 0, uniform(8, 7)).unwrap();
    other.start_epoch(0, 0).unwrap();
    let mut others = vec![copy(&next(&other).unwrap().unwrap())];
    let spec =
        JobSpec { plan: PlanSpec { sampler: Sampler::Pads, seed: 3, ..PlanSpec::default() }, ..spec(6, 1) };
    let report = |session: &Session, batch: &Taken| {
        let losses: Vec<f32> = batch.ids.iter().map(|&id| (id * 37 % 101) as f32).collect();
        session.report(batch.id, &losses).unwrap();
    };
    let ids = |batches: Vec<Taken>| batches.into_iter().map(|batch| batch.ids).collect::<Vec<_>>();

    let saved = attach_to(&packed.dataset, "saved", 0, spec.clone()).unwrap();
    take_epoch(&saved, 0).unwrap().iter().for_each(|batch| report(&saved, batch));
    saved.start_epoch(1, 0).unwrap();
    for _ in 0..BEFORE {
        let batch = next(&saved).unwrap().unwrap();
        report(&saved, &copy(&batch));
    }
    let state = saved.save_state(1, BEFORE).unwrap();
    let rest = ids(take_rest(&saved).unwrap());
    assert_eq!(rest.len(), 12);
    drop(saved);
    others.push(copy(&next(&other).unwrap().unwrap()));

    let resumed = attach_to(&packed.dataset, "saved", 0, spec.clone()).unwrap();
    resumed.load_state(&state, 0).unwrap();
    resumed.start_epoch(1, BEFORE).unwrap();
    let first = next(&resumed).unwrap().unwrap();
    let mut delivered = vec![copy(&first).ids];
    drop(first);
    others.extend(take_rest(&other).unwrap());
    is_whole(&packed, &others);
    delivered.extend(ids(take_rest(&resumed).unwrap()));
    assert_eq!(delivered, rest);
    drop(daemon);
}

#[test]
fn one_more_than_there_may_be_is_refused_with_advice() {
    let packed = Packed::mixed(3);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let mut all: Vec<_> = (0..JOBS_MAX).map(|_| any_name(&packed, spec(4, 1))).collect();
    assert_eq!(all.last().unwrap().job(), "default-16");
    let options = Options { or_free_name: true, ..Options::default() };
    match Session::connect(&packed.dataset, "default", 0, spec(4, 1), &options) {
        Err(ClientError::Refused { code: REFUSE_RESOURCES, text, .. }) => {
            assert!(text.contains("16 jobs") && text.contains("Daemon(socket="), "{text}");
        }
        other => panic!("not refused: {other:?}"),
    }
    // A rank of a job that is there is none.
    drop(all.remove(4));
    assert_eq!(any_name(&packed, spec(4, 1)).job(), "default-5");
    drop(daemon);
}
