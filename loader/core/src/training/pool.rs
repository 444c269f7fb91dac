//! What a job knows whose nodes pool their scores.

use std::collections::{BTreeMap, BTreeSet};

use shade_job::JobSpec;

/// What a node needs to draw plans from the scores of all.
pub(super) struct Pool {
    /// By sample: it has another score since the last draw.
    pub(super) scored: Vec<bool>,
    /// What the others are told for the epoch that is due.
    pub(super) told: Option<Told>,
    /// By epoch that will be drawn: the ranks of other nodes that were heard.
    pub(super) heard: BTreeMap<u32, BTreeSet<u32>>,
    /// CRC32C of the list that was drawn last, unless a state has brought it.
    pub(super) list_crc32c: Option<u32>,
}

/// What other nodes are told before this epoch is drawn.
pub(super) struct Told {
    pub(super) epoch: u32,
    pub(super) bytes: Vec<u8>,
}

impl Pool {
    /// `None` if nodes draw no plan together.
    pub(super) fn of(spec: &JobSpec, samples: u32) -> Option<Self> {
        let scored = vec![false; samples as usize];
        spec.pools_scores().then(|| Self { scored, told: None, heard: BTreeMap::new(), list_crc32c: None })
    }
}
