//! What core, workers and packer share about an image: its size, and its row in a plan.

/// Columns and rows, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// How many pixels it has.
    #[must_use]
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Both sides divided by `by`, rounded up.
    #[must_use]
    pub fn divided(self, by: u32) -> Self {
        let by = by.max(1);
        Self { width: self.width.div_ceil(by), height: self.height.div_ceil(by) }
    }
}

/// A row of an epoch: the key of all random numbers of the row's image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// The job's seed.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The row's position in the epoch's plan.
    pub position: u32,
}
