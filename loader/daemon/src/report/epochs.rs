//! A recording's accesses and losses, epoch by epoch.

use std::collections::BTreeMap;

use shade_formats::trace::{Open, Report, Served};

/// One epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct EpochFigures {
    pub(super) epoch: u32,
    pub(super) accesses: u64,
    /// Served from the cache, or by a read that another row had asked for.
    pub(super) hits: u64,
    /// Distinct samples among its accesses.
    pub(super) distinct: u64,
    /// Distinct samples of all epochs so far.
    pub(super) seen: u64,
    /// Quantiles of its losses; `None` without one.
    pub(super) losses: Option<LossQuantiles>,
}

impl EpochFigures {
    pub(super) fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.accesses.max(1) as f64
    }

    /// The most hits that a cache of `cached` records can have: a sample that is asked for again
    /// always hits, and of the others those that were cached before. docs/algorithms.md writes it
    /// as 1 - D/N + c.
    pub(super) fn hits_bound(&self, cached: f64) -> f64 {
        let read = (self.distinct as f64 - cached).max(0.0);
        (1.0 - read / self.accesses.max(1) as f64).max(0.0)
    }
}

/// Epochs being counted.
#[derive(Default)]
pub(super) struct Epochs {
    done: Vec<EpochFigures>,
    /// One bit a sample: met in this epoch, in any.
    in_epoch: Bits,
    ever: Bits,
    /// By place in `done`: losses come for an epoch and the one before it.
    losses: BTreeMap<usize, Losses>,
    /// The next batch begins an epoch, whatever its number.
    is_new: bool,
}

impl Epochs {
    pub(super) fn new(samples: u32) -> Self {
        let bits = || Bits(vec![0; (samples as usize).div_ceil(64)]);
        Self { in_epoch: bits(), ever: bits(), is_new: true, ..Self::default() }
    }

    /// A training began.
    pub(super) fn begin_job(&mut self) {
        self.is_new = true;
    }

    /// Counts a batch. Samples beyond the dataset are an error.
    pub(super) fn open(&mut self, open: &Open) -> Result<(), String> {
        let is_another = self.done.last().is_none_or(|last| last.epoch != open.epoch);
        if std::mem::take(&mut self.is_new) || is_another {
            self.settle_losses(self.done.len().saturating_sub(1));
            self.in_epoch.clear();
            let seen = self.done.last().map_or(0, |last| last.seen);
            self.done.push(EpochFigures { epoch: open.epoch, seen, ..EpochFigures::default() });
        }
        let Some(epoch) = self.done.last_mut() else { return Ok(()) };
        for (&id, letter) in open.ids.iter().zip(open.served.bytes()) {
            epoch.accesses += 1;
            let served = Served::from_letter(letter).ok_or_else(|| format!("served by {letter:?}"))?;
            epoch.hits += u64::from(matches!(served, Served::Hit | Served::Joined));
            epoch.distinct += u64::from(self.in_epoch.set(id)?);
            epoch.seen += u64::from(self.ever.set(id)?);
        }
        Ok(())
    }

    /// Keeps the losses of a batch.
    pub(super) fn report(&mut self, report: &Report) {
        let first = self.done.len().saturating_sub(2);
        let recent = self.done.get(first..).unwrap_or_default();
        // Losses for an epoch before are late, and left out as the daemon does.
        if let Some(at) = recent.iter().rposition(|epoch| epoch.epoch == report.epoch) {
            self.losses.entry(first + at).or_default().add(&report.losses);
        }
    }

    /// All epochs.
    pub(super) fn end(mut self) -> Vec<EpochFigures> {
        self.settle_losses(self.done.len());
        self.done
    }

    /// Makes quantiles of the losses of epochs before this place.
    fn settle_losses(&mut self, before: usize) {
        let rest = self.losses.split_off(&before);
        for (at, losses) in std::mem::replace(&mut self.losses, rest) {
            if let Some(epoch) = self.done.get_mut(at) {
                epoch.losses = losses.quantiles();
            }
        }
    }
}

