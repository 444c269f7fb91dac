//! A row between its geometry and its delivery.

use shade_job::ImageSpec;

use super::canvas::Canvas;
use super::colours::planes;
use crate::augment::crop_box::CropBox;
use crate::augment::planes::to_grey;
use crate::augment::randomness::Randomness;
use crate::augment::row::{RowFault, RowWriter};
use crate::augment::whole::write_planes;
use crate::{Pixels, Size, scratch, shrink};

/// Changes rows; keeps its buffers between images.
#[derive(Default)]
pub(in crate::augment) struct Workbench {
    row: Canvas,
    /// The row in grey.
    grey: Vec<u8>,
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
        mut random: Randomness,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), RowFault<E>> {
        let [before, after] = [Vec::new(), Vec::new()];
        let planar = ImageSpec { channels_last: false, grey: false, before, pixels: after, ..*spec };
        let size = Size { width: spec.width, height: spec.height };
        let row = self.row.planes(size);
        let copy = |at, piece: &[u8]| {
            let at = usize::try_from(at).ok();
            let place = at.and_then(|at| row.get_mut(at..)?.get_mut(..piece.len()));
            place.map(|place| place.copy_from_slice(piece)).ok_or(())
        };
        rows.write(pixels, crop, &planar, copy).map_err(|_| RowFault::Missing)?;
        let Self { row, grey, piece } = self;
        if crop.upside_down {
            turn_upside_down(row.planes(size), size);
        }
        row.change(&spec.pixels, size, &mut random);
        let row = row.planes(size);
        let written = match planes(row) {
            Some([red, green, blue]) if spec.grey => {
                let grey = scratch(grey, red.len());
                to_grey(red, green, blue, grey);
                write(0, grey)
            }
            _ => write_planes(row, spec.channels_last, piece, write),
        };
        written.map_err(RowFault::Write)
    }

    /// Frees the buffers if a large row made them grow.
    pub(in crate::augment) fn shrink(&mut self) {
        self.row.shrink();
        shrink(&mut self.grey);
        shrink(&mut self.piece);
    }
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
