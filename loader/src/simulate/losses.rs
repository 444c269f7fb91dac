//! The losses that a simulated training reports: recorded ones, or a model's.
//!
//! In the model sample i has in epoch e the loss hᵢ·exp(-0.15 e)·LN(0, 0.5), hᵢ ~ LN(0, 1).

use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use shade_formats::SampleId;

use super::error::SimulateError;
use super::lines::Source;
use super::loss_table::{self, LossTable};
use super::npy::Npy;

/// By how much losses fall from epoch to epoch, in the exponent.
const LEARNING: f64 = 0.15;
const HARDNESS_SIGMA: f64 = 1.0;
const NOISE_SIGMA: f64 = 0.5;

/// Where losses come from.
#[derive(Debug)]
pub(super) enum LossSource {
    /// The model.
    Model,
    /// A file's.
    Recorded(LossFile),
}

/// A file of recorded losses.
#[derive(Debug)]
pub(super) enum LossFile {
    /// A row an epoch, a column a sample.
    Array(Npy),
    /// A row a loss.
    Table(LossTable),
}

impl LossFile {
    /// Opens a file of the losses of `samples` samples, whose kind its first bytes tell.
    ///
    /// # Errors
    /// It cannot be read, or is of no kind that is known, or of other samples.
    pub(super) fn open(path: &Path, samples: u32) -> Result<Self, SimulateError> {
        let (is_table, _) = Source::open(path)?.begins_with(loss_table::MAGIC)?;
        if is_table {
            return LossTable::read(path, samples).map(Self::Table);
        }
        let npy = Npy::open(path)?;
        if npy.columns() != samples {
            let what = format!("it has losses of {} samples, but there are {samples}", npy.columns());
            return Err(SimulateError::File { path: path.to_owned(), what });
        }
        Ok(Self::Array(npy))
    }

    /// Whose losses are used in `epoch`.
    fn epoch_for(&self, epoch: u32) -> u32 {
        match self {
            Self::Array(npy) => epoch.min(npy.rows().saturating_sub(1)),
            Self::Table(table) => table.epoch_for(epoch),
        }
    }

    /// Replaces `losses` by those of an epoch that [`epoch_for`](Self::epoch_for) gave, NaN where there is none.
    fn read_epoch(&self, epoch: u32, samples: u32, losses: &mut Vec<f32>) -> Result<(), SimulateError> {
        match self {
            Self::Array(npy) => npy.read_row(epoch, losses),
            Self::Table(table) => {
                table.read_epoch(epoch, samples, losses);
                Ok(())
            }
        }
    }
}

/// The losses of one training.
pub(super) enum Losses<'a> {
    /// See [`LossSource::Model`].
    Model(Box<Model>),
    /// See [`LossSource::Recorded`].
    Recorded {
        /// The file.
        file: &'a LossFile,
        /// How many samples there are.
        samples: u32,
        /// Which epoch of the file is in `losses`.
        epoch: Option<u32>,
        /// By sample.
        losses: Vec<f32>,
    },
}

/// The synthetic losses.
pub(super) struct Model {
    random: ChaCha8Rng,
    /// By sample.
    hardness: Vec<f32>,
    noise: Option<LogNormal<f64>>,
    /// What of the loss is left in this epoch.
    left: f64,
}

impl<'a> Losses<'a> {
    /// The losses of a training with `seed`.
    pub(super) fn new(source: &'a LossSource, seed: u64, samples: u32) -> Self {
        match source {
            LossSource::Model => Self::Model(Box::new(Model::new(seed, samples))),
            LossSource::Recorded(file) => Self::Recorded { file, samples, epoch: None, losses: Vec::new() },
        }
    }

    /// Goes on to `epoch`.
    ///
    /// # Errors
    /// The recorded losses cannot be read.
    pub(super) fn begin_epoch(&mut self, epoch: u32) -> Result<(), SimulateError> {
        match self {
            Self::Model(model) => model.left = (-LEARNING * f64::from(epoch)).exp(),
            Self::Recorded { file, samples, epoch: read, losses } => {
                let wanted = file.epoch_for(epoch);
                if *read != Some(wanted) {
                    file.read_epoch(wanted, *samples, losses)?;
                    *read = Some(wanted);
                }
            }
        }
        Ok(())
    }

    /// Replaces `ids` and `losses` by what is reported for `batch`. A recorded NaN is no report.
    pub(super) fn report(&mut self, batch: &[SampleId], ids: &mut Vec<SampleId>, losses: &mut Vec<f32>) {
        ids.clear();
        losses.clear();
        match self {
            Self::Model(model) => {
                ids.extend_from_slice(batch);
                losses.extend(batch.iter().map(|&id| model.loss(id)));
            }
            Self::Recorded { losses: row, .. } => {
                for &id in batch {
                    if let Some(loss) = row.get(id.index()).filter(|loss| !loss.is_nan()) {
                        ids.push(id);
                        losses.push(*loss);
                    }
                }
            }
        }
    }
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
    use std::io::Write;

    use super::*;

    fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<SampleId> {
        ids.into_iter().map(SampleId).collect()
    }

    #[test]
    fn the_model_has_the_moments_of_its_description() {
        let mut losses = Losses::new(&LossSource::Model, 3, 20_000);
        let (batch, mut of, mut values) = (ids(0..20_000), Vec::new(), Vec::new());
        for epoch in [0, 4] {
            losses.begin_epoch(epoch).unwrap();
            losses.report(&batch, &mut of, &mut values);
            assert_eq!(of, batch);
            let logs: Vec<f64> = values.iter().map(|loss| f64::from(*loss).ln()).collect();
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64;
            assert!((mean + 0.15 * f64::from(epoch)).abs() < 0.03, "epoch {epoch}: {mean}");
            // Hardness and noise add up: 1² + 0.5².
            assert!((variance - 1.25).abs() < 0.05, "epoch {epoch}: {variance}");
        }
    }

    #[test]
    fn recorded_losses_stay_at_the_last_row_and_nan_is_no_report() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
        file.write_all(b"\x93NUMPY\x01\x00").unwrap();
        file.write_all(&u16::try_from(header.len()).unwrap().to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        [1f32, 2.0, 3.0, 4.0, f32::NAN, 6.0].iter().for_each(|v| file.write_all(&v.to_le_bytes()).unwrap());
        let source = LossSource::Recorded(LossFile::open(file.path(), 3).unwrap());
        let mut losses = Losses::new(&source, 0, 3);
        let mut reported = |epoch| {
            let (mut of, mut values) = (Vec::new(), Vec::new());
            losses.begin_epoch(epoch).unwrap();
            losses.report(&ids([2, 1, 0]), &mut of, &mut values);
            (of, values)
        };
        assert_eq!(reported(0), (ids([2, 1, 0]), vec![3.0, 2.0, 1.0]));
        for epoch in [1, 2, 9] {
            assert_eq!(reported(epoch), (ids([2, 0]), vec![6.0, 4.0]));
        }
    }
}
