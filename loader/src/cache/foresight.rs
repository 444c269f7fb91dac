//! The next use of each sample, where it is known: what turns the order of importance into lookahead's.

use shade_formats::SampleId;

/// Not known.
const UNKNOWN: u32 = u32::MAX;

/// Positions of the plan by sample id.
pub(super) struct Foresight {
    samples: u32,
    /// Empty where nothing is known.
    next: Vec<u32>,
}

impl Foresight {
    /// What will be known of samples `0..samples`: 4 bytes each while anything is.
    pub(super) fn of(samples: u32) -> Self {
        Self { samples, next: Vec::new() }
    }

    /// The position of the sample's next use.
    pub(super) fn next(&self, id: SampleId) -> Option<u32> {
        self.next.get(id.index()).copied().filter(|&next| next != UNKNOWN)
    }

    pub(super) fn set(&mut self, id: SampleId, next: Option<u32>) {
        if self.next.is_empty() {
            self.next.resize(self.samples as usize, UNKNOWN);
        }
        if let Some(slot) = self.next.get_mut(id.index()) {
            *slot = next.unwrap_or(UNKNOWN);
        }
    }

    /// Nothing is known any more. The memory is given back: what comes next, a plan to be drawn and looked through, needs as
    /// much for a while.
    pub(super) fn clear(&mut self) {
        self.next = Vec::new();
    }
}
