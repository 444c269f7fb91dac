//! A row between its geometry and its delivery: the buffers, and the operations in turn.

use shade_job::ImageSpec;

use super::colours::planes;
use super::operation::Operation;
use super::{colours, curves, draws, hue, moved, neighbours, pillow_blur};
use crate::augment::crop_box::CropBox;
use crate::augment::planes::to_grey;
use crate::augment::randomness::Randomness;
use crate::augment::row::{RowFault, RowWriter};
use crate::augment::whole::write_planes;
use crate::{Pixels, Size, scratch, shrink};

/// Changes rows; keeps its buffers between images.
#[derive(Default)]
pub(in crate::augment) struct Workbench {
    /// The row's three planes.
    row: Vec<u8>,
    /// A copy of what an operation changes, or the row in grey.
    spare: Vec<u8>,
    blur: neighbours::Blur,
    /// A piece of an interleaved row.
    piece: Vec<u8>,
}

impl Workbench {
    /// As [`RowWriter::write`], with the operations of `spec`, whose numbers are `random`.
    pub(in crate::augment) fn write<E>(
        &mut self,
        rows: &mut RowWriter,
        pixels: &Pixels<'_>,
        crop: &CropBox,
        spec: &ImageSpec,
        random: Randomness,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), RowFault<E>> {
        let planar = ImageSpec { channels_last: false, grey: false, pixels: Vec::new(), ..*spec };
        let row = scratch(&mut self.row, planes_bytes(spec));
        let copy = |at, piece: &[u8]| {
            let at = usize::try_from(at).ok();
            let place = at.and_then(|at| row.get_mut(at..)?.get_mut(..piece.len()));
            place.map(|place| place.copy_from_slice(piece)).ok_or(())
        };
        rows.write(pixels, crop, &planar, copy).map_err(|_| RowFault::Missing)?;
        self.change(spec, random, crop.upside_down);
        let Self { row, spare, piece, .. } = self;
        let row = scratch(row, planes_bytes(spec));
        let written = match planes(row) {
            Some([red, green, blue]) if spec.grey => {
                let grey = scratch(spare, red.len());
                to_grey(red, green, blue, grey);
                write(0, grey)
            }
            _ => write_planes(row, spec.channels_last, piece, write),
        };
        written.map_err(RowFault::Write)
    }

    /// Turns the row `upside_down`, then does the operations that `spec` and `random` define.
    fn change(&mut self, spec: &ImageSpec, mut random: Randomness, upside_down: bool) {
        let size = Size { width: spec.width, height: spec.height };
        let Self { row, spare, blur, .. } = self;
        let row = scratch(row, planes_bytes(spec));
        if upside_down {
            turn_upside_down(row, size);
        }
        draws::draw(&spec.pixels, size, &mut random, &mut |operation| match operation {
            Operation::Brightness(factor) => colours::brightness(row, factor),
            Operation::Contrast(factor) => colours::contrast(row, factor),
            Operation::Saturation(factor) => colours::saturation(row, factor),
            Operation::Hue(shift) => hue::hue(row, shift),
            Operation::Grey => colours::grayscale(row),
            Operation::Permute(from) => colours::permute(row, from, spare),
            Operation::Blur { kernel, sigma } => blur.blur(row, size, kernel, sigma),
            Operation::PillowBlur(radius) => pillow_blur::blur(row, size, radius, spare),
            Operation::Solarize(threshold) => curves::solarize(row, threshold),
            Operation::SolarizeAdd(add) => curves::solarize_add(row, add),
            Operation::Posterize(bits) => curves::posterize(row, bits),
            Operation::Invert => curves::invert(row),
            Operation::Autocontrast => curves::autocontrast(row),
            Operation::Equalize => curves::equalize(row),
            Operation::Sharpness(factor) => neighbours::sharpness(row, size, factor, spare),
            Operation::Move(motion, how) => moved::shift(row, size, motion, how, spare),
            Operation::Erase(area, colour) => moved::erase(row, size, area, colour),
        });
    }

    /// Frees the buffers if a large row made them grow.
    pub(in crate::augment) fn shrink(&mut self) {
        shrink(&mut self.row);
        shrink(&mut self.spare);
        shrink(&mut self.piece);
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
