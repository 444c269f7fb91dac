//! The next use of each sample, where it is known: what turns the order of importance into lookahead's. ALGORITHMS 4.

use shade_formats::SampleId;

/// Not known.
const UNKNOWN: u32 = u32::MAX;

/// Positions of the plan by sample id.
pub(super) struct Foresight {
    next: Vec<u32>,
}

impl Foresight {
    /// Room for what will be known of samples `0..samples`: 4 bytes each.
    pub(super) fn of(samples: u32) -> Self {
        Self { next: vec![UNKNOWN; samples as usize] }
    }

    /// The position of the sample's next use.
    pub(super) fn next(&self, id: SampleId) -> Option<u32> {
        self.next.get(id.index()).copied().filter(|&next| next != UNKNOWN)
    }

    pub(super) fn set(&mut self, id: SampleId, next: Option<u32>) {
        if let Some(slot) = self.next.get_mut(id.index()) {
            *slot = next.unwrap_or(UNKNOWN);
        }
    }

    /// Nothing is known any more.
    pub(super) fn clear(&mut self) {
        self.next.fill(UNKNOWN);
    }
}
