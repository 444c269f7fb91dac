//! The plan's random numbers: ChaCha8 keyed by (seed, epoch, stage), bounded by Lemire's method.
//!
//! A plan must be the same when another build draws it, on another machine. `rand_chacha` promises
//! its stream. `rand`'s ranges and shuffles promise nothing, so they are not used. The key is seed
//! u64, epoch u32, stage u32 (little-endian), then the 16 bytes of `DOMAIN`; nonce and counter
//! start at 0. Each number is one `next_u64`. A stage has its own stream: a stage that draws more
//! numbers does not shift the others. The stratum is ChaCha's stream number (its nonce), so strata
//! can be drawn in any order.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Change its last byte when the plan of given inputs is meant to change.
const DOMAIN: [u8; 16] = *b"shade-load plan1";

/// Numbers that a shuffle draws before it uses them; more gain nothing.
const SHUFFLE_AT_ONCE: usize = 64;
/// A longer slice is dealt over heaps first: sample ids beyond the caches that are a core's own.
const DEAL_MIN: usize = 1 << 22;
/// Heaps that a long slice is dealt over, one for each value of a byte.
const HEAPS: usize = 256;

/// The purpose of the numbers. Its own number is part of the key and never changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Draw = 1,
    Replicate = 2,
    Cover = 3,
    Shuffle = 4,
    Spread = 5,
    Space = 6,
    Opportune = 7,
    Pace = 8,
    /// `echo`: its "epoch" is the number of the permutation.
    Rotate = 9,
    /// `weighted`, `balanced`: the order in which fractions are rounded.
    Round = 10,
    /// The candidates of a group's draws.
    Couple = 11,
    /// A group's `cover`: which sample takes which place.
    CoverPlace = 12,
    /// Which seats change their strata when an epoch begins.
    Mix = 13,
    /// In which order the parts of a mixture come within a batch.
    Blend = 14,
    /// In which order batches of several buckets come.
    Bucket = 15,
}

/// One stage's stream of random numbers.
pub(super) struct Random(ChaCha8Rng);

impl Random {
    /// The stream of the dataset's only stratum.
    #[cfg(test)]
    pub(super) fn new(seed: u64, epoch: u32, stage: Stage) -> Self {
        Self::of_stratum(seed, epoch, stage, 0)
    }

    pub(super) fn of_stratum(seed: u64, epoch: u32, stage: Stage, stratum: u32) -> Self {
        let parts =
            seed.to_le_bytes().into_iter().chain(epoch.to_le_bytes()).chain((stage as u32).to_le_bytes());
        let mut key = [0; 32];
        for (byte, part) in key.iter_mut().zip(parts.chain(DOMAIN)) {
            *byte = part;
        }
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(stratum.into());
        Self(random)
    }

