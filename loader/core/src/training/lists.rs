//! What a job with ranks on other nodes knows of the lists that all of them have drawn.
#![warn(clippy::indexing_slicing)]

use shade_job::JobSpec;

use crate::plan::Part;

/// What other nodes know of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Yes,
    /// It was told, and nobody knows yet whether all have heard it.
    Told,
    No,
}

/// What a job with ranks on other nodes needs to know of these.
pub(super) struct SharedScores {
    /// The ranks here.
    pub(super) part: Part,
    /// By sample: what the others know of its score.
    pub(super) known: Vec<Known>,
    /// The lists of the epoch that was drawn last.
    pub(super) lists: Lists,
    /// What the others are told of it.
    pub(super) told: Vec<u8>,
}

/// The lists of an epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    pub(super) epoch: u32,
    /// Whether they were drawn by losses.
    pub(super) by_losses: bool,
    /// By stratum: the list's CRC32C, if it is known here.
    pub(super) crcs: Vec<Option<u32>>,
}

impl Lists {
    /// The lists of a saved state.
    pub(super) fn of(by_losses: bool, crcs: Vec<u32>) -> Self {
        Self { epoch: 0, by_losses, crcs: crcs.into_iter().map(Some).collect() }
    }

    /// The CRC32Cs, if all are known.
    pub(super) fn all(&self) -> Option<Vec<u32>> {
        self.crcs.iter().copied().collect()
    }
}

impl SharedScores {
    /// `None` if plans of the job do not depend on scores, on others than of one node, or on more
    /// than can be told: on what is cached, on an epoch before the last, or on who had a stratum.
    /// Nodes that draw one plan together have another [`Pool`](super::pool::Pool) of scores.
    pub(super) fn of(spec: &JobSpec, samples: u32) -> Option<Self> {
        let plan = &spec.plan;
        let cannot = plan.depends_on_residents() || plan.draw_ahead || plan.mix > 0.0;
        let is_told = plan.depends_on_its_node() && !cannot && !spec.pools_scores();
        (is_told && spec.local_ranks() < spec.world_size).then(|| Self {
            part: Part::of(Vec::new(), spec.world_size),
            known: vec![Known::Yes; samples as usize],
            lists: Lists::default(),
            told: Vec::new(),
        })
    }
}
