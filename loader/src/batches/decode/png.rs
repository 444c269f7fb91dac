//! PNG of every colour type and depth, interlaced or not. Of an animation, the first frame.

use std::io::Cursor;

use png::{BitDepth, ColorType, DecodingError, Transformations};
use shade_formats::index::Media;

use super::DecodeFault;
use super::fit::Size;
use super::limits::{check_size, scratch, shrink};

/// The buffer for images whose pixels are not RGB of 8 bits.
#[derive(Default)]
pub(super) struct Png {
    samples: Vec<u8>,
}

impl Png {
    /// Decodes `bytes` into `rgb`.
    pub(super) fn decode(&mut self, bytes: &[u8], rgb: &mut Vec<u8>) -> Result<Size, DecodeFault> {
        let mut decoder = png::Decoder::new(Cursor::new(bytes));
        // Nobody reads them here, and both may be compressed.
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        decoder.set_transformations(Transformations::EXPAND);
        let header = decoder.read_header_info().map_err(corrupt)?;
        let size = Size { width: header.width, height: header.height };
        check_size(size.width.into(), size.height.into())?;

        let mut reader = decoder.read_info().map_err(corrupt)?;
        let (colour, depth) = reader.output_color_type();
        let len = reader.output_buffer_size().ok_or_else(|| too_large(size))?;
        if (colour, depth) == (ColorType::Rgb, BitDepth::Eight) {
            reader.next_frame(scratch(rgb, len)).map_err(corrupt)?;
            return Ok(size);
        }
        let samples = scratch(&mut self.samples, len);
        reader.next_frame(samples).map_err(corrupt)?;
        let pixels = size.width as usize * size.height as usize;
        to_rgb(samples, colour, depth, scratch(rgb, pixels * 3));
        Ok(size)
    }

    /// Gives back what one large image made the buffer grow to.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.samples);
    }
}

/// Pixels as `Transformations::EXPAND` leaves them (8 or 16 bits a sample, no palette) to RGB, alpha dropped.
fn to_rgb(samples: &[u8], colour: ColorType, depth: BitDepth, rgb: &mut [u8]) {
    use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
    let grey = |value: u8| [value; 3];
    match (colour, depth) {
        (Grayscale, BitDepth::Sixteen) => each::<2>(samples, rgb, |&[high, low]| grey(saturate(high, low))),
        (GrayscaleAlpha, BitDepth::Sixteen) => each::<4>(samples, rgb, |&[high, ..]| grey(high)),
        (Rgb, BitDepth::Sixteen) => each::<6>(samples, rgb, |&[r, _, g, _, b, _]| [r, g, b]),
        (Rgba, BitDepth::Sixteen) => each::<8>(samples, rgb, |&[r, _, g, _, b, ..]| [r, g, b]),
        (Grayscale | Indexed, _) => each::<1>(samples, rgb, |&[value]| grey(value)),
        (GrayscaleAlpha, _) => each::<2>(samples, rgb, |&[value, _]| grey(value)),
        (Rgb, _) => each::<3>(samples, rgb, |&pixel| pixel),
        (Rgba, _) => each::<4>(samples, rgb, |&[r, g, b, _]| [r, g, b]),
    }
}

fn each<const N: usize>(samples: &[u8], rgb: &mut [u8], convert: impl Fn(&[u8; N]) -> [u8; 3]) {
    let (pixels, _) = samples.as_chunks::<N>();
    let (colours, _) = rgb.as_chunks_mut::<3>();
    for (pixel, colour) in pixels.iter().zip(colours) {
        *colour = convert(pixel);
    }
}

/// A grey sample of 16 bits in 8: cut off at 255, not divided by 256. That loses nearly everything, but PIL's
/// `convert("RGB")` does just that, and what a model sees must not depend on the loader. (Colours of 16 bits keep
/// their high byte there, and here.)
fn saturate(high: u8, low: u8) -> u8 {
    if high == 0 { low } else { u8::MAX }
}

fn too_large(size: Size) -> DecodeFault {
    DecodeFault::Size { width: size.width.into(), height: size.height.into() }
}

fn corrupt(error: DecodingError) -> DecodeFault {
    DecodeFault::Corrupt { media: Media::Png, text: error.to_string() }
}
