//! The table of next uses: for each sample the position in the plan at which it is used next.

use shade_formats::SampleId;

/// Not known.
const UNKNOWN: u32 = u32::MAX;

/// Positions of the plan by sample id.
pub(super) struct NextUses {
    samples: u32,
    /// Empty while nothing is known.
    positions: Vec<u32>,
}

impl NextUses {
    /// An empty table for samples `0..samples`. It takes 4 bytes a sample while anything is known.
    pub(super) fn new(samples: u32) -> Self {
        Self { samples, positions: Vec::new() }
    }

    /// The position of the sample's next use.
    pub(super) fn get(&self, id: SampleId) -> Option<u32> {
        self.positions.get(id.index()).copied().filter(|&position| position != UNKNOWN)
    }

    pub(super) fn set(&mut self, id: SampleId, position: Option<u32>) {
        if self.positions.is_empty() {
            self.positions.resize(self.samples as usize, UNKNOWN);
        }
        if let Some(slot) = self.positions.get_mut(id.index()) {
            *slot = position.unwrap_or(UNKNOWN);
        }
    }

    /// Forgets all positions and frees their memory: drawing the next plan and looking through it
    /// needs as much for a while.
    pub(super) fn clear(&mut self) {
        self.positions = Vec::new();
    }
}
