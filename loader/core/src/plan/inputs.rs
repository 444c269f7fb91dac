//! What a plan is drawn from: all that a sampler or an order may go by.

use std::cell::OnceCell;

use shade_formats::SampleId;
use shade_formats::control::{PlanSpec, WeightTable};

use super::random::{Random, Stage};
use crate::importance::Importance;

/// What is known of the samples `0..importance.len()`, which are the dataset.
#[derive(Clone, Copy, Debug)]
pub struct SampleFacts<'a> {
    /// Scores and deliveries.
    pub importance: &'a Importance,
    /// The table of the samplers `weighted` and `balanced`.
    pub weights: Option<&'a WeightTable>,
}

impl<'a> From<&'a Importance> for SampleFacts<'a> {
    fn from(importance: &'a Importance) -> Self {
        Self { importance, weights: None }
    }
}

/// What the plan of one epoch is drawn from.
pub(super) struct Inputs<'a> {
    /// The parameters. They are validated; one that is out of range is clamped.
    pub(super) spec: &'a PlanSpec,
    pub(super) epoch: u32,
    /// Rows in a batch of one rank, at least 1.
    pub(super) batch_size: usize,
    /// Scores and deliveries of all samples.
    pub(super) importance: &'a Importance,
    /// Fixed weights of all samples, if the sampler goes by them.
    pub(super) weights: Option<&'a WeightTable>,
    /// The replication factor in force.
    pub(super) rep_now: f64,
    /// By sample: it is in a plan that is delivered before this one. Empty if there is none.
    planned: Vec<bool>,
    is_resident: &'a dyn Fn(SampleId) -> bool,
    residents: OnceCell<Vec<bool>>,
}

impl<'a> Inputs<'a> {
    /// The inputs of `epoch`. `planned` are the samples of a plan that is delivered before.
    pub(super) fn new(
        spec: &'a PlanSpec,
        epoch: u32,
        batch_size: u32,
        facts: SampleFacts<'a>,
        is_resident: &'a dyn Fn(SampleId) -> bool,
        rep_now: f64,
        planned: &[SampleId],
    ) -> Self {
        let SampleFacts { importance, weights } = facts;
        let mut is_planned = Vec::new();
        if !planned.is_empty() {
            is_planned.resize(importance.len() as usize, false);
        }
        for id in planned {
            if let Some(slot) = is_planned.get_mut(id.index()) {
                *slot = true;
            }
        }
        Self {
            spec,
            epoch,
            batch_size: batch_size.max(1) as usize,
            importance,
            weights,
            rep_now,
            planned: is_planned,
            is_resident,
            residents: OnceCell::new(),
        }
    }

    /// Number of samples of the dataset.
    pub(super) fn samples(&self) -> u32 {
        self.importance.len()
    }

    /// The seed of all random numbers. The jobs of a group have the same.
    pub(super) fn seed(&self) -> u64 {
        if self.is_coupled() { self.spec.group } else { self.spec.seed }
    }

    /// Whether the plan is coupled with those of other jobs.
    pub(super) fn is_coupled(&self) -> bool {
        self.spec.group != 0
    }

    /// The random numbers of a stage.
    pub(super) fn random(&self, stage: Stage) -> Random {
        Random::new(self.seed(), self.epoch, stage)
    }

    /// By sample: it is in the cache. A plan that asks depends on when reads came back.
    pub(super) fn residents(&self) -> &[bool] {
        self.residents.get_or_init(|| (0..self.samples()).map(SampleId).map(self.is_resident).collect())
    }

    /// Whether the `cover` guard wants the sample in this epoch.
    pub(super) fn is_forgotten(&self, id: SampleId) -> bool {
        self.planned.get(id.index()) != Some(&true)
            && self.importance.is_forgotten(id, self.epoch, self.spec.cover)
    }
}
