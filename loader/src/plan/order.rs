//! Stage 3: the order of delivery.
//!
//! `shuffled`: one seeded shuffle. `hits_first`: the draws of resident samples, then the others, each shuffled. `spaced` and
//! `opportunistic` have files of their own. Then repeats are moved apart: no sample within `batch_size` positions of
//! itself while that is easy, and not twice in one batch of `batch_size` positions while avoidable.
//!
//! Moving apart walks from left to right and swaps a repeat that comes too early with a random later position, at the
//! end of the epoch with an earlier one. The tries are bounded. Where they fail (small datasets, large batches, few
//! samples with very many repeats) and leave a sample twice in one batch, the draws are dealt over the batches instead:
//! sample by sample in random order, one to each batch in turn. A sample with no more draws than there are full batches
//! is then in no batch twice. Which batch is first is left to chance, so that no batch is richer in repeats than another.

#![expect(clippy::indexing_slicing, reason = "positions are below the plan's length, ids below the table's")]

use shade_formats::SampleId;
use shade_formats::control::Order;

use super::opportunistic::opportunistic;
use super::random::{Random, Stage};
use super::spaced::spaced;

/// Random later positions tried for a repeat that comes too early.
const LATER_TRIES: u32 = 16;
/// Random earlier positions tried after those.
const EARLIER_TRIES: u32 = 64;
/// Draws of a sample that are listed in one go; few samples have more.
const AT_ONCE: usize = 4;
/// Limit of the positions that tries at earlier positions may look at, per position of the plan.
const LOOKS_PER_POSITION: usize = 64;

/// Lists each sample as often as `counts` says, in the order asked for. `resident` is by sample, for the orders that ask
/// for it.
pub(super) fn in_order(
    counts: Vec<u32>,
    order: Order,
    resident: &[bool],
    batch_size: usize,
    random: impl Fn(Stage) -> Random,
) -> Vec<SampleId> {
    let mut shuffle = random(Stage::Shuffle);
    let len: usize = counts.iter().map(|&count| count as usize).sum();
    let mut ids = Vec::with_capacity(len + AT_ONCE);
    let mut residents_end = 0;
    match order {
        Order::Shuffled => {
            list(&mut ids, &counts, |_| true);
            shuffle.shuffle(&mut ids);
        }
        Order::HitsFirst => {
            list(&mut ids, &counts, |sample| resident[sample]);
            residents_end = ids.len();
            list(&mut ids, &counts, |sample| !resident[sample]);
            let (residents, others) = ids.split_at_mut(residents_end);
            shuffle.shuffle(residents);
            shuffle.shuffle(others);
        }
        Order::Spaced => ids = spaced(&counts, resident, batch_size, &mut random(Stage::Space)),
        Order::Opportunistic => ids = opportunistic(&counts, resident, &mut random(Stage::Opportune)),
    }
    let repeats = counts.iter().any(|&count| count > 1);
    let samples = counts.len();
    // What moves draws apart takes as much memory again.
    drop(counts);
    if repeats {
        let mut spread = random(Stage::Spread);
        let (residents, others) = ids.split_at_mut(residents_end);
        for (start, part) in [(0, residents), (residents_end, others)] {
            move_apart(part, start, batch_size, samples, &mut spread);
        }
    }
    ids
}

/// Appends the draws of the chosen samples, by sample. Counts follow no pattern, so a loop over each would be mispredicted as
/// often as not: instead some draws are appended whatever the count, and those too many are taken off again.
fn list(ids: &mut Vec<SampleId>, counts: &[u32], chosen: impl Fn(usize) -> bool) {
    for ((sample, &count), id) in counts.iter().enumerate().zip((0..).map(SampleId)) {
        let count = if chosen(sample) { count as usize } else { 0 };
        let end = ids.len() + count;
        ids.extend_from_slice(&[id; AT_ONCE]);
        if count > AT_ONCE {
            ids.extend(std::iter::repeat_n(id, count - AT_ONCE));
        }
        ids.truncate(end);
    }
}

/// `start` is the position of the part's first draw in the epoch: it decides where batches begin.
fn move_apart(part: &mut [SampleId], start: usize, batch_size: usize, samples: usize, random: &mut Random) {
    let mut spread = Spread::new(part, batch_size, samples);
    let mut twice_in_a_batch = false;
    for position in 0..spread.part.len() {
        twice_in_a_batch |= !spread.settle(position, start, random);
    }
    if twice_in_a_batch {
        deal(part, start, batch_size, random);
    }
}

