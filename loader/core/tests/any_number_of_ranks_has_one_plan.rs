//! The global order of an epoch is the same for any number of ranks: from equal scores and equal
//! residents the core draws one plan, and the ranks together deliver just that.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::replay::{Replay, Taken, index, spec};
use shade_core::Event;
use shade_job::{JobSpec, Order, PlanSpec, Policy, Sampler};

const WORLD_SIZES: [u32; 4] = [1, 2, 3, 8];

const BATCH_SIZE: u32 = 10;
/// Positions that are whole global batches of 1, 2, 3 and 8 ranks.
const BLOCK: u32 = 240;
const SAMPLES: u32 = 3 * BLOCK;

fn replay(job: &JobSpec, seed: u64) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 5, |id| 100 + id % 300), Policy::App, 1 << 20, 6, seed);
    replay.attach_all(job, 0);
    replay
}

/// The state after two epochs of one rank. The scores are those of its batches: more ranks have
/// other batches, and so from the same losses other scores.
fn trained(plan: PlanSpec) -> Vec<u8> {
    let mut replay = replay(&JobSpec { plan, ..spec(BATCH_SIZE, 1) }, 1);
    for epoch in 0..2 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, |id| (id * 7919 % SAMPLES) as f32);
    }
    replay.save(2, 0)
}

/// The plan in a saved state without seats.
fn plan_ids(state: &[u8]) -> Vec<u32> {
    let word = |at: usize| u32::from_le_bytes(state[at..at + 4].try_into().unwrap());
    assert_eq!(word(80), 0, "seats");
    (0..word(84) as usize).map(|position| word(116 + 4 * position)).collect()
}

/// What was taken of each block of positions, in no order.
fn blocks(taken: &[Taken], world_size: u32) -> Vec<Vec<u32>> {
    let of_block = |block: u32| {
        let is_of_it = |taken: &&Taken| taken.batch * BATCH_SIZE * world_size / BLOCK == block;
        sorted(taken.iter().filter(is_of_it).flat_map(|taken| taken.ids.clone()).collect())
    };
    (0..SAMPLES / BLOCK).map(of_block).collect()
}

fn sorted(mut ids: Vec<u32>) -> Vec<u32> {
    ids.sort_unstable();
    ids
}

#[test]
fn equal_scores_and_residents_give_one_plan() {
    for (&sampler, &order) in
        Sampler::ALL.iter().flat_map(|sampler| Order::ALL.iter().map(move |order| (sampler, order)))
    {
        // Epochs are whole, so that blocks of positions are those of the plan.
        let plan = PlanSpec { sampler, order, rep: 1.5, whole_from: 1, ..PlanSpec::default() };
        let state = trained(plan);
        let mut plans = Vec::new();
        for world_size in WORLD_SIZES {
            let mut replay = replay(&JobSpec { plan, ..spec(BATCH_SIZE, world_size) }, u64::from(world_size));
            for rank in 0..world_size {
                replay.step(Event::LoadState { strata: 0, session: rank, bytes: state.clone() });
            }
            // The last block of epoch 1 makes residents, the same ones for all.
            for rank in 0..world_size {
                replay.start(rank, 1, (SAMPLES - BLOCK) / BATCH_SIZE / world_size);
            }
            replay.run();
            let resident = replay.core().stats(0).resident;
            assert!((100..=u64::from(BLOCK)).contains(&resident), "{sampler} {order}: {resident} residents");

            let taken = replay.epoch(2);
            let ids = plan_ids(&replay.save(3, 0));
            let planned: Vec<_> = ids.chunks(BLOCK as usize).map(|block| sorted(block.to_vec())).collect();
            assert_eq!(blocks(&taken, world_size), planned, "{sampler} {order}, {world_size} ranks");
            plans.push(ids);
        }
        assert_eq!(plans[0].len(), SAMPLES as usize);
        let is_drawn = sampler != Sampler::Sequential;
        assert_eq!(
            plans[0] != plan_ids(&state),
            is_drawn,
            "{sampler} {order}: another epoch is another plan"
        );
        assert!(plans.iter().all(|ids| *ids == plans[0]), "{sampler} {order}");
    }
}
