//! What core, workers, packer and clients share about an image: its size, its row in a plan, and
//! what a batch says of its views.

use crate::{Dtype, SampleId};

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

/// Shape of the images of one view in a decoded batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewShape {
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
    /// Values of a pixel: 3 for colours, 1 for grey.
    pub channels: u32,
    /// Type of a value.
    pub dtype: Dtype,
}

impl ViewShape {
    /// Bytes of one image. Below 2^32 for sides up to
    /// [`IMAGE_SIDE_MAX`](crate::limits::IMAGE_SIDE_MAX).
    #[must_use]
    pub fn bytes(self) -> u64 {
        let values = u64::from(self.channels) * u64::from(self.height) * u64::from(self.width);
        values * self.dtype.bytes() as u64
    }
}

/// How a source image became one view of a row: what boxes and masks must follow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Geometry {
    /// Left, top, width and height of the part of the source that became the view, in pixels of the
    /// source. What lies outside of the source is black in the view.
    pub crop: [f32; 4],
    /// How the view is mirrored afterwards: [`MIRRORED`] and [`UPSIDE_DOWN`], added, or 0.
    pub flipped: u8,
}

/// Bit of [`Geometry::flipped`]: mirrored from left to right.
pub const MIRRORED: u8 = 1 << 0;
/// Bit of [`Geometry::flipped`]: mirrored from top to bottom.
pub const UPSIDE_DOWN: u8 = 1 << 1;

/// A row of an epoch: the key of all random numbers of the row's image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Draw {
    /// The epoch, and whose.
    pub draws: EpochDraws,
    /// Which row of it.
    pub row: DrawnRow,
}

/// What the keys of all rows of an epoch have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EpochDraws {
    /// The job's seed, or the digest of its group's name.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u32,
}

/// A number that no other row of the epoch has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrawnRow(u64);

/// Tells a use from a position.
const IS_USE: u64 = 1 << 63;

impl DrawnRow {
    /// The row at `position` of the epoch's plan.
    #[must_use]
    pub fn at(position: u32) -> Self {
        Self(position.into())
    }

    /// Use number `nth` of `sample` in the epoch, counted from 0, in all jobs of a group: wherever
    /// it is in their plans, it is the same image.
    #[must_use]
    pub fn of_use(sample: SampleId, nth: u16) -> Self {
        Self(IS_USE | u64::from(sample.0) << 16 | u64::from(nth))
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl Draw {
    /// The row at `position` of the plan of `epoch`, in a job with this seed.
    #[must_use]
    pub fn at(seed: u64, epoch: u32, position: u32) -> Self {
        Self { draws: EpochDraws { seed, epoch }, row: DrawnRow::at(position) }
    }
}
