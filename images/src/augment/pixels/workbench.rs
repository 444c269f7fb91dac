//! A row between its geometry and its delivery: the buffers, and the operations in turn.

use shade_formats::Draw;
use shade_formats::control::ImageSpec;

use super::operation::Operation;
use super::{colours, curves, draws, hue, moved, neighbours};
use crate::augment::randomness::Randomness;
use crate::{Size, scratch, shrink};

/// Changes rows; keeps its buffers between images.
#[derive(Default)]
pub(in crate::augment) struct Workbench {
    row: Vec<u8>,
    spare: Vec<u8>,
    blur: neighbours::Blur,
}

impl Workbench {
    /// Place of the row's geometry: three planes. The caller writes every byte of it.
    pub(in crate::augment) fn room(&mut self, spec: &ImageSpec) -> &mut [u8] {
        scratch(&mut self.row, planes_bytes(spec))
    }

    /// Does the operations that `spec` and `draw` define on the row in [`room`](Self::room), after
    /// turning it `upside_down`, and returns it.
    pub(in crate::augment) fn finish(&mut self, spec: &ImageSpec, draw: Draw, upside_down: bool) -> &[u8] {
        let size = Size { width: spec.width, height: spec.height };
        let Self { row, spare, blur } = self;
        let row = scratch(row, planes_bytes(spec));
        if upside_down {
            turn_upside_down(row, size);
        }
        draws::draw(&spec.pixels, size, &mut Randomness::of_pixels(draw), |operation| match operation {
            Operation::Brightness(factor) => colours::brightness(row, factor),
            Operation::Contrast(factor) => colours::contrast(row, factor),
            Operation::Saturation(factor) => colours::saturation(row, factor),
            Operation::Hue(shift) => hue::hue(row, shift),
            Operation::Grey => colours::grayscale(row),
            Operation::Blur { kernel, sigma } => blur.blur(row, size, kernel, sigma),
            Operation::Solarize(threshold) => curves::solarize(row, threshold),
            Operation::Posterize(bits) => curves::posterize(row, bits),
            Operation::Invert => curves::invert(row),
            Operation::Autocontrast => curves::autocontrast(row),
            Operation::Equalize => curves::equalize(row),
            Operation::Sharpness(factor) => neighbours::sharpness(row, size, factor, spare),
            Operation::Move(motion, how) => moved::shift(row, size, motion, how, spare),
            Operation::Erase(area, colour) => moved::erase(row, size, area, colour),
        });
        row
    }

    /// Frees the buffers if a large row made them grow.
    pub(in crate::augment) fn shrink(&mut self) {
        shrink(&mut self.row);
        shrink(&mut self.spare);
        self.blur.shrink();
    }
}

/// Bytes of a row's three planes.
fn planes_bytes(spec: &ImageSpec) -> usize {
    3 * spec.width as usize * spec.height as usize
}

/// Mirrors each plane from top to bottom.
fn turn_upside_down(row: &mut [u8], size: Size) {
    let (width, height) = (size.width as usize, size.height as usize);
    for plane in row.chunks_exact_mut((width * height).max(1)) {
        // The middle one of an odd number of lines stays.
        let (upper, rest) = plane.split_at_mut(height / 2 * width);
        for (upper, lower) in upper.chunks_exact_mut(width).zip(rest.chunks_exact_mut(width).rev()) {
            upper.swap_with_slice(lower);
        }
    }
}