/// Moves repeats apart; positions left of the current one are settled.
struct Spread<'plan> {
    part: &'plan mut [SampleId],
    distance: usize,
    /// By sample: 1 + the last settled position that holds it, 0 for none.
    last: Vec<u32>,
    looks_left: usize,
}

impl<'plan> Spread<'plan> {
    fn new(part: &'plan mut [SampleId], distance: usize, samples: usize) -> Self {
        let looks_left = part.len().saturating_mul(LOOKS_PER_POSITION);
        Self { part, distance, last: vec![0; samples], looks_left }
    }

    /// Settles `position`; false if its sample then is twice in one batch.
    fn settle(&mut self, position: usize, start: usize, random: &mut Random) -> bool {
        let mut apart = true;
        if self.is_close(self.part[position], position) {
            match self.later(position, random).or_else(|| self.earlier(position, random)) {
                Some(other) => self.part.swap(position, other),
                None => {
                    let before = self.last[self.part[position].index()] as usize - 1;
                    apart = (start + before) / self.distance != (start + position) / self.distance;
                }
            }
        }
        // Positions of an epoch fit u32, as sample ids do.
        self.last[self.part[position].index()] = u32::try_from(position + 1).unwrap_or(u32::MAX);
        apart
    }

    /// Whether the last settled position of `id` is less than the distance before `position`.
    fn is_close(&self, id: SampleId, position: usize) -> bool {
        let last = self.last[id.index()] as usize;
        // No branch between the two: whether a sample came before is as good as a coin, and is asked at each position.
        (last > 0) & (position + 1 - last < self.distance)
    }

    /// A later position whose sample may stand at `position`.
    fn later(&self, position: usize, random: &mut Random) -> Option<usize> {
        let rest = self.part.len() - position - 1;
        if rest == 0 {
            return None;
        }
        (0..LATER_TRIES)
            .map(|_| position + 1 + random.position(rest))
            .find(|&other| !self.is_close(self.part[other], position))
    }

    /// An earlier position that may change places with `position`.
    fn earlier(&mut self, position: usize, random: &mut Random) -> Option<usize> {
        for _ in 0..EARLIER_TRIES.min(u32::try_from(position).unwrap_or(u32::MAX)) {
            let other = random.position(position);
            let last_of_other = self.last[self.part[other].index()] as usize;
            // Its own place is given up, so only another occurrence near `position` is in the way.
            if last_of_other != other + 1 && self.is_close(self.part[other], position) {
                continue;
            }
            let from = (other + 1).saturating_sub(self.distance);
            let to = (other + self.distance).min(self.part.len());
            self.looks_left = self.looks_left.checked_sub(to - from)?;
            if !self.part[from..to].contains(&self.part[position]) {
                return Some(other);
            }
        }
        None
    }
}

/// Deals the draws over the batches of the part; see the top of this file. Then shuffles each batch.
fn deal(part: &mut [SampleId], start: usize, batch_size: usize, random: &mut Random) {
    let mut draws = part.to_vec();
    draws.sort_unstable();
    let mut samples: Vec<&[SampleId]> = draws.chunk_by(|left, right| left == right).collect();
    random.shuffle(&mut samples);
    let end = start + part.len();
    let batches: Vec<(usize, usize)> = (start / batch_size..end.div_ceil(batch_size))
        .map(|batch| ((batch * batch_size).max(start) - start, ((batch + 1) * batch_size).min(end) - start))
        .collect();
    let turn = random.position(batches.len());
    let (before, after) = batches.split_at(turn);
    let places = (0..batch_size).flat_map(|row| {
        after.iter().chain(before).filter(move |(from, to)| from + row < *to).map(move |(from, _)| from + row)
    });
    for (place, &id) in places.zip(samples.into_iter().flatten()) {
        part[place] = id;
    }
    for &(from, to) in &batches {
        random.shuffle(&mut part[from..to]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(
        counts: &[u32],
        order: Order,
        resident: &[bool],
        batch_size: usize,
        seed: u64,
    ) -> Vec<SampleId> {
        let random = |stage| Random::new(seed, 1, stage);
        let ids = in_order(counts.to_vec(), order, resident, batch_size, random);
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
