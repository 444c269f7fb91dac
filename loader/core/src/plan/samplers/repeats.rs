//! How often a sample may come in an epoch, and in one batch of it. A ring is as large as that
//! needs.

use shade_formats::SampleId;
use shade_job::{JobSpec, Sampler, Subset, WeightTable};

use super::chances::CHANCE_MAX_WIDE;

/// Standard deviations, and uses, beyond the expected ones that chance does not reach.
const BY_CHANCE: f64 = 6.0;

/// The most times that a batch of one rank may have a sample.
pub struct Repeats<'a> {
    spec: &'a JobSpec,
    /// Batches over which the uses of a sample are spread.
    batches: f64,
    /// The table that is drawn by, and how often a weight of 1 is expected in an epoch.
    table: Option<(&'a [u32], f64)>,
}

impl<'a> Repeats<'a> {
    /// The repeats of a job on `samples` samples: a `subset`, or all of the dataset.
    #[must_use]
    pub fn new(
        spec: &'a JobSpec,
        samples: u32,
        subset: Option<&Subset>,
        weights: Option<&'a WeightTable>,
    ) -> Self {
        // Each stratum is at one rank.
        let ranks = if spec.plan.strata > 1 { spec.world_size } else { 1 };
        let batches = f64::from(samples) / f64::from(spec.batch_size.max(1)) / f64::from(ranks.max(1));
        let table = weights.map(|table| {
            let of = |id: &u32| table.weights().get(*id as usize).copied().map_or(0, u64::from);
            let total = subset.map_or(table.total(), |subset| subset.ids().iter().map(of).sum());
            (table.weights(), f64::from(samples) / total.max(1) as f64)
        });
        Self { spec, batches: batches.floor().max(1.0), table }
    }

    /// The most times that a batch may have the sample, at least once.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the batch size")]
    pub fn of(&self, sample: SampleId) -> usize {
        let most = (self.uses(sample) / self.batches).ceil();
        most.clamp(1.0, f64::from(self.spec.batch_size.max(1))) as usize
    }

    /// The most times that an epoch may have it.
    fn uses(&self, sample: SampleId) -> f64 {
        let by_chance = |expected: f64| expected + BY_CHANCE * (expected.sqrt() + 1.0);
        let plan = &self.spec.plan;
        match plan.sampler {
            Sampler::Uniform
            | Sampler::Sequential
            | Sampler::Iis
            | Sampler::Cis
            | Sampler::Infobatch
            | Sampler::Seta => 1.0,
            Sampler::Echo => plan.echo.ceil() + 1.0,
            Sampler::Replacement => by_chance(1.0),
            Sampler::Pads => plan.rep.ceil() * by_chance(CHANCE_MAX_WIDE as f64),
            Sampler::Weighted | Sampler::Balanced => by_chance(self.table.map_or(1.0, |(weights, uses)| {
                weights.get(sample.index()).map_or(0.0, |&weight| f64::from(weight) * uses)
            })),
        }
    }
}
