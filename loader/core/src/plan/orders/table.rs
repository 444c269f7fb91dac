//! The table of orders.

use shade_formats::SampleId;
use shade_job::Order;

use super::apart::move_apart;
use super::hits_first::hits_first;
use super::opportunistic::opportunistic;
use super::ordered::Ordered;
use super::shuffled::shuffled;
use super::spaced::{Gaps, spaced};
use crate::plan::inputs::Inputs;
use crate::plan::random::Stage;

/// Lists each sample as often as the counts say.
type List = fn(&[u32], &Inputs<'_>) -> Ordered;

fn row(order: Order) -> List {
    match order {
        Order::Shuffled => shuffled,
        Order::HitsFirst => hits_first,
        Order::Spaced => spaced,
        Order::Opportunistic => opportunistic,
    }
}

/// Lists each sample as often as `counts` says, in this order, with repeats apart.
pub(in crate::plan) fn in_order(counts: Vec<u32>, order: Order, inputs: &Inputs<'_>) -> Vec<SampleId> {
    let ordered = row(order)(&counts, inputs);
    let repeats = counts.iter().any(|&count| count > 1);
    // What moves draws apart takes as much memory again.
    drop(counts);
    if repeats { apart(ordered, order, inputs) } else { ordered.ids }
}

/// Deliveries in the order of `sequence`, with repeats apart.
pub(in crate::plan) fn as_drawn(sequence: Vec<SampleId>, inputs: &Inputs<'_>) -> Vec<SampleId> {
    apart(sequence.into(), Order::Shuffled, inputs)
}

fn apart(Ordered { mut ids, split }: Ordered, order: Order, inputs: &Inputs<'_>) -> Vec<SampleId> {
    let mut random = inputs.random(Stage::Spread);
    let distance = match order {
        // Further apart would be against the order.
        Order::Spaced => inputs.distance.min(inputs.batch_size * Gaps::of(inputs).min),
        _ => inputs.distance,
    };
    let (first, second) = ids.split_at_mut(split);
    for (start, part) in [(0, first), (split, second)] {
        move_apart(part, start, distance, inputs.samples() as usize, &mut random);
    }
    ids
}

#[cfg(test)]
mod tests {
    use shade_job::PlanSpec;

    use super::*;
    use crate::importance::Importance;
    use crate::plan::inputs::EpochInputs;

    fn ordered(
        counts: &[u32],
        order: Order,
        resident: &[bool],
        batch_size: usize,
        seed: u64,
    ) -> Vec<SampleId> {
        let spec = PlanSpec { order, seed, ..PlanSpec::default() };
        let importance = Importance::new(u32::try_from(counts.len()).unwrap());
        let is_resident = |id: SampleId| resident[id.index()];
        let batch_size = u32::try_from(batch_size).unwrap();
        let (facts, planned) = ((&importance).into(), Vec::new());
        let (is_resident, rep_now) = (&is_resident, 1.0);
        let all = EpochInputs { spec: &spec, epoch: 1, batch_size, facts, rep_now, is_resident, planned };
        let ids = in_order(counts.to_vec(), order, &Inputs::new(&all, 0));
        let mut delivered = vec![0; counts.len()];
        for id in &ids {
            delivered[id.index()] += 1;
        }
        assert_eq!(delivered, counts, "an order changes no multiplicity");
        ids
    }

    fn twice_in_a_batch(ids: &[SampleId], batch_size: usize) -> usize {
        ids.chunks(batch_size)
            .map(|batch| {
                let mut distinct = batch.to_vec();
                distinct.sort_unstable();
                distinct.dedup();
                batch.len() - distinct.len()
            })
            .sum()
    }

    #[test]
    fn repeats_are_a_batch_apart_where_that_is_easy() {
        let counts: Vec<u32> = (0..2000).map(|sample| [0, 1, 1, 2, 0, 3, 0, 1][sample % 8]).collect();
        for seed in 0..20 {
            let ids = ordered(&counts, Order::Shuffled, &[], 32, seed);
            let mut last = vec![None; counts.len()];
            for (position, id) in ids.iter().enumerate() {
                if let Some(before) = last[id.index()].replace(position) {
                    assert!(position - before >= 32, "seed {seed}: {id} at {before} and {position}");
                }
            }
        }
    }

    #[test]
    fn tight_plans_are_dealt_so_that_no_batch_holds_a_sample_twice() {
        // Three batches of 32 and one of 4; a third of the samples three times.
        let counts: Vec<u32> =
            (0..100).map(|sample| if sample < 33 { 3 } else { u32::from(sample == 99) }).collect();
        for seed in 0..50 {
            assert_eq!(
                twice_in_a_batch(&ordered(&counts, Order::Shuffled, &[], 32, seed), 32),
                0,
                "seed {seed}"
            );
        }
    }

    #[test]
    fn what_cannot_be_avoided_is_spread_evenly() {
        // Eight batches of 8; one sample 40 times: five in each.
        let mut counts = vec![1; 25];
        counts[3] = 40;
        let ids = ordered(&counts, Order::Shuffled, &[], 8, 1);
        let heavy: Vec<usize> =
            ids.chunks(8).map(|batch| batch.iter().filter(|id| id.0 == 3).count()).collect();
        assert_eq!(heavy, [5; 8]);
    }

    #[test]
    fn hits_first_puts_residents_first_and_keeps_batches_apart() {
        let counts: Vec<u32> = (0..300).map(|sample| u32::from(sample % 3 == 0) * 3).collect();
        let resident: Vec<bool> = (0..300).map(|sample| sample % 2 == 0).collect();
        for seed in 0..20 {
            let ids = ordered(&counts, Order::HitsFirst, &resident, 32, seed);
            let split = ids.iter().position(|id| !resident[id.index()]).unwrap();
            assert!(ids[split..].iter().all(|id| !resident[id.index()]));
            assert_eq!(split, 150);
            assert_eq!(twice_in_a_batch(&ids, 32), 0, "seed {seed}");
        }
    }

    #[test]
    fn degenerate_plans_end() {
        assert_eq!(ordered(&[], Order::Shuffled, &[], 4, 1), []);
        assert_eq!(ordered(&[1], Order::HitsFirst, &[true], 4, 1), [SampleId(0)]);
        assert_eq!(ordered(&[3], Order::HitsFirst, &[false], 1, 1), [SampleId(0); 3]);
        assert_eq!(ordered(&[100_000, 2], Order::Shuffled, &[], 32_768, 1).len(), 100_002);
    }
}
