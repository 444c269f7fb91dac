//! How random an order is: the entropy of positions, after DeepIO's meter.
//!
//! The epoch is cut into windows and the samples, by id, into as many bins. In a random order every
//! window has the bins in the shares of the whole epoch. Where neighbours in storage come together
//! a window has few bins. The meter is the mean over windows of the entropy of their bins, divided
//! by the entropy that is expected in a random order. That is the entropy of the whole epoch less
//! (bins - 1) / (2 · window), by which a sample of that size falls short (Miller and Madow).

use shade_formats::SampleId;

/// Windows, and bins: enough to see blocks of 1/64 of the dataset.
const BINS_MAX: usize = 64;
/// Samples in each bin of a window, on average, for entropies to mean something.
const PER_BIN: usize = 8;

/// The position entropy of `ids` out of `0..samples`: 1 for a random order, 0 for one that delivers
/// bin after bin. It is 1 for an epoch that is too short to tell.
#[must_use]
pub fn position_entropy(ids: &[SampleId], samples: u32) -> f64 {
    let bins = (ids.len() / PER_BIN).isqrt().min(BINS_MAX);
    if bins < 2 {
        return 1.0;
    }
    let window = ids.len().div_ceil(bins);
    let mut whole = vec![0u32; bins];
    let (mut found, mut windows) = (0.0, 0u32);
    for ids in ids.chunks_exact(window) {
        let mut counts = vec![0u32; bins];
        for id in ids {
            let bin = id.index() * bins / (samples.max(1) as usize);
            if let Some(count) = counts.get_mut(bin) {
                *count += 1;
            }
        }
        found += entropy(&counts);
        windows += 1;
        whole.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let expected = entropy(&whole) - (bins - 1) as f64 / (2 * window) as f64;
    if windows == 0 || expected <= 0.0 { 1.0 } else { found / f64::from(windows) / expected }
}

/// The entropy of the distribution of these counts, in nats.
fn entropy(counts: &[u32]) -> f64 {
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let shares = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count) / total);
    -shares.map(|share| share * share.ln()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::random::{Random, Stage};

    fn shuffled(samples: u32) -> Vec<SampleId> {
        let mut ids: Vec<SampleId> = (0..samples).map(SampleId).collect();
        Random::new(1, 1, Stage::Shuffle).shuffle(&mut ids);
        ids
    }

    #[test]
    fn a_shuffle_has_1_and_storage_order_next_to_nothing() {
        for samples in [500, 5000, 50_000] {
            let random = position_entropy(&shuffled(samples), samples);
            assert!((random - 1.0).abs() < 0.01, "{samples}: {random}");
            let ordered: Vec<SampleId> = (0..samples).map(SampleId).collect();
            assert!(position_entropy(&ordered, samples) < 0.2, "{samples}");
        }
        for samples in [0, 1, 20] {
            assert!((position_entropy(&shuffled(samples), samples) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_shuffle_within_blocks_lies_between() {
        let mut ids: Vec<SampleId> = (0..50_000).map(SampleId).collect();
        let mut random = Random::new(1, 1, Stage::Shuffle);
        ids.chunks_mut(12_500).for_each(|block| random.shuffle(block));
        // A quarter of the dataset in each window: ln 16 of ln 64.
        let entropy = position_entropy(&ids, 50_000);
        assert!((entropy - 16f64.ln() / 64f64.ln()).abs() < 0.05, "{entropy}");
    }
}
