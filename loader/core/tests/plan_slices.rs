//! How a plan is shared out: over batches, over ranks, and what becomes of the tail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use shade_core::plan::{Part, Plan, PlanSummary, Slices, SlicesError, Slot};
use shade_formats::SampleId;
use shade_job::Tail;

const TAILS: [Tail; 3] = [Tail::Drop, Tail::Pad, Tail::Even];

fn plan_of(ids: impl IntoIterator<Item = u32>) -> Plan {
    let ids: Vec<SampleId> = ids.into_iter().map(SampleId).collect();
    let weights = vec![1.0; ids.len()];
    Plan { epoch: 0, part: Part::WHOLE, ids, weights, summary: PlanSummary::default() }
}

fn len(plan: &Plan) -> u32 {
    u32::try_from(plan.ids.len()).unwrap()
}

/// `[batch][rank]`.
fn all_batches(slices: &Slices, world_size: u32, plan: &Plan) -> Vec<Vec<Vec<Slot>>> {
    let batch = |k| (0..world_size).map(|rank| slices.batch(k, rank, plan)).collect();
    (0..slices.batches_per_epoch()).map(batch).collect()
}

fn positions(slots: &[Slot]) -> Vec<u32> {
    slots.iter().map(|slot| slot.position).collect()
}

#[test]
fn ranks_take_every_wth_position() {
    let plan = plan_of(0..12);
    let slices = Slices::new(12, 2, 3, Tail::Drop).unwrap();
    let expected = [[[0, 3], [1, 4], [2, 5]], [[6, 9], [7, 10], [8, 11]]];
    let got: Vec<Vec<Vec<u32>>> = all_batches(&slices, 3, &plan)
        .iter()
        .map(|ranks| ranks.iter().map(|slots| positions(slots)).collect())
        .collect();
    assert_eq!(got, expected.map(|ranks| ranks.map(Vec::from).to_vec()).to_vec());
    assert_eq!(slices.batch(2, 0, &plan), []);
    assert_eq!(slices.batch(0, 3, &plan), []);
}

