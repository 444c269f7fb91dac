//! Places of MCUs and samples in an image, and in one that is reduced while it is decoded.

use std::ops::Range;

use super::frame::{BLOCK, Frame};
use super::{Region, Size};

/// Fewest columns of chroma that libjpeg interpolates.
const INTERPOLATED_MIN: u32 = 3;

/// A rectangle of MCUs ("units").
pub(super) struct Units {
    pub(super) columns: Range<u32>,
    pub(super) rows: Range<u32>,
}

/// An image's layout.
pub(super) struct Layout {
    /// The reduced image.
    size: Size,
    /// Pixels of an MCU in it.
    unit: Size,
    /// All MCUs: columns and rows.
    pub(super) columns: u32,
    pub(super) rows: u32,
    /// Samples along a block's side: in the first component, and in the others.
    sides: [u32; 2],
    /// Pixels for each sample of Cb and Cr, across and down: 1 or 2.
    pub(super) per_colour: [u32; 2],
}

impl Layout {
    /// The layout of the image divided by `by`: 1, 2, 4 or 8.
    pub(super) fn new(frame: &Frame<'_>, by: u32) -> Option<Self> {
        let first = frame.components.first().filter(|_| [1, 2, 4, 8].contains(&by))?;
        let [across, down] = [first.across, first.down];
        let side = BLOCK / by;
        let unit = Size { width: across * side, height: down * side };
        let (columns, rows) =
            (frame.size().width.div_ceil(BLOCK * across), frame.size().height.div_ceil(BLOCK * down));
        let size = frame.size().divided(by);
        // 4:2:0 chroma is reduced by half as much instead of being interpolated.
        let is_made_up_for = by > 1 && across == 2 && down == 2;
        let (colour_side, per_colour) =
            if is_made_up_for { (2 * side, [1, 1]) } else { (side, [across, down]) };
        let layout = Self { size, unit, columns, rows, sides: [side, colour_side], per_colour };
        // Here libjpeg repeats samples instead of interpolating.
        let is_repeated = across == 2 && (side == 1 || layout.component(1).width < INTERPOLATED_MIN);
        let has_colours = frame.components.len() > 1;
        (!has_colours || layout.per_colour == [1, 1] || !is_repeated).then_some(layout)
    }

    /// Samples along a block's side in component `at`.
    pub(super) fn side(&self, at: usize) -> usize {
        let [first, others] = self.sides;
        (if at == 0 { first } else { others }) as usize
    }

    /// Size of component `at` in samples.
    pub(super) fn component(&self, at: usize) -> Size {
        let [across, down] = if at == 0 { [1, 1] } else { self.per_colour };
        Size { width: self.size.width.div_ceil(across), height: self.size.height.div_ceil(down) }
    }

    /// The MCUs that the pixels of `region` depend on: with subsampled chroma also those beside it.
    pub(super) fn around(&self, region: Region) -> Units {
        let along = |from: u32, len: u32, per_colour: u32, unit: u32, end: u32| {
            let margin = if per_colour == 1 { 0 } else { per_colour };
            from.saturating_sub(margin) / unit..(from + len + margin).div_ceil(unit).min(end)
        };
        let Region { left, top, size } = region;
        let [across, down] = self.per_colour;
        Units {
            columns: along(left, size.width, across, self.unit.width, self.columns),
            rows: along(top, size.height, down, self.unit.height, self.rows),
        }
    }
}
