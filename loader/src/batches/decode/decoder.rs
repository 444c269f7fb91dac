//! One decoder per worker thread: all buffers and handles that images of a kind share.

use shade_formats::index::Media;
use shade_images::{ImageFault, Size};

use super::DecodeFault;
use super::fit::Fit;
use super::planes::Planes;

/// Decodes records to planar RGB of a given size. Keeps its buffers from image to image, so that small images cost no
/// allocation of ours.
#[derive(Default)]
pub struct Decoder {
    images: shade_images::Decoder,
    planes: Planes,
}

impl Decoder {
    /// A decoder without buffers: the first images grow them.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes `bytes`, resizes so that the image just covers `height` x `width` pixels, crops its middle, and writes
    /// the red, the green and the blue plane into `out`: `3 * height * width` bytes.
    ///
    /// # Errors
    /// The image is damaged, of an unknown kind or too large, or `out` has another size. `out` is then unspecified.
    pub fn decode(
        &mut self,
        media: Media,
        bytes: &[u8],
        height: u32,
        width: u32,
        out: &mut [u8],
    ) -> Result<(), DecodeFault> {
        let expected = (u64::from(height) * u64::from(width)).saturating_mul(3);
        if expected == 0 || out.len() as u64 != expected {
            return Err(DecodeFault::Output { got: out.len() as u64, expected });
        }
        let target = Size { width, height };
        let written = self.decode_to(media, bytes, target, out);
        self.images.shrink();
        self.planes.shrink();
        written
    }

    fn decode_to(
        &mut self,
        media: Media,
        bytes: &[u8],
        target: Size,
        out: &mut [u8],
    ) -> Result<(), DecodeFault> {
        let reduction = |source| Fit::new(source, target).jpeg_reduction();
        let decoded = self.images.decode_reduced(media, bytes, reduction)?;
        let fit = Fit::new(decoded.source, target);
        self.planes
            .write(decoded.rgb, decoded.size, decoded.reduced_by, &fit, target, out)
            .map_err(|text| ImageFault::Corrupt { media, text }.into())
    }
}
