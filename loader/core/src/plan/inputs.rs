//! What a plan is drawn from: all that a sampler or an order may go by.
//!
//! Each stratum is drawn on its own. Its samples are numbered from 0, and samplers and orders see
//! nothing else of the dataset. With one stratum of the whole dataset a sample's number is its id.
//! So it is with each part of a mixture.

use std::cell::OnceCell;
use std::ops::Range;

use shade_formats::SampleId;
use shade_formats::limits::PARTS_MAX;
use shade_job::{PlanSpec, Sampler, Seats, WeightTable};

use super::part::Part;
use super::random::{Random, Stage};
use super::slice::Slices;
use super::strata::Strata;
use crate::importance::Importance;
use crate::number::to_u32;

/// Positions that repeats of a sample are apart in a plan of several strata, if that is easy: no
/// global batch is longer.
const APART_POSITIONS: u32 = 1 << 16;
/// Share of a stratum's list, as 1 of this many, that they are apart at most. With a sixteenth, a
/// cache of a fifth hits 0.9 to 2.2 points less (025): repeats that are close are hits.
const APART_SHARE: usize = 64;

/// The part of a plan that has one daemon only.
static WHOLE: Part = Part::WHOLE;
/// The seats of a plan unless ranks tell others.
static IN_ORDER: Seats = Seats::IN_ORDER;

/// What is known of the samples `0..importance.len()`, which are the dataset, and which of them are
/// drawn here.
#[derive(Clone, Debug)]
pub struct SampleFacts<'a> {
    /// Scores and deliveries.
    pub importance: &'a Importance,
    /// The table of the samplers `weighted` and `balanced`.
    pub weights: Option<&'a WeightTable>,
    /// Which sample is drawn with which others.
    pub strata: Strata,
    /// The stratum of each seat of the plan.
    pub seats: &'a Seats,
    /// The part of the plan that is drawn. Its number of ranks divides that of strata.
    pub part: &'a Part,
    /// The batches of all ranks in a plan as long as the dataset: a mixture has its ratio in each,
    /// and with buckets each is of one. Other plans do not depend on them.
    pub slices: Option<Slices>,
    /// By sample: its bucket. Empty if there are none.
    pub buckets: &'a [u8],
}

impl<'a> From<&'a Importance> for SampleFacts<'a> {
    /// The whole dataset, as one stratum.
    fn from(importance: &'a Importance) -> Self {
        let strata = Strata::one(importance.len());
        let (seats, part) = (&IN_ORDER, &WHOLE);
        Self { importance, weights: None, strata, seats, part, slices: None, buckets: &[] }
    }
}

/// What the plan of one epoch is drawn from.
pub(super) struct EpochInputs<'a> {
    /// The parameters. They are validated; one that is out of range is clamped.
    pub(super) spec: &'a PlanSpec,
    pub(super) epoch: u32,
    /// Rows in a batch of one rank.
    pub(super) batch_size: u32,
    pub(super) facts: SampleFacts<'a>,
    /// The replication factor in force.
    pub(super) rep_now: f64,
    pub(super) is_resident: &'a dyn Fn(SampleId) -> bool,
    /// By sample: it is in a plan that is delivered before this one. Empty if there is none.
    pub(super) planned: Vec<bool>,
}

impl EpochInputs<'_> {
    /// The seed of all random numbers. The jobs of a group have the same.
    fn seed(&self) -> u64 {
        if self.spec.group != 0 { self.spec.group } else { self.spec.seed }
    }

    /// The batches of all ranks, of a plan that depends on them.
    pub(super) fn slices(&self) -> Slices {
        let Some(slices) = self.facts.slices else { unreachable!("the plan is drawn for batches") };
        slices
    }

    /// The random numbers of a stage of the whole epoch.
    pub(super) fn random(&self, stage: Stage) -> Random {
        Random::of_stratum(self.seed(), self.epoch, stage, 0)
    }
}

/// A part of a mixture.
pub(super) struct MixedPart {
    /// Its place among the parts.
    pub(super) number: u32,
    /// Its samples.
    pub(super) ids: Range<u32>,
    /// What it is drawn by.
    pub(super) sampler: Sampler,
    /// Rows that a rank's batch has of it, rounded up.
    pub(super) rows: usize,
}

/// Which draws from a part of a mixture: of its pass with the number `epoch`, or the draws number
/// `turn` of an epoch.
#[derive(Clone, Copy)]
pub(super) struct Draws {
    pub(super) epoch: u32,
    pub(super) turn: u32,
}

impl MixedPart {
    /// The place of one of its samples among them.
    pub(super) fn place(&self, id: SampleId) -> usize {
        (id.0 - self.ids.start) as usize
    }
}

/// What the list of one stratum, or of a mixture's part, is drawn from.
pub(super) struct Inputs<'a> {
    /// The parameters.
    pub(super) spec: &'a PlanSpec,
    pub(super) epoch: u32,
    /// Rows of the list that are a batch to the stages, at least 1: those that as many positions as
    /// a rank's batch has hold of this stratum.
    pub(super) batch_size: usize,
    /// Rows that repeats of a sample are apart, if that is easy; at least 1.
    pub(super) distance: usize,
    /// The replication factor in force.
    pub(super) rep_now: f64,
    of: &'a EpochInputs<'a>,
    stratum: u32,
    samples: u32,
    /// Positions of the plan among which there is one such batch.
    batch_positions: usize,
    /// By number: the sample. `None` where a number is the sample's id.
    members: Option<Vec<SampleId>>,
    scores: OnceCell<Vec<f32>>,
    weights: OnceCell<(Vec<u32>, u64)>,
    residents: OnceCell<Vec<bool>>,
}

