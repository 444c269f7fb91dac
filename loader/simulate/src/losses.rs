//! The losses that a simulated training reports: those of a model, a file or a recording.
//!
//! In the model sample i has in epoch e the loss hᵢ·exp(-0.15 e)·LN(0, 0.5), hᵢ ~ LN(0, 1).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use shade_formats::SampleId;

use crate::loss_table::LossTable;

/// Decrease of losses from epoch to epoch, in the exponent.
const LEARNING: f64 = 0.15;
const HARDNESS_SIGMA: f64 = 1.0;
const NOISE_SIGMA: f64 = 0.5;

/// The source of a training's losses.
#[derive(Debug)]
pub(super) enum LossSource {
    /// The model.
    Model,
    /// A file.
    Table(LossTable),
}

/// The losses of one training.
pub(super) enum Losses<'a> {
    /// None: nothing is reported.
    None,
    /// See [`LossSource::Model`].
    Model(Box<Model>),
    /// See [`LossSource::Table`].
    Table {
        /// The file.
        table: &'a LossTable,
        /// Number of samples.
        samples: u32,
        /// The epoch of the file whose losses are in `losses`.
        epoch: Option<u32>,
        /// By sample.
        losses: Vec<f32>,
    },
    /// The losses of a recording: a loss at each position of the plan, NaN where there is none, and
    /// the number of samples in a batch.
    Recorded(&'a [f32], u32),
}

/// The synthetic losses.
pub(super) struct Model {
    random: ChaCha8Rng,
    /// By sample.
    hardness: Vec<f32>,
    noise: Option<LogNormal<f64>>,
    /// Factor of this epoch.
    left: f64,
}

impl<'a> Losses<'a> {
    /// The losses of a training with `seed`.
    pub(super) fn new(source: &'a LossSource, seed: u64, samples: u32) -> Self {
        match source {
            LossSource::Model => Self::Model(Box::new(Model::new(seed, samples))),
            LossSource::Table(table) => Self::Table { table, samples, epoch: None, losses: Vec::new() },
        }
    }

    /// The model's losses of one of several jobs. A sample's hardness in two of them has this
    /// correlation, in the exponent.
    pub(super) fn of_job(seed: u64, job: u64, samples: u32, correlation: f64) -> Self {
        let common = Model::new(seed, samples);
        let mut own = Model::new(seed ^ (job + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15), samples);
        let (of_all, of_one) = (correlation.sqrt(), (1.0 - correlation).sqrt());
        for (own, all) in own.hardness.iter_mut().zip(&common.hardness) {
            *own = narrow((of_all * f64::from(*all).ln() + of_one * f64::from(*own).ln()).exp());
        }
        Self::Model(Box::new(own))
    }

    /// Goes on to `epoch`.
    pub(super) fn begin_epoch(&mut self, epoch: u32) {
        match self {
            Self::Model(model) => model.left = (-LEARNING * f64::from(epoch)).exp(),
            Self::Table { table, samples, epoch: read, losses } => {
                let wanted = table.epoch_for(epoch);
                if *read != Some(wanted) {
                    table.read_epoch(wanted, *samples, losses);
                    *read = Some(wanted);
                }
            }
            Self::None | Self::Recorded(..) => {}
        }
    }

    /// The report of the epoch's batch `number`: a loss for each sample, or nothing if there are
    /// none.
    pub(super) fn report(&mut self, number: u32, ids: &[SampleId]) -> Vec<f32> {
        let known = match self {
            Self::None => return Vec::new(),
            Self::Model(model) => return ids.iter().map(|&id| model.loss(id)).collect(),
            Self::Table { losses, .. } => {
                ids.iter().map(|id| losses.get(id.index()).copied().unwrap_or(f32::NAN)).collect()
            }
            Self::Recorded(losses, batch_size) => {
                let from = (number as usize).saturating_mul(*batch_size as usize);
                let to = from.saturating_add(ids.len());
                losses.get(from..to).unwrap_or_default().to_vec()
            }
        };
        without_gaps(known)
    }
}

/// Replaces each NaN by the mean of the other losses. Without any other, nothing is left.
fn without_gaps(mut losses: Vec<f32>) -> Vec<f32> {
    let known = losses.iter().filter(|loss| !loss.is_nan());
    let (sum, count) = known.fold((0.0, 0u32), |(sum, count), &loss| (sum + f64::from(loss), count + 1));
    if count == 0 {
        return Vec::new();
    }
    let mean = narrow(sum / f64::from(count));
    losses.iter_mut().filter(|loss| loss.is_nan()).for_each(|loss| *loss = mean);
    losses
}

impl Model {
    fn new(seed: u64, samples: u32) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // The sigmas are constants for which the distributions exist.
        let hardness = LogNormal::new(0.0, HARDNESS_SIGMA).ok();
        let mut draw = || hardness.map_or(1.0, |hardness| narrow(hardness.sample(&mut random)));
        let hardness = (0..samples).map(|_| draw()).collect();
        Self { random, hardness, noise: LogNormal::new(0.0, NOISE_SIGMA).ok(), left: 1.0 }
    }

    fn loss(&mut self, id: SampleId) -> f32 {
        let hardness = self.hardness.get(id.index()).copied().map_or(0.0, f64::from);
        let noise = self.noise.map_or(1.0, |noise| noise.sample(&mut self.random));
        narrow(hardness * self.left * noise)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "losses are f32, as they are reported")]
fn narrow(loss: f64) -> f32 {
    loss as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<SampleId> {
        ids.into_iter().map(SampleId).collect()
    }

    #[test]
    fn the_model_has_the_moments_of_its_description() {
        let mut losses = Losses::new(&LossSource::Model, 3, 20_000);
        let batch = ids(0..20_000);
        for epoch in [0, 4] {
            losses.begin_epoch(epoch);
            let values = losses.report(0, &batch);
            let logs: Vec<f64> = values.iter().map(|loss| f64::from(*loss).ln()).collect();
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64;
            assert!((mean + 0.15 * f64::from(epoch)).abs() < 0.03, "epoch {epoch}: {mean}");
            // Hardness and noise add up: 1² + 0.5².
            assert!((variance - 1.25).abs() < 0.05, "epoch {epoch}: {variance}");
        }
    }

    #[test]
    fn a_sample_without_a_recorded_loss_has_the_mean_of_its_batch() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let rows = "epoch,sample,loss\n0,0,1\n0,1,2\n0,2,3\n1,0,4\n1,2,6\n2,1,\n";
        std::io::Write::write_all(&mut file, rows.as_bytes()).unwrap();
        let source = LossSource::Table(LossTable::read(file.path(), 4).unwrap());
        let mut losses = Losses::new(&source, 0, 4);
        let mut reported = |epoch, batch: &[u32]| {
            losses.begin_epoch(epoch);
            losses.report(0, &ids(batch.iter().copied()))
        };
        assert_eq!(reported(0, &[2, 1, 0]), [3.0, 2.0, 1.0]);
        assert_eq!(reported(1, &[2, 1, 0]), [6.0, 5.0, 4.0]);
        assert_eq!(reported(1, &[1, 3]), [0.0; 0], "the file has none of them");
        assert_eq!(reported(9, &[0, 1, 2]), [0.0; 0], "nor any of the last epoch");
    }
}
