//! A job: the ranks that train together, their importance table and the plan of their epoch.

use std::collections::HashSet;

use shade_formats::control::JobSpec;

use super::counts::Counts;
use crate::importance::Importance;
use crate::plan::{Outlook, Plan, Slices, SlicesError};

/// One training run: equal specs, one plan, W ranks.
pub(super) struct Job {
    pub(super) spec: JobSpec,
    pub(super) importance: Importance,
    /// The current epoch's plan; `None` before the first epoch.
    pub(super) plan: Option<Plan>,
    /// Which of its uses are in sight; `None` where nobody looks ahead.
    pub(super) outlook: Option<Outlook>,
    pub(super) slices: Slices,
    /// Validation scores in the order they were reported.
    pub(super) validation: Vec<f64>,
    /// By sample: one more than the plan order (batch × ranks + rank) of the latest report of this epoch that scored it.
    /// Reports arrive in any order; the latest *position* wins, so the table does not depend on timing.
    pub(super) scored_at: Vec<u32>,
    pub(super) epoch_counts: Counts,
    pub(super) total: Counts,
    /// The state last loaded, and the ranks that have handed it in: every rank loads the same file, once.
    pub(super) loaded: Option<(u64, HashSet<u32>)>,
}

impl Job {
    pub(super) fn new(spec: JobSpec, samples: u32) -> Result<Self, SlicesError> {
        let slices = Slices::new(samples, spec.batch_size, spec.world_size, spec.tail)?;
        Ok(Self {
            spec,
            importance: Importance::new(samples),
            plan: None,
            outlook: None,
            slices,
            validation: Vec::new(),
            scored_at: vec![0; samples as usize],
            epoch_counts: Counts::default(),
            total: Counts::default(),
            loaded: None,
        })
    }

    /// The current epoch's number.
    pub(super) fn epoch(&self) -> Option<u32> {
        self.plan.as_ref().map(|plan| plan.epoch)
    }

    /// Applies a change to the epoch's and the job's counts alike.
    pub(super) fn count(&mut self, change: impl Fn(&mut Counts)) {
        change(&mut self.epoch_counts);
        change(&mut self.total);
    }
}
