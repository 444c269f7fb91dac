//! The part of an image to decode, so that a decoder can skip the rest.

use crate::Size;

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Columns and rows.
    pub size: Size,
}

impl Area {
    /// All of an image.
    #[must_use]
    pub fn whole(size: Size) -> Self {
        Self { left: 0, top: 0, size }
    }

    /// The part of the area that lies within an image of `size`.
    pub(crate) fn within(self, size: Size) -> Self {
        let (left, top) = (self.left.min(size.width), self.top.min(size.height));
        let width = self.size.width.min(size.width - left);
        let height = self.size.height.min(size.height - top);
        Self { left, top, size: Size { width, height } }
    }

    /// The pixels of the image divided by `by` that show the area: rounded outwards.
    pub(crate) fn divided(self, by: u32) -> Self {
        let Self { left, top, size } = self;
        let along = |from: u32, len: u32| (from / by, (from + len).div_ceil(by) - from / by);
        let ((left, width), (top, height)) = (along(left, size.width), along(top, size.height));
        Self { left, top, size: Size { width, height } }
    }
}

/// Pixels of a resized image along one side, and where they lie in its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// Where the resized image begins, in the source's pixels.
    pub(crate) start: f64,
    /// The source's pixels for each of the resized image.
    pub(crate) scale: f64,
    /// The first pixel of the resized image, and how many there are from it on.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Span {
    /// The middle of pixel number `at`, from the first one on, in the source's pixels.
    pub(crate) fn middle(&self, at: u32) -> f64 {
        self.start + (f64::from(self.first) + f64::from(at) + 0.5) * self.scale
    }
}

/// The wanted part of an image. Only JPEG uses it; other images are decoded whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The pixels that matter, in the image's own size. More may come back.
    pub area: Area,
    /// 1, or one of [`crate::JPEG_REDUCTIONS`]: the image is divided by it while it is decoded.
    pub reduce_by: u32,
}

impl Part {
    /// All of an image of `size`.
    #[must_use]
    pub fn whole(size: Size) -> Self {
        Self { area: Area::whole(size), reduce_by: 1 }
    }

    /// The smallest part around both, reduced as little as either asks for.
    pub(crate) fn joined(self, other: Self) -> Self {
        let along = |from: u32, len: u32, other: u32, other_len: u32| {
            let start = from.min(other);
            (start, (from + len).max(other + other_len) - start)
        };
        let (a, b) = (self.area, other.area);
        let (left, width) = along(a.left, a.size.width, b.left, b.size.width);
        let (top, height) = along(a.top, a.size.height, b.top, b.size.height);
        let area = Area { left, top, size: Size { width, height } };
        Self { area, reduce_by: self.reduce_by.min(other.reduce_by) }
    }
}
