//! Which sampler reads less than permutations, by what the cache holds.
//!
//! From `shade-load simulate`: the tables are in `docs/simulate.md`. Bytes decide by the cache's
//! share of the data alone, as the gap of `echo` follows from the cache. How far apart repeats are
//! decides what is known of accuracy: it was measured with repeats of `echo` 20 to 60 batches
//! apart.

use shade_job::Sampler;

use super::gap::GAP_BATCHES;

/// From this share of the data on `pads` with `draw_ahead` reads as little as `echo`, or less.
const PADS_SHARE: f64 = 0.2;
/// Reads of `pads` with `draw_ahead` over those of permutations, from each share of the data on.
const PADS_READS: [(f64, f64); 4] = [(0.4, 0.5), (0.2, 0.55), (0.1, 0.65), (0.05, 0.75)];
/// Reads of `echo` over those of permutations, whatever the share.
const ECHO_READS: f64 = 0.55;

/// A sampler that reads less than permutations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FewerReads {
    /// `echo`, or `pads` with `draw_ahead`, which needs losses.
    pub sampler: Sampler,
    /// Its reads over those of permutations, roughly.
    pub reads_share: f64,
}

/// The sampler that reads least with a cache of `batches` batches of one rank and this share of the
/// data, where the training reports losses or not. `None`: there is none whose accuracy is known.
#[must_use]
pub fn fewer_reads(batches: u64, share: f64, has_losses: bool) -> Option<FewerReads> {
    let echo = (batches >= u64::from(GAP_BATCHES))
        .then_some(FewerReads { sampler: Sampler::Echo, reads_share: ECHO_READS });
    let reads_share = PADS_READS.iter().find(|(from, _)| share >= *from).map(|(_, reads)| *reads);
    let pads = reads_share.map(|reads_share| FewerReads { sampler: Sampler::Pads, reads_share });
    let pads = pads.filter(|_| has_losses && (share >= PADS_SHARE || echo.is_none()));
    pads.or(echo).filter(|_| share < 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_decides_what_is_read_and_the_batches_whether_echo_is_known() {
        let sampler =
            |batches, share, has_losses| fewer_reads(batches, share, has_losses).map(|found| found.sampler);
        for has_losses in [false, true] {
            assert_eq!(sampler(60, 0.1, has_losses), Some(Sampler::Echo));
            assert_eq!(sampler(60, 1.0, has_losses), None);
            assert_eq!(sampler(59, 0.01, has_losses), None);
        }
        assert_eq!(sampler(600, 0.2, true), Some(Sampler::Pads));
        assert_eq!(sampler(600, 0.2, false), Some(Sampler::Echo));
        assert_eq!((sampler(59, 0.1, true), sampler(59, 0.1, false)), (Some(Sampler::Pads), None));
    }
}
