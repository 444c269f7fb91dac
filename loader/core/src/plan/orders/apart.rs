//! Moves the repeats of a sample apart: no sample within a distance of itself while that is easy,
//! and not twice in one batch while avoidable. Batches here are as long as that distance.
//!
//! A walk from left to right swaps a repeat that comes too early with a random later position, at
//! the end of the epoch with an earlier one. The tries are bounded. They can fail (small datasets,
//! large batches, few samples with very many repeats) and leave a sample twice in one batch. Then
//! the draws are dealt over the batches instead: sample by sample in random order, one to each
//! batch in turn. A sample with no more draws than there are full batches is then in no batch
//! twice. The first batch is random, so that no batch is richer in repeats than another.

use shade_formats::SampleId;

use crate::number::to_u32;
use crate::plan::random::Random;

/// Random later positions tried for a repeat that comes too early.
const LATER_TRIES: u32 = 16;
/// Random earlier positions tried after those.
const EARLIER_TRIES: u32 = 64;
/// Limit of the positions that tries at earlier positions may look at, per position of the plan.
const LOOKS_PER_POSITION: usize = 64;

/// Moves the repeats in a part of the epoch apart. `start` is the position of its first draw: it
/// decides where batches begin. `samples` are those of the dataset.
pub(super) fn move_apart(
    part: &mut [SampleId],
    start: usize,
    distance: usize,
    samples: usize,
    random: &mut Random,
) {
    let mut spread = Spread::new(part, distance, samples);
    let mut twice_in_a_batch = false;
    for position in 0..spread.part.len() {
        twice_in_a_batch |= !spread.settle(position, start, random);
    }
    if twice_in_a_batch {
        deal(part, start, distance, random);
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
        self.last[self.part[position].index()] = to_u32(position + 1);
        apart
    }

    /// Whether the last settled position of `id` is less than the distance before `position`.
    fn is_close(&self, id: SampleId, position: usize) -> bool {
        let last = self.last[id.index()] as usize;
        // No branch between the two: whether a sample came before is as good as a coin, and is
        // asked at each position.
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
        for _ in 0..EARLIER_TRIES.min(to_u32(position)) {
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

/// Deals the draws over the batches of the part; see the top of this file. Then shuffles each
/// batch.
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
