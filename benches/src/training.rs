//! Epochs of a training without a model: plans drawn by importance, and scores from losses.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use shade_core::importance::{Importance, Ranked, rank};
use shade_core::plan::draw_plan;
use shade_formats::SampleId;
use shade_job::{PlanSpec, Sampler};

use crate::result::Result;

/// Samples in a batch.
pub(crate) const BATCH_SIZE: u32 = 256;

/// One epoch.
pub(crate) struct Epoch {
    /// The plan.
    pub(crate) ids: Vec<SampleId>,
    /// The new scores after each batch.
    ranked: Vec<Ranked>,
}

impl Epoch {
    /// Its batches, each with the scores from its losses.
    pub(crate) fn batches(&self) -> impl Iterator<Item = (&[SampleId], &Ranked)> {
        self.ids.chunks(BATCH_SIZE as usize).zip(&self.ranked)
    }
}

/// The first `count` epochs of a training with `samples` samples. Epoch 0 is a permutation. Losses
/// are those of `shade-load simulate`, without their fall from epoch to epoch, which changes no
/// rank.
pub(crate) fn epochs(samples: u32, count: u32) -> Result<Vec<Epoch>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let hardness: Vec<f32> =
        LogNormal::new(0.0, 1.0)?.sample_iter(&mut random).take(samples as usize).collect();
    let noise = LogNormal::new(0.0, 0.5)?;
    let spec = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let mut importance = Importance::new(samples);
    let mut train = |epoch| {
        let ids = draw_plan(&spec, epoch, BATCH_SIZE, &importance, |_| false, 1.0).ids;
        let batches = ids.chunks(BATCH_SIZE as usize).map(|batch| {
            let hardness_of = |id: &SampleId| hardness.get(id.index()).copied().unwrap_or(1.0);
            let losses: Vec<f32> =
                batch.iter().map(|id| hardness_of(id) * noise.sample(&mut random)).collect();
            let ranked = rank(batch, &losses);
            for &(id, score) in &ranked.scores {
                importance.set_score(id, score);
                importance.record_delivery(id, epoch);
            }
            ranked
        });
        let ranked = batches.collect();
        Epoch { ids, ranked }
    };
    Ok((0..count).map(&mut train).collect())
}
