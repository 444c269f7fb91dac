//! A decoded image whose pixels change before its geometry: by transforms that stand before a crop.

use shade_job::ImageSpec;

use super::canvas::Canvas;
use super::colours::planes;
use crate::augment::planes::{join, split};
use crate::augment::randomness::Randomness;
use crate::{Area, ImageFault, Pixels, scratch, shrink};

/// Changes whole images; keeps its buffers between them.
#[derive(Default)]
pub(in crate::augment) struct Before {
    canvas: Canvas,
    /// The changed image, interleaved.
    rgb: Vec<u8>,
}

impl Before {
    /// The image after the operations of `spec` that come before its geometry, whose numbers are
    /// `random`. `None` if a part of the image was not decoded, or in a lower resolution.
    pub(in crate::augment) fn change<'a>(
        &'a mut self,
        pixels: &Pixels<'a>,
        spec: &ImageSpec,
        random: &mut Randomness,
    ) -> Option<Result<Pixels<'a>, ImageFault>> {
        let size = pixels.source;
        if pixels.area != Area::whole(size) || pixels.reduced_by != 1 {
            return None;
        }
        if let Err(error) = spec.fits_before([size.height, size.width]) {
            return Some(Err(ImageFault::Transform { image: size, text: error.to_string() }));
        }
        let [red, green, blue] = planes(self.canvas.planes(size))?;
        split(pixels.rgb.as_chunks().0, red, green, blue);
        self.canvas.change(&spec.before, size, random);
        let [red, green, blue] = planes(self.canvas.planes(size))?;
        let rgb = scratch(&mut self.rgb, pixels.rgb.len());
        join(red, green, blue, rgb.as_chunks_mut().0);
        Some(Ok(Pixels { rgb, ..*pixels }))
    }

    /// Frees the buffers if a large image made them grow.
    pub(in crate::augment) fn shrink(&mut self) {
        self.canvas.shrink();
        shrink(&mut self.rgb);
    }
}
