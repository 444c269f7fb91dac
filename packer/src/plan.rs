//! Decides where each sample goes before a byte is read: order on disk, then cuts into shards.
//!
//! Both follow from the seed and the source sizes alone, so a dataset's bytes depend neither on
//! threads nor on time.

use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use shade_formats::SampleId;
use shade_formats::shard::END_OF_ARCHIVE;

/// What the file that remembers a shard's upload to a bucket has behind the shard's name.
pub(crate) const UPLOAD: &str = ".upload";
/// The plan in the folder of unfinished work, for parts that are packed by themselves.
pub(crate) const PLAN_FILE: &str = "dataset.plan";

/// Most samples in a shard: what is known of a shard stays in memory until it is complete.
const SHARD_SAMPLES_MAX: usize = 1 << 18;

/// All samples in their order on disk, cut into shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackPlan {
    order: Vec<SampleId>,
    /// One range of `order` per shard; those of other parts are empty.
    shards: Vec<Range<usize>>,
}

impl PackPlan {
    /// Plans shards for `samples` samples, each with `member_bytes` in a shard: headers, contents
    /// as in the source, padding. `shuffle` is the seed of the order on disk. A shard is cut before
    /// it would exceed `shard_bytes` or 2^18 samples; a larger sample gets its own shard.
    #[must_use]
    pub fn new(
        samples: u32,
        member_bytes: impl Fn(SampleId) -> u64,
        shuffle: Option<u64>,
        shard_bytes: u64,
    ) -> Self {
        let mut order: Vec<SampleId> = (0..samples).map(SampleId).collect();
        if let Some(seed) = shuffle {
            self::shuffle(&mut order, seed);
        }
        let mut shards = Vec::new();
        let mut start = 0;
        let empty = END_OF_ARCHIVE.len() as u64;
        let mut bytes = empty;
        for (at, &sample) in order.iter().enumerate() {
            let member = member_bytes(sample);
            let full = bytes.saturating_add(member) > shard_bytes || at - start == SHARD_SAMPLES_MAX;
            if at > start && full {
                shards.push(start..at);
                (start, bytes) = (at, empty);
            }
            bytes = bytes.saturating_add(member);
        }
        if start < order.len() {
            shards.push(start..order.len());
        }
        Self { order, shards }
    }

    /// The plan whose shards have these samples.
    pub(crate) fn of_shards<'a>(samples: impl IntoIterator<Item = &'a [SampleId]>) -> Self {
        let mut plan = Self { order: Vec::new(), shards: Vec::new() };
        for shard in samples {
            let start = plan.order.len();
            plan.order.extend_from_slice(shard);
            plan.shards.push(start..plan.order.len());
        }
        plan
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The samples of a shard, in their order on disk; empty from
    /// [`shard_count`](Self::shard_count) on.
    pub(crate) fn shard(&self, number: usize) -> &[SampleId] {
        self.shards.get(number).and_then(|range| self.order.get(range.clone())).unwrap_or_default()
    }
}

pub(crate) fn shard_name(number: u32) -> String {
    format!("shard-{number:06}.tar")
}

/// The number of the shard that has this name.
pub(crate) fn shard_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("shard-")?.strip_suffix(".tar")?.parse().ok()?;
    (shard_name(number) == name).then_some(number)
}

/// Fisher-Yates over ChaCha8, written out because `rand`'s shuffles may change between versions,
/// and an order on disk must not. A position is the upper half of a 64 x 64-bit product: its bias
/// is below 2^-31 for 2^32 samples.
fn shuffle<T>(order: &mut [T], seed: u64) {
    let mut key = [0; 32];
    for (byte, of_seed) in key.iter_mut().zip(seed.to_le_bytes()) {
        *byte = of_seed;
    }
    let mut random = ChaCha8Rng::from_seed(key);
    for last in (1..order.len()).rev() {
        let product = u128::from(random.next_u64()) * (last as u128 + 1);
        let pick = usize::try_from(product >> 64).unwrap_or(last);
        order.swap(last, pick);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shade_formats::shard::padded_len;

    use super::*;

    fn plan(sizes: &[u64], shuffle: Option<u64>, shard_bytes: u64) -> PackPlan {
        let member = |sample: SampleId| 512 + padded_len(sizes[sample.index()]);
        PackPlan::new(u32::try_from(sizes.len()).unwrap(), member, shuffle, shard_bytes)
    }

    /// If this fails, every dataset packed before has another order than one packed now with the
    /// same seed.
    #[test]
    fn the_shuffle_never_changes() {
        let order = |seed| {
            let mut order: Vec<u32> = (0..10).collect();
            shuffle(&mut order, seed);
            order
        };
        assert_eq!(order(0), [9, 2, 3, 4, 6, 7, 0, 1, 5, 8]);
        assert_eq!(order(1), [1, 4, 9, 8, 0, 5, 7, 6, 2, 3]);
        assert_eq!(order(u64::MAX), [0, 4, 1, 9, 6, 3, 8, 5, 2, 7]);
    }

    #[test]
    fn cuts_fall_where_a_shard_would_grow_too_large() {
        // Each member takes 512 + 512; tar's end takes 1024.
        let sizes = [512u64; 7];
        let lens = |bytes| {
            let plan = plan(&sizes, None, bytes);
            (0..plan.shard_count()).map(|number| plan.shard(number).len()).collect::<Vec<_>>()
        };
        assert_eq!(lens(4096), [3, 3, 1]);
        assert_eq!(lens(4095), [2, 2, 2, 1]);
        assert_eq!(lens(1 << 30), [7]);
        assert_eq!(plan(&[], Some(1), 4096).shard_count(), 0);
        assert_eq!(plan(&[10, 100_000, 10], None, 4096).shard_count(), 3);
    }

    proptest! {
        #[test]
        fn every_sample_is_planned_once_and_shards_keep_their_size(
            sizes in proptest::collection::vec(0u64..9000, 0..200),
            seed in proptest::option::of(any::<u64>()),
            shard_bytes in 4096u64..40_000,
        ) {
            let plan = plan(&sizes, seed, shard_bytes);
            let mut all = Vec::new();
            for shard in (0..plan.shard_count()).map(|number| plan.shard(number)) {
                let bytes: u64 = shard.iter().map(|sample| 512 + padded_len(sizes[sample.index()])).sum();
                prop_assert!(shard.len() == 1 || bytes + 1024 <= shard_bytes);
                prop_assert!(!shard.is_empty());
                all.extend(shard.iter().map(|sample| sample.0));
            }
            if seed.is_none() {
                prop_assert!(all.is_sorted());
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..u32::try_from(sizes.len()).unwrap()).collect::<Vec<_>>());
        }
    }
}
