//! The core tells its cache what the plan needs next: hits follow, for any number of ranks and from
//! the middle of an epoch.

use crate::replay::{Replay, Taken, index, spec};
use shade_core::Event;
use shade_job::{Policy, Sampler};

const SAMPLES: u32 = 6_000;
/// A tenth of the dataset: records of 400 bytes take a block of 512.
const CACHE_BYTES: u64 = 600 * 512;

fn trained(policy: Policy, world_size: u32) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), policy, CACHE_BYTES, 4, 3);
    let mut job = spec(20, world_size);
    job.plan.sampler = Sampler::Pads;
    replay.attach_all(&job, 0);
    for epoch in 0..4 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, |id| (id * 7919 % SAMPLES) as f32);
    }
    replay
}

/// Hits of the last epoch, percent.
fn hit_ratio(replay: &Replay) -> f64 {
    let counts = replay.core().stats(0).epoch.counts.counts;
    assert_eq!(counts.accesses, u64::from(SAMPLES));
    100.0 * counts.hits as f64 / counts.accesses as f64
}

#[test]
fn the_plan_triples_the_hits_of_importance_for_any_number_of_ranks() {
    let app = hit_ratio(&trained(Policy::App, 1));
    assert!((9.0..14.0).contains(&app), "{app}");
    for world_size in [1, 2, 5] {
        // The reference's epoch-Belady with importance behind it: 36.6 %. Here rows that wait for
        // one read count as hits, too, and the more ranks, the more batches are open at a time.
        let lookahead = hit_ratio(&trained(Policy::Lookahead, world_size));
        assert!((33.0..40.0).contains(&lookahead), "{world_size} ranks: {lookahead}");
    }
}

#[test]
fn an_epoch_that_goes_on_in_its_middle_hits_as_often_from_there_on() {
    let whole = trained(Policy::Lookahead, 2);
    let mut resumed = trained(Policy::Lookahead, 2);
    let from = SAMPLES / 40 / 2;
    // Both ranks begin epoch 3 again, from its middle.
    resumed.taken.clear();
    let hits = |replay: &Replay| replay.core().stats(0).total.counts.counts.hits;
    let before = hits(&resumed);
    for rank in 0..2 {
        resumed.start(rank, 3, from);
    }
    resumed.run();
    let batches = |replay: &Replay| {
        let mut taken: Vec<Taken> =
            replay.taken.iter().filter(|taken| taken.epoch == 3 && taken.batch >= from).cloned().collect();
        taken.sort_by_key(|taken| (taken.batch, taken.rank));
        taken.into_iter().map(|taken| taken.ids).collect::<Vec<_>>()
    };
    assert_eq!(batches(&resumed), batches(&whole), "the same samples");
    let ratio = 100.0 * (hits(&resumed) - before) as f64 / f64::from(SAMPLES / 2);
    // 36.7; with the uses before the middle in sight as well it is 36.3.
    assert!(ratio > 36.5, "{ratio}: uses before the middle are not waited for");
}

#[test]
fn losses_that_arrive_in_an_epoch_leave_what_is_known_of_the_plan() {
    let mut replay = trained(Policy::Lookahead, 1);
    let resident = replay.core().stats(0).resident;
    replay.start(0, 4, 0);
    for step in 0..4_000 {
        replay.tick();
        if step % 100 == 0 {
            let losses = vec![step as f32; 20];
            replay.step(Event::Report { session: 0, epoch: 3, batch: step / 100, losses });
        }
    }
    replay.run();
    assert!(hit_ratio(&replay) > 33.0, "{}", hit_ratio(&replay));
    assert_eq!(replay.core().stats(0).resident, resident);
}
