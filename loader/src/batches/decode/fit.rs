//! Which box of an image becomes the target: torchvision's `Resize` of the short side, then `CenterCrop`.
//!
//! ```text
//!   source                     resized so that it just covers      target, cropped
//!   +--------------------+     the target                          from the middle
//!   |     |        |     |     +-------------+                     +-------+
//!   |     |  box   |     |  -> |   |     |   |                  -> |       |
//!   +--------------------+     +-------------+                     +-------+
//! ```
//!
//! Only the box is resized. The result is the same: a filter's taps reach beyond the box, as they would in the whole.

use shade_images::{JPEG_REDUCTIONS, Size};

/// How a source becomes a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    source: Size,
    target: Size,
    /// The whole source after resizing: it covers the target and equals it in at least one side.
    resized: (u64, u64),
    /// The target's corner in the resized source: left, top.
    corner: (u64, u64),
}

/// A box of the source in (fractional) pixels of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SourceBox {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Fit {
    /// The fit of `source` to `target`; neither has an empty side.
    pub(super) fn new(source: Size, target: Size) -> Self {
        let (width, height) = (u64::from(source.width.max(1)), u64::from(source.height.max(1)));
        let (target_width, target_height) = (u64::from(target.width), u64::from(target.height));
        // The side that is shorter, measured in targets, becomes the target's; the other follows, rounded down.
        let resized = if width * target_height <= height * target_width {
            (target_width, target_width * height / width)
        } else {
            (target_height * width / height, target_height)
        };
        let corner = (
            half_to_even(resized.0.saturating_sub(target_width)),
            half_to_even(resized.1.saturating_sub(target_height)),
        );
        Self { source, target, resized, corner }
    }

    /// The largest divisor by which the source may be reduced before resizing without becoming smaller than the
    /// resized image.
    pub(super) fn jpeg_reduction(&self) -> u32 {
        let covers = |by: u32| {
            u64::from(self.source.width) >= self.resized.0 * u64::from(by)
                && u64::from(self.source.height) >= self.resized.1 * u64::from(by)
        };
        JPEG_REDUCTIONS.into_iter().find(|&by| covers(by)).unwrap_or(1)
    }

    /// The target's corner (left, top) in the source, where the source is cropped only and not resized.
    pub(super) fn crop_only(&self) -> Option<(usize, usize)> {
        let source = (u64::from(self.source.width), u64::from(self.source.height));
        let left = usize::try_from(self.corner.0).ok()?;
        let top = usize::try_from(self.corner.1).ok()?;
        (self.resized == source).then_some((left, top))
    }

    /// The box that becomes the target, in pixels of the source reduced `by`.
    ///
    /// A reduced JPEG has its sides rounded up, so the box is computed from the true size and then divided: computed
    /// from the reduced size it would be off by a fraction of a pixel.
    #[expect(clippy::cast_precision_loss, reason = "products of two sides are below 2^53")]
    pub(super) fn source_box(&self, by: u32) -> SourceBox {
        let along = |steps: u64, side: u32, resized: u64| {
            (steps * u64::from(side)) as f64 / (resized.max(1) * u64::from(by)) as f64
        };
        let (resized_width, resized_height) = self.resized;
        SourceBox {
            left: along(self.corner.0, self.source.width, resized_width),
            top: along(self.corner.1, self.source.height, resized_height),
            width: along(u64::from(self.target.width), self.source.width, resized_width),
            height: along(u64::from(self.target.height), self.source.height, resized_height),
        }
    }
}

/// Half of `span`, rounded to the nearest integer and ties to even, as Python's `round` does in `CenterCrop`.
fn half_to_even(span: u64) -> u64 {
    let half = span / 2;
    if span % 2 == 1 { half + half % 2 } else { half }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    #[test]
    fn the_short_side_is_resized_and_the_middle_cropped() {
        let fit = Fit::new(size(500, 375), size(224, 224));
        assert_eq!(fit.resized, (298, 224)); // int(224 * 500 / 375)
        assert_eq!(fit.corner, (37, 0));
        let fit = Fit::new(size(375, 500), size(224, 224));
        assert_eq!((fit.resized, fit.corner), ((224, 298), (0, 37)));
    }

    #[test]
    fn corners_round_to_even_as_python_does() {
        // round(0.5) = 0, round(1.5) = 2, round(2.5) = 2, round(3.5) = 4
        assert_eq!([1, 3, 5, 7].map(half_to_even), [0, 2, 2, 4]);
        assert_eq!([0, 2, 4, 6].map(half_to_even), [0, 1, 2, 3]);
    }

    #[test]
    fn a_target_that_is_not_square_is_covered() {
        let fit = Fit::new(size(100, 100), size(40, 20));
        assert_eq!((fit.resized, fit.corner), ((40, 40), (0, 10)));
        let fit = Fit::new(size(1, 1000), size(30, 20));
        assert_eq!((fit.resized, fit.corner), ((30, 30_000), (0, 14_990)));
    }

    #[test]
    fn reduction_never_goes_below_the_resized_image() {
        let square = |side| Fit::new(size(side, side), size(100, 100)).jpeg_reduction();
        assert_eq!([99, 100, 199, 200, 399, 400, 799, 800].map(square), [1, 1, 1, 2, 2, 4, 4, 8]);
    }

    #[test]
    fn equal_sizes_are_only_cropped() {
        assert_eq!(Fit::new(size(28, 28), size(28, 28)).crop_only(), Some((0, 0)));
        assert_eq!(Fit::new(size(30, 28), size(28, 28)).crop_only(), Some((1, 0)));
        assert_eq!(Fit::new(size(30, 30), size(28, 28)).crop_only(), None);
    }

    #[test]
    fn the_box_spans_the_source_where_nothing_is_cropped() {
        let found = Fit::new(size(201, 201), size(100, 100)).source_box(2);
        assert_eq!(found, SourceBox { left: 0.0, top: 0.0, width: 100.5, height: 100.5 });
    }
}
