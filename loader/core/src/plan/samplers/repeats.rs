//! How often a sample may come in an epoch, and in one batch of it. A ring is as large as that
//! needs.

use std::ops::Range;

use shade_formats::SampleId;
use shade_job::{JobSpec, Sampler, Subset, WeightTable};

use super::chances::CHANCE_MAX_WIDE;
use super::table::may_leave_out;

/// Standard deviations, and uses, beyond the expected ones that chance does not reach.
const BY_CHANCE: f64 = 6.0;

/// The most times that a batch of one rank may have a sample.
pub struct Repeats<'a> {
    spec: &'a JobSpec,
    /// What is drawn on its own, in the order of its samples.
    pools: Vec<Pool>,
    /// The table that is drawn by.
    table: Option<&'a [u32]>,
}

/// Samples that are drawn with one another: all of the job's, or a part of a mixture.
struct Pool {
    /// Its samples have smaller ids.
    end: u32,
    /// Batches over which the uses of a sample are spread, in an epoch or a pass.
    batches: f64,
    /// Rows of a batch of all ranks.
    rows: f64,
    /// Passes of which a batch may have samples.
    passes: f64,
    /// How often a sample with a weight of 1 is expected in an epoch or a pass.
    uses: f64,
    /// What it is drawn by.
    sampler: Sampler,
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
        let table = weights.map(WeightTable::weights);
        let of = |id: &u32| table.and_then(|table| table.get(*id as usize)).copied().map_or(0, u64::from);
        let uses = |samples: u32, total: u64| f64::from(samples) / total.max(1) as f64;
        let parts = &spec.plan.parts;
        if parts.is_empty() {
            // Each stratum is at one rank.
            let ranks = if spec.plan.strata > 1 { spec.world_size } else { 1 };
            let batches = f64::from(samples) / f64::from(spec.batch_size.max(1)) / f64::from(ranks.max(1));
            let total = subset
                .map_or(weights.map_or(0, WeightTable::total), |subset| subset.ids().iter().map(of).sum());
            let (batches, uses) = (batches.floor().max(1.0), uses(samples, total));
            let (rows, sampler) = (f64::from(spec.batch_size), spec.plan.sampler);
            let all = Pool { end: u32::MAX, batches, rows, passes: 1.0, uses, sampler };
            return Self { spec, pools: vec![all], table };
        }
        let ratio = parts.ratio();
        let pool = |((ids, term), sampler): ((Range<u32>, &u64), Sampler)| {
            // In a batch of all ranks.
            let rows = (spec.global_batch() * term).div_ceil(ratio.sum) as f64;
            let samples = ids.end - ids.start;
            let batches = (f64::from(samples) / rows).floor().max(1.0);
            let passes = (rows / f64::from(samples)).ceil() + 1.0;
            let uses = uses(samples, ids.clone().map(|id| of(&id)).sum());
            Pool { end: ids.end, batches, rows, passes, uses, sampler }
        };
        let drawn = parts.ranges().zip(&ratio.terms).zip(parts.samplers(spec.plan.sampler));
        Self { spec, pools: drawn.map(pool).collect(), table }
    }

    /// The most times that a batch may have the sample, at least once.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the batch size")]
    pub fn of(&self, sample: SampleId) -> usize {
        let Some(pool) = self.pools.iter().find(|pool| sample.0 < pool.end) else { return 1 };
        // Draws of a part that leave samples out may be of a few only, again and again.
        let is_unbounded = may_leave_out(pool.sampler) && !self.spec.plan.parts.is_empty();
        let uses = self.uses(sample, pool);
        // Repeats that no batch of their bucket had room for come together at the epoch's end.
        let is_dealt = !self.spec.plan.bucket.is_empty();
        let spread = if is_dealt { uses } else { (uses / pool.batches).ceil() * pool.passes };
        let most = if is_unbounded { pool.rows } else { spread };
        most.clamp(1.0, f64::from(self.spec.batch_size.max(1))) as usize
    }

    /// The most times that an epoch, or a pass of its part, may have it.
    fn uses(&self, sample: SampleId, pool: &Pool) -> f64 {
        let by_chance = |expected: f64| expected + BY_CHANCE * (expected.sqrt() + 1.0);
        let plan = &self.spec.plan;
        match pool.sampler {
            Sampler::Uniform
            | Sampler::Sequential
            | Sampler::Iis
            | Sampler::Cis
            | Sampler::Infobatch
            | Sampler::Seta => 1.0,
            Sampler::Echo => plan.echo.ceil() + 1.0,
            Sampler::Replacement => by_chance(1.0),
            Sampler::Pads => plan.rep.ceil() * by_chance(CHANCE_MAX_WIDE as f64),
            Sampler::Weighted | Sampler::Balanced => by_chance(self.table.map_or(1.0, |weights| {
                weights.get(sample.index()).map_or(0.0, |&weight| f64::from(weight) * pool.uses)
            })),
        }
    }
}
