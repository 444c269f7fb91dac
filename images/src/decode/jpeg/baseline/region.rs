//! Sizes and places in an image.

/// Columns and rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Columns and rows.
    pub size: Size,
}

impl Size {
    /// Number of pixels.
    pub(super) fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Both sides divided by `by`, rounded up.
    #[must_use]
    pub fn divided(self, by: u32) -> Self {
        let by = by.max(1);
        Self { width: self.width.div_ceil(by), height: self.height.div_ceil(by) }
    }
}

impl Region {
    /// All of an image.
    #[must_use]
    pub fn whole(size: Size) -> Self {
        Self { left: 0, top: 0, size }
    }

    /// Whether it has pixels and lies within an image of `size`.
    pub(super) fn is_within(self, size: Size) -> bool {
        let fits = |from: u32, len: u32, end: u32| from.checked_add(len).is_some_and(|to| to <= end);
        let Self { left, top, size: own } = self;
        own.pixels() > 0 && fits(left, own.width, size.width) && fits(top, own.height, size.height)
    }
}
