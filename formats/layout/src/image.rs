//! What core, workers and packer share about an image: its size, and its row in a plan.

use crate::SampleId;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Draw {
    seed: u64,
    epoch: u32,
    /// Which row of the epoch.
    row: u64,
}

/// Tells a use from a position.
const IS_USE: u64 = 1 << 63;

impl Draw {
    /// The row at `position` of the plan of `epoch`, in a job with this seed.
    #[must_use]
    pub fn at(seed: u64, epoch: u32, position: u32) -> Self {
        Self { seed, epoch, row: position.into() }
    }

    /// Use number `nth` of `sample` in `epoch`, counted from 0, in all jobs of a group: wherever it
    /// is in their plans, it is the same image. `group` is the digest of the group's name.
    #[must_use]
    pub fn of_use(group: u64, epoch: u32, sample: SampleId, nth: u16) -> Self {
        Self { seed: group, epoch, row: IS_USE | u64::from(sample.0) << 16 | u64::from(nth) }
    }

    /// The job's seed, or the group's digest.
    #[must_use]
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// The epoch, from 0.
    #[must_use]
    pub fn epoch(self) -> u32 {
        self.epoch
    }

    /// A number that no other row of the epoch has.
    #[must_use]
    pub fn row(self) -> u64 {
        self.row
    }
}
