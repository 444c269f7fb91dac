//! Decides where each sample goes before a byte is read: order on disk, then cuts into shards.
//!
//! Both follow from the seed and the source sizes alone, so a dataset's bytes depend neither on threads nor on time.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use shade_formats::SampleId;
use shade_formats::shard::{END_OF_ARCHIVE, padded_len};

/// The samples of each shard, in their order on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One list per shard, none empty.
    pub shards: Vec<Vec<SampleId>>,
}

/// Plans shards for samples of these source sizes. `shuffle` is the seed of the order on disk. A shard is cut before
/// its members, taken uncompressed, would make it larger than `shard_bytes`; a record that alone is too large gets a
/// shard to itself.
#[must_use]
pub fn plan(source_bytes: &[u64], shuffle: Option<u64>, shard_bytes: u64) -> Plan {
    let mut order: Vec<(SampleId, u64)> = (0u32..).map(SampleId).zip(source_bytes.iter().copied()).collect();
    if let Some(seed) = shuffle {
        self::shuffle(&mut order, seed);
    }
    let mut shards = Vec::new();
    let mut current = Vec::new();
    let empty = END_OF_ARCHIVE.len() as u64;
    let mut bytes = empty;
    for (sample, source) in order {
        let member = padded_len(source).saturating_add(512);
        if !current.is_empty() && bytes.saturating_add(member) > shard_bytes {
            shards.push(std::mem::take(&mut current));
            bytes = empty;
        }
        current.push(sample);
        bytes = bytes.saturating_add(member);
    }
    if !current.is_empty() {
        shards.push(current);
    }
    Plan { shards }
}

/// The file name of shard `number`.
#[must_use]
pub fn shard_name(number: u32) -> String {
    format!("shard-{number:06}.tar")
}

/// Fisher-Yates over ChaCha8, written out because `rand`'s shuffles may change between versions, and an order on disk
/// must not. A position is the upper half of a 64 x 64-bit product: its bias is below 2^-31 for 2^32 samples.
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

    use super::*;

    /// If this fails, every dataset packed before has another order than one packed now with the same seed.
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
        let lens = |bytes| plan(&sizes, None, bytes).shards.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lens(4096), [3, 3, 1]);
        assert_eq!(lens(4095), [2, 2, 2, 1]);
        assert_eq!(lens(1 << 30), [7]);
        assert_eq!(plan(&[], Some(1), 4096).shards.len(), 0);
        assert_eq!(plan(&[10, 100_000, 10], None, 4096).shards.len(), 3);
    }

    proptest! {
        #[test]
        fn every_sample_is_planned_once_and_shards_keep_their_size(
            sizes in proptest::collection::vec(0u64..9000, 0..200),
            seed in proptest::option::of(any::<u64>()),
            shard_bytes in 4096u64..40_000,
        ) {
            let shards = plan(&sizes, seed, shard_bytes).shards;
            for shard in &shards {
                let bytes: u64 = shard.iter().map(|sample| 512 + padded_len(sizes[sample.index()])).sum();
                prop_assert!(shard.len() == 1 || bytes + 1024 <= shard_bytes);
                prop_assert!(!shard.is_empty());
            }
            let mut all: Vec<u32> = shards.iter().flatten().map(|sample| sample.0).collect();
            if seed.is_none() {
                prop_assert!(all.is_sorted());
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..u32::try_from(sizes.len()).unwrap()).collect::<Vec<_>>());
        }
    }
}