    /// A number in `0..bound`, each equally likely; 0 where `bound` is 0.
    ///
    /// Lemire, "Fast random integer generation in an interval" (2019): the high half of a 64 × 64
    /// bit product, rejecting the few low halves that would favour some results.
    // A shuffle takes twice as long where it is a call.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let mut product = u128::from(self.0.next_u64()) * u128::from(bound);
        if low(product) < bound {
            // 2⁶⁴ mod bound. The bound is not 0 here, for nothing is below 0.
            let rejected = bound.wrapping_neg() % bound;
            while low(product) < rejected {
                product = u128::from(self.0.next_u64()) * u128::from(bound);
            }
        }
        low(product >> 64)
    }

    /// A number in `0..bound` and a fraction below 2⁶⁴, both from one draw. How likely numbers are
    /// differs by bound / 2⁶⁴ at most.
    pub(super) fn with_fraction(&mut self, bound: u64) -> (u64, u64) {
        let product = u128::from(self.0.next_u64()) * u128::from(bound);
        (low(product >> 64), low(product))
    }

    /// A position in a slice of `len`.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below a usize")]
    pub(super) fn position(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Every order is equally likely.
    ///
    /// A long slice is dealt over heaps at random, and then each heap is shuffled (Rao, 1961;
    /// Sandelius, 1962). So nearly all of its memory is touched in order or within a heap, and a
    /// swap does not wait for main memory.
    pub(super) fn shuffle<T: Copy>(&mut self, slice: &mut [T]) {
        if slice.len() <= DEAL_MIN {
            return self.swap_about(slice);
        }
        let heaps = self.bytes(slice.len());
        let mut sizes = [0; HEAPS];
        heaps.iter().for_each(|&heap| sizes[usize::from(heap)] += 1);
        let mut ends = [0; HEAPS];
        let mut start = 0;
        for (end, size) in ends.iter_mut().zip(sizes) {
            *end = start;
            start += size;
        }
        let all = slice.to_vec();
        for (value, heap) in all.into_iter().zip(heaps) {
            let end = &mut ends[usize::from(heap)];
            slice[*end] = value;
            *end += 1;
        }
        let mut rest = slice;
        for size in sizes {
            let (heap, others) = rest.split_at_mut(size);
            self.swap_about(heap);
            rest = others;
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + size_of::<u64>());
        while bytes.len() < len {
            bytes.extend_from_slice(&self.0.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// Fisher-Yates, from the end. Some numbers are drawn, then used: with nothing in between,
    /// swaps wait for memory side by side rather than one after the other.
    fn swap_about<T>(&mut self, slice: &mut [T]) {
        let mut others = [0; SHUFFLE_AT_ONCE];
        let mut len = slice.len();
        while len > 1 {
            let swaps = SHUFFLE_AT_ONCE.min(len - 1);
            for (last, other) in (len - swaps..len).rev().zip(&mut others) {
                *other = self.position(last + 1);
            }
            for (last, &other) in (len - swaps..len).rev().zip(&others) {
                slice.swap(last, other);
            }
            len -= swaps;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "taking the low half is the point")]
fn low(product: u128) -> u64 {
    product as u64
}

/// Takes exactly `wanted` of `left` things, each set equally likely, while walking past them once
/// (selection sampling).
pub(super) struct Select {
    wanted: u64,
    left: u64,
}

impl Select {
    pub(super) fn new(wanted: u64, left: u64) -> Self {
        Self { wanted, left }
    }

    /// How many of the next `count` things are taken.
    pub(super) fn next(&mut self, count: u32, random: &mut Random) -> u32 {
        let mut taken = 0;
        for _ in 0..count {
            if self.wanted == 0 {
                return taken;
            }
            if self.wanted >= self.left || random.below(self.left) < self.wanted {
                self.wanted -= 1;
                taken += 1;
            }
            self.left = self.left.saturating_sub(1);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_what_it_was() {
        // Computed once by a separate ChaCha8 in another language.
        let mut random = Random::new(1, 2, Stage::Draw);
        let drawn: Vec<u64> = [10, 1000, 1 << 40, u64::MAX].map(|bound| random.below(bound)).into();
        assert_eq!(drawn, [5, 338, 961_647_127, 1_718_471_686_120_709_749]);
    }

    #[test]
    fn seed_epoch_and_stage_each_change_the_stream() {
        let first = |seed, epoch, stage| Random::new(seed, epoch, stage).below(u64::MAX);
        let base = first(1, 1, Stage::Draw);
        assert_ne!(base, first(2, 1, Stage::Draw));
        assert_ne!(base, first(1, 2, Stage::Draw));
        assert_ne!(base, first(1, 1, Stage::Spread));
        assert_eq!(base, first(1, 1, Stage::Draw));
        let of_stratum = |stratum| Random::of_stratum(1, 1, Stage::Draw, stratum).below(u64::MAX);
        assert_eq!(base, of_stratum(0));
        assert_ne!(base, of_stratum(1));
    }

    /// Whatever heap they are dealt to, all elements stay, and each place is as likely.
    #[test]
    fn a_long_slice_is_shuffled_evenly() {
        let len = DEAL_MIN + 1001;
        let mut shuffled: Vec<u32> = (0..).take(len).collect();
        Random::new(7, 0, Stage::Shuffle).shuffle(&mut shuffled);
        // A tenth of the places against a tenth of the elements: 1/100 of all in each pair.
        let mut counts = [[0usize; 10]; 10];
        for (place, &element) in shuffled.iter().enumerate() {
            counts[place * 10 / len][element as usize * 10 / len] += 1;
        }
        // Standard deviation about 200: five of them.
        assert!(counts.iter().flatten().all(|count| count.abs_diff(len / 100) < 1000), "{counts:?}");
        let neighbours = shuffled.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(neighbours < 15, "{neighbours} next to their neighbours, where chance has 2");
        shuffled.sort_unstable();
        assert!(shuffled.into_iter().eq((0..).take(len)));
    }

    #[test]
    fn below_is_even_and_in_range() {
        let mut random = Random::new(3, 0, Stage::Draw);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.position(7)] += 1;
        }
        // Standard deviation about 93: five of them.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 465), "{counts:?}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
        // A bound just above 2⁶³ rejects almost half of the products.
        let bound = (1 << 63) + 1;
        assert!((0..1000).all(|_| random.below(bound) < bound));
    }

    #[test]
    fn select_takes_exactly_as_many_as_wanted() {
        for wanted in 0..=20 {
            let mut random = Random::new(wanted, 0, Stage::Cover);
            let mut select = Select::new(wanted, 20);
            let taken: u32 = [3, 0, 7, 10].iter().map(|&count| select.next(count, &mut random)).sum();
            assert_eq!(u64::from(taken), wanted);
        }
    }
}