#[test]
fn tails_by_hand() {
    let plan = plan_of(0..14);
    let of = |tail| {
        let slices = Slices::new(14, 2, 3, tail).unwrap();
        let batches = all_batches(&slices, 3, &plan);
        batches
            .iter()
            .map(|ranks| ranks.iter().map(|slots| positions(slots)).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(Tail::Drop).len(), 2);
    assert_eq!(of(Tail::Pad)[2], [[12, 1], [13, 2], [0, 3]]);
    // 6 + 2 would leave a rank without a row: 3 + 5.
    assert_eq!(
        of(Tail::Even)[1..],
        [vec![vec![6], vec![7], vec![8]], vec![vec![9, 12], vec![10, 13], vec![11]]]
    );
}

#[test]
fn a_sample_that_a_rank_would_get_twice_is_dealt_to_two_ranks() {
    // Positions 0 and 2 hold the same sample and both belong to rank 0.
    let plan = plan_of([7, 1, 7, 2, 3, 4]);
    let slices = Slices::new(6, 2, 2, Tail::Even).unwrap();
    // Sorted by sample: positions 1, 3, 0, 2; dealt: 1 and 0, 3 and 2; each in the plan's order.
    assert_eq!(positions(&slices.batch(0, 0, &plan)), [0, 1]);
    assert_eq!(positions(&slices.batch(0, 1, &plan)), [2, 3]);
    assert_eq!(positions(&slices.batch(1, 0, &plan)), [4]);
}

#[test]
fn an_epoch_without_a_batch_is_refused() {
    for (plan_len, batch_size, world_size) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
        let zero = SlicesError::Zero { plan_len, batch_size, world_size };
        for tail in TAILS {
            assert_eq!(Slices::new(plan_len, batch_size, world_size, tail), Err(zero.clone()));
        }
    }
    let nothing = SlicesError::NothingLeft { plan_len: 5, global_batch: 6 };
    assert_eq!(Slices::new(5, 2, 3, Tail::Drop), Err(nothing));
    for tail in [Tail::Pad, Tail::Even] {
        assert_eq!(Slices::new(5, 2, 3, tail).unwrap().batches_per_epoch(), 1);
    }
    let largest = Slices::new(u32::MAX - 1, 32_768, 4096, Tail::Pad).unwrap();
    assert_eq!(largest.batches_per_epoch(), 32);
    assert_eq!(Slices::new(u32::MAX - 1, 1, 1, Tail::Even).unwrap().batches_per_epoch(), u32::MAX - 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_position_is_delivered_as_the_tail_says(
        ids in prop::collection::vec(0..60u32, 1..200),
        batch_size in 1..9u32,
        world_size in 1..7u32,
        tail in prop::sample::select(&TAILS[..]),
    ) {
        let plan = plan_of(ids);
        let global = batch_size * world_size;
        let Ok(slices) = Slices::new(len(&plan), batch_size, world_size, tail) else {
            prop_assert!(tail == Tail::Drop && len(&plan) < global);
            return Ok(());
        };
        let batches = all_batches(&slices, world_size, &plan);
        let slots: Vec<Slot> = batches.iter().flatten().flatten().copied().collect();
        let mut real: Vec<u32> = slots.iter().filter(|slot| !slot.padding).map(|slot| slot.position).collect();
        let mut padding: Vec<u32> = slots.iter().filter(|slot| slot.padding).map(|slot| slot.position).collect();
        real.sort_unstable();
        padding.sort_unstable();
        let remainder = len(&plan) % global;
        let delivered = if tail == Tail::Drop { len(&plan) - remainder } else { len(&plan) };
        prop_assert_eq!(real, (0..delivered).collect::<Vec<_>>());
        prop_assert_eq!(slices.end(), delivered);
        let padded = match tail {
            Tail::Pad if remainder > 0 => global - remainder,
            Tail::Even if remainder > 0 && remainder < world_size && (batch_size == 1 || len(&plan) < global) =>
                world_size - remainder,
            _ => 0,
        };
        let mut expected: Vec<u32> = (0..padded).map(|more| more % len(&plan)).collect();
        expected.sort_unstable();
        prop_assert_eq!(padding, expected);
        for (k, ranks) in batches.iter().enumerate() {
            let sizes: Vec<u32> = ranks.iter().map(|rows| u32::try_from(rows.len()).unwrap()).collect();
            let full = tail != Tail::Even || remainder == 0 || k + 2 < batches.len();
            prop_assert!(!full || sizes.iter().all(|&size| size == batch_size));
            // In an uneven batch the first ranks have one row more.
            prop_assert!(sizes.is_sorted_by(|left, right| left >= right));
            prop_assert!(sizes[0] <= batch_size && sizes[0] - sizes[sizes.len() - 1] <= 1);
            prop_assert!(sizes[sizes.len() - 1] > 0);
        }
    }

    #[test]
    fn no_rank_holds_a_sample_more_often_than_it_must(
        ids in prop::collection::vec(0..40u32, 1..200),
        batch_size in 1..9u32,
        world_size in 1..7u32,
        tail in prop::sample::select(&TAILS[..]),
    ) {
        let plan = plan_of(ids);
        let Ok(slices) = Slices::new(len(&plan), batch_size, world_size, tail) else { return Ok(()) };
        let count = |rows: &[Slot], id| rows.iter().filter(|slot| plan.ids[slot.position as usize] == id).count();
        for ranks in all_batches(&slices, world_size, &plan) {
            let global: Vec<Slot> = ranks.iter().flatten().copied().collect();
            for slot in &global {
                let id = plan.ids[slot.position as usize];
                let unavoidable = count(&global, id).div_ceil(world_size as usize);
                prop_assert!(ranks.iter().all(|rows| count(rows, id) <= unavoidable));
            }
        }
    }

    /// B·W samples of one rank are the same as B of each of W ranks.
    #[test]
    fn global_batches_do_not_depend_on_the_number_of_ranks(
        ids in prop::collection::vec(0..60u32, 30..200),
        batch_size in 1..4u32,
        tail in prop::sample::select(&[Tail::Drop, Tail::Pad][..]),
    ) {
        let plan = plan_of(ids);
        let global = |world_size: u32| -> Vec<Vec<Slot>> {
            let slices = Slices::new(len(&plan), batch_size * (30 / world_size) , world_size, tail);
            let Ok(slices) = slices else { return Vec::new() };
            let sorted = |ranks: &Vec<Vec<Slot>>| {
                let mut slots: Vec<Slot> = ranks.iter().flatten().copied().collect();
                slots.sort_unstable();
                slots
            };
            all_batches(&slices, world_size, &plan).iter().map(sorted).collect()
        };
        for world_size in [2, 3, 5] {
            prop_assert_eq!(global(1), global(world_size));
        }
    }
}
