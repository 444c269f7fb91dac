//! A ring has room for a batch in which a long record comes several times, beside the batch that a
//! trainer has in hand. Without it a training would wait for ever.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::replay::{Replay, index, spec};
use shade_core::Event;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler, Tables, Tail, WeightTable};

const SAMPLES: u32 = 201;
const LONG: u32 = 100;
const LONG_BYTES: u32 = 90_000;

/// Epochs of a trainer that keeps each batch until it has the next one, as a loop's variable does.
fn train(job: JobSpec, samples: u32, table: Option<WeightTable>, epochs: u32) {
    let what = format!("{} in batches of {}", job.plan.sampler, job.batch_size);
    let index = index(samples, 5, |id| if id == LONG % samples { LONG_BYTES } else { 300 });
    let mut replay = Replay::new(index, Policy::Lookahead, 1 << 20, 4, 3);
    let tables = Tables { weights: table, subset: None };
    let mut job = JobSpec { ring_bytes: 0, ..job };
    tables.name_in(&mut job.plan);
    for rank in 0..job.world_size {
        replay.attach_with(rank, rank, &job, tables.clone());
    }
    assert!(replay.refused.is_empty(), "{what}: {:?}", replay.refused);
    let payload = replay.accepted[0].payload;
    replay.hold = true;
    let mut released = vec![0; job.world_size as usize];
    for epoch in 0..epochs {
        (0..job.world_size).for_each(|rank| replay.start(rank, epoch, 0));
        loop {
            let before = replay.taken.len();
            replay.run();
            let is_over = u32::try_from(replay.ended.len()).unwrap() == (epoch + 1) * job.world_size;
            assert!(is_over || replay.taken.len() > before, "{what}: no room in the ring");
            for rank in 0..job.world_size {
                let batches = replay.taken.iter().filter(|taken| taken.rank == rank).count();
                let ends = replay.ended.iter().filter(|ended| ended.0 == rank).count();
                let given = (batches + ends) as u64;
                let first = &mut released[rank as usize];
                let keep = if is_over { given } else { given.saturating_sub(1) }.max(*first);
                let seqs = (*first..keep).collect();
                *first = keep;
                replay.step(Event::Released { session: rank, seqs });
            }
            if is_over {
                break;
            }
        }
    }
    assert!(replay.failed.is_empty(), "{what}: {:?}", replay.failed);
    let longest = replay.taken.iter().map(|taken| taken.len).max().unwrap_or(0);
    assert!(longest > 2 * u64::from(LONG_BYTES), "{what}: it never comes twice, so this shows nothing");
    assert!(3 * longest <= payload.bytes && longest <= payload.gap_bytes, "{what}: {longest} in {payload:?}");
}

#[test]
fn where_a_heavy_sample_is_long() {
    for (weight, replacement) in [(20.0, true), (40.0, true), (90.0, true), (90.0, false), (1e6, true)] {
        for (batch_size, world_size, tail) in [(25, 1, Tail::Even), (40, 1, Tail::Pad), (16, 2, Tail::Even)] {
            let plan = PlanSpec { sampler: Sampler::Weighted, replacement, ..PlanSpec::default() };
            let table = WeightTable::new((0..SAMPLES).map(|id| if id == LONG { weight } else { 1.0 })).ok();
            train(JobSpec { plan, tail, ..spec(batch_size, world_size) }, SAMPLES, table, 8);
        }
    }
}

#[test]
fn where_few_samples_come_several_times() {
    for sampler in [Sampler::Replacement, Sampler::Echo] {
        let plan = PlanSpec { sampler, cover: 0, echo: 4.0, ..PlanSpec::default() };
        train(JobSpec { plan, ..spec(12, 1) }, 12, None, 40);
    }
}