impl<'a> Inputs<'a> {
    /// The inputs of a stratum.
    pub(super) fn new(of: &'a EpochInputs<'a>, stratum: u32) -> Self {
        let strata = &of.facts.strata;
        let is_numbered = strata.count() > 1 || strata.subset().is_some();
        let members = is_numbered.then(|| strata.members(stratum));
        let rows_of = |positions: u32| positions.div_ceil(strata.count()).max(1) as usize;
        let batch_size = rows_of(of.batch_size);
        let easy =
            |members: &Vec<SampleId>| rows_of(APART_POSITIONS).min((members.len() / APART_SHARE).max(1));
        let distance = members.as_ref().filter(|_| strata.count() > 1).map_or(batch_size, easy);
        Self {
            spec: of.spec,
            epoch: of.epoch,
            batch_size,
            distance,
            rep_now: of.rep_now,
            of,
            stratum,
            samples: strata.len(stratum),
            batch_positions: batch_size.saturating_mul(strata.count() as usize),
            members,
            scores: OnceCell::new(),
            weights: OnceCell::new(),
            residents: OnceCell::new(),
        }
    }

    /// The inputs of draws from a part of a mixture, with these parameters.
    pub(super) fn of_part(
        of: &'a EpochInputs<'a>,
        spec: &'a PlanSpec,
        part: &MixedPart,
        Draws { epoch, turn }: Draws,
    ) -> Self {
        Self {
            spec,
            epoch,
            batch_size: part.rows,
            distance: part.rows,
            rep_now: of.rep_now,
            of,
            // No two draws have one stream of random numbers.
            stratum: part.number.wrapping_add(turn.wrapping_mul(to_u32(PARTS_MAX))),
            samples: part.ids.end - part.ids.start,
            batch_positions: of.batch_size.max(1) as usize,
            members: Some(part.ids.clone().map(SampleId).collect()),
            scores: OnceCell::new(),
            weights: OnceCell::new(),
            residents: OnceCell::new(),
        }
    }

    /// As many of this stratum's batches as `batches` batches of one rank are long, at least 1.
    pub(super) fn own_batches(&self, batches: usize) -> usize {
        let positions = batches.saturating_mul(self.of.batch_size.max(1) as usize);
        positions.div_ceil(self.batch_positions).max(1)
    }

    /// Number of samples in the stratum.
    pub(super) fn samples(&self) -> u32 {
        self.samples
    }

    /// The sample with this number, counted from 0 in its stratum.
    pub(super) fn sample(&self, number: SampleId) -> SampleId {
        self.members.as_ref().map_or(number, |members| members.get(number.index()).copied().unwrap_or(number))
    }

    /// The samples with these numbers.
    pub(super) fn as_samples(&self, mut numbers: Vec<SampleId>) -> Vec<SampleId> {
        if self.members.is_some() {
            numbers.iter_mut().for_each(|number| *number = self.sample(*number));
        }
        numbers
    }

    /// Whether the plan is coupled with those of other jobs.
    pub(super) fn is_coupled(&self) -> bool {
        self.spec.group != 0
    }

    /// The seed of all random numbers. The jobs of a group have the same.
    pub(super) fn seed(&self) -> u64 {
        self.of.seed()
    }

    /// The random numbers of a stage.
    pub(super) fn random(&self, stage: Stage) -> Random {
        self.random_of(self.epoch, stage)
    }

    /// Random numbers for what is not done once an epoch.
    pub(super) fn random_of(&self, number: u32, stage: Stage) -> Random {
        Random::of_stratum(self.seed(), number, stage, self.stratum)
    }

    /// By sample: its score.
    pub(super) fn scores(&self) -> &[f32] {
        let importance = self.of.facts.importance;
        let Some(members) = &self.members else { return importance.scores() };
        self.scores.get_or_init(|| members.iter().map(|&id| importance.score(id)).collect())
    }

    /// Fixed weights by sample, and their sum, if the sampler goes by them.
    pub(super) fn weights(&self) -> Option<(&[u32], u64)> {
        let table = self.of.facts.weights?;
        let of_all = table.weights();
        let Some(members) = &self.members else { return Some((of_all, table.total())) };
        let (weights, total) = self.weights.get_or_init(|| {
            let weight_of = |id: &SampleId| of_all.get(id.index()).copied().unwrap_or(0);
            let weights: Vec<u32> = members.iter().map(weight_of).collect();
            let total = weights.iter().map(|&weight| u64::from(weight)).sum();
            (weights, total)
        });
        Some((weights, *total))
    }

    /// By sample: it is in the cache. A plan that asks depends on when reads came back.
    pub(super) fn residents(&self) -> &[bool] {
        let is_resident = |number| (self.of.is_resident)(self.sample(number));
        self.residents.get_or_init(|| (0..self.samples()).map(SampleId).map(is_resident).collect())
    }

    /// Whether the `cover` guard wants the sample in this epoch.
    pub(super) fn is_forgotten(&self, number: SampleId) -> bool {
        let id = self.sample(number);
        self.of.planned.get(id.index()) != Some(&true)
            && self.of.facts.importance.is_forgotten(id, self.epoch, self.spec.cover)
    }
}