/// One bit a sample.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    /// Sets a bit. Returns whether it was not set.
    fn set(&mut self, id: u32) -> Result<bool, String> {
        let bit = 1 << (id % 64);
        let word = self.0.get_mut((id / 64) as usize).ok_or_else(|| format!("sample {id} of fewer"))?;
        let is_first = *word & bit == 0;
        *word |= bit;
        Ok(is_first)
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// Three quantiles of finite losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossQuantiles {
    pub(super) p10: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
}

/// Losses of one epoch.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<f32>);

impl Losses {
    /// Adds those of a report. A loss that is no finite number has no place among quantiles.
    pub(super) fn add(&mut self, losses: &[Option<f32>]) {
        self.0.extend(losses.iter().flatten().filter(|loss| loss.is_finite()));
    }

    /// The quantiles; `None` without a loss.
    pub(super) fn quantiles(mut self) -> Option<LossQuantiles> {
        self.0.sort_unstable_by(f32::total_cmp);
        let last = self.0.len().checked_sub(1)?;
        let at = |tenths: usize| self.0.get(last * tenths / 10).map(|loss| f64::from(*loss));
        Some(LossQuantiles { p10: at(1)?, p50: at(5)?, p90: at(9)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(epoch: u32, ids: &[u32], served: &str) -> Open {
        let served = served.to_owned();
        Open { at_us: 0, epoch, batch: 0, rank: 0, seq: 0, ids: ids.to_vec(), served }
    }

    fn losses(epoch: u32, loss: f32) -> Report {
        Report { at_us: 0, epoch, batch: 0, rank: 0, losses: vec![Some(loss)] }
    }

    #[test]
    fn epochs_are_counted_apart_and_coverage_together() {
        let mut epochs = Epochs::new(10);
        epochs.open(&open(0, &[1, 2, 1], "mmj")).unwrap();
        epochs.report(&losses(0, 5.0));
        epochs.open(&open(1, &[2, 3], "hp")).unwrap();
        epochs.report(&losses(0, 7.0));
        epochs.report(&losses(1, 1.0));
        epochs.open(&open(2, &[3], "h")).unwrap();
        epochs.report(&losses(0, 9.0));
        let found = epochs.end();
        let counts: Vec<_> =
            found.iter().map(|epoch| (epoch.accesses, epoch.hits, epoch.distinct, epoch.seen)).collect();
        assert_eq!(counts, [(3, 1, 2, 2), (2, 1, 2, 3), (1, 1, 1, 3)]);
        let medians: Vec<_> = found.iter().map(|epoch| epoch.losses.map(|losses| losses.p50)).collect();
        assert_eq!(medians, [Some(5.0), Some(1.0), None], "a loss two epochs late is left out");
    }

    #[test]
    fn a_job_that_begins_anew_has_epochs_of_its_own() {
        let mut epochs = Epochs::new(10);
        epochs.open(&open(0, &[1], "m")).unwrap();
        epochs.begin_job();
        epochs.open(&open(0, &[1], "h")).unwrap();
        assert_eq!(epochs.end().len(), 2);
    }

    #[test]
    fn samples_and_letters_that_are_none_are_refused() {
        assert!(Epochs::new(64).open(&open(0, &[64], "m")).is_err());
        assert!(Epochs::new(64).open(&open(0, &[63], "?")).is_err());
    }

    #[test]
    fn the_bound_is_that_of_the_algorithms() {
        // N = 100 accesses, D = 60, c = 20 %: 1 - 0.6 + 0.2.
        let epoch = EpochFigures { accesses: 100, distinct: 60, ..EpochFigures::default() };
        assert!((epoch.hits_bound(20.0) - 0.6).abs() < 1e-12);
        assert!((epoch.hits_bound(200.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_are_losses_of_the_epoch() {
        assert_eq!(Losses::default().quantiles(), None);
        let mut losses = Losses::default();
        losses.add(&[None, Some(f32::NAN)]);
        let tens: Vec<_> = (0..=10u8).rev().map(|loss| Some(f32::from(loss))).collect();
        losses.add(&tens);
        assert_eq!(losses.quantiles(), Some(LossQuantiles { p10: 1.0, p50: 5.0, p90: 9.0 }));
    }
}
