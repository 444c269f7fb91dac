//! One decoder per worker thread: all buffers and handles that images of a kind share.

use shade_formats::index::Media;

use super::DecodeFault;
use super::fit::{Fit, Size};
use super::jpeg::Jpeg;
use super::limits::shrink;
use super::planes::Planes;
use super::png::Png;
use super::ppm;

/// Decodes records to planar RGB of a given size. Keeps its buffers from image to image, so that small images cost no
/// allocation of ours.
#[derive(Default)]
pub struct Decoder {
    jpeg: Jpeg,
    png: Png,
    planes: Planes,
    /// The decoded image, interleaved.
    rgb: Vec<u8>,
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
        self.shrink();
        written
    }

    fn decode_to(
        &mut self,
        media: Media,
        bytes: &[u8],
        target: Size,
        out: &mut [u8],
    ) -> Result<(), DecodeFault> {
        let rgb = &mut self.rgb;
        let (source, size, by) = match media {
            Media::Jpeg => {
                let decoded = self.jpeg.decode(bytes, target, rgb)?;
                (decoded.source, decoded.size, decoded.reduced_by)
            }
            Media::Png => {
                let size = self.png.decode(bytes, rgb)?;
                (size, size, 1)
            }
            Media::Ppm => {
                let size = ppm::decode(bytes, rgb)?;
                (size, size, 1)
            }
            other => {
                return Err(DecodeFault::Unsupported { media: other, detail: "only jpeg, png and ppm can" });
            }
        };
        let pixels = size.width as usize * size.height as usize;
        let rgb = rgb.get(..pixels * 3).unwrap_or_default();
        let fit = Fit::new(source, target);
        self.planes
            .write(rgb, size, by, &fit, target, out)
            .map_err(|text| DecodeFault::Corrupt { media, text })
    }

    fn shrink(&mut self) {
        self.jpeg.shrink();
        self.png.shrink();
        self.planes.shrink();
        shrink(&mut self.rgb);
    }
}
