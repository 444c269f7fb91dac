//! What a job knows whose nodes pool their scores.

use std::collections::{BTreeMap, BTreeSet};

use shade_formats::SampleId;
use shade_job::JobSpec;

/// What a node needs to draw plans from the scores of all.
pub(super) struct Pool {
    /// Digest of the state that was loaded last; 0: none. What others have told before is of no
    /// use any more.
    pub(super) state: u64,
    /// By sample: it has another score, or was delivered here, since all nodes had one table.
    pub(super) scored: Vec<bool>,
    pub(super) delivered: Vec<bool>,
    /// What the others are told for the epoch that is due.
    pub(super) told: Option<Told>,
    /// By epoch that will be drawn: the ranks of other nodes that were heard.
    pub(super) heard: BTreeMap<u32, BTreeSet<u32>>,
    /// The epoch before which all nodes were heard, so that it can be drawn.
    pub(super) ready: Option<u32>,
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
        spec.pools_scores().then(|| Self {
            state: 0,
            scored: vec![false; samples as usize],
            delivered: vec![false; samples as usize],
            told: None,
            heard: BTreeMap::new(),
            ready: None,
            list_crc32c: None,
        })
    }

    /// All nodes have one table, from which this epoch can be drawn.
    pub(super) fn settle(&mut self, ready: Option<u32>) {
        self.scored.fill(false);
        self.delivered.fill(false);
        (self.told, self.heard, self.ready) = (None, BTreeMap::new(), ready);
    }

    /// The sample has another score.
    pub(super) fn note_score(&mut self, sample: SampleId) {
        self.scored.get_mut(sample.index()).into_iter().for_each(|scored| *scored = true);
    }

    /// The sample was delivered.
    pub(super) fn note_delivery(&mut self, sample: SampleId) {
        self.delivered.get_mut(sample.index()).into_iter().for_each(|delivered| *delivered = true);
    }
}
