//! PNG of every colour type and depth, interlaced or not; the first frame of an animation.

use std::io::Cursor;

use png::{BitDepth, ColorType, Transformations};
use shade_formats::index::Media;

use super::colour::{each, grey, saturate};
use crate::limits::{check_size, scratch};
use crate::{ImageFault, Size};

/// Decodes `bytes` into `rgb`, over `samples` if its pixels are not 8-bit RGB.
pub(crate) fn decode(bytes: &[u8], samples: &mut Vec<u8>, rgb: &mut Vec<u8>) -> Result<Size, ImageFault> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    // Not needed here, and both may be compressed.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND);
    let header = decoder.read_header_info().map_err(corrupt)?;
    let size = Size { width: header.width, height: header.height };
    check_size(size.width.into(), size.height.into())?;
    let is_indexed = header.color_type == ColorType::Indexed;
    let has_alpha = matches!(header.color_type, ColorType::GrayscaleAlpha | ColorType::Rgba);

    let mut reader = decoder.read_info().map_err(corrupt)?;
    // The crate (0.18.1) panics on such a palette.
    if let Some(palette) = reader.info().palette.as_ref().filter(|_| is_indexed)
        && !palette.len().is_multiple_of(3)
    {
        let text = format!("a palette of {} bytes: expected 3 for each colour", palette.len());
        return Err(corrupt(text));
    }
    let (colour, depth) = reader.output_color_type();
    let too_large = || ImageFault::Size { width: size.width.into(), height: size.height.into() };
    let len = reader.output_buffer_size().ok_or_else(too_large)?;
    if (colour, depth) == (ColorType::Rgb, BitDepth::Eight) {
        reader.next_frame(scratch(rgb, len)).map_err(corrupt)?;
        return Ok(size);
    }
    let samples = scratch(samples, len);
    reader.next_frame(samples).map_err(corrupt)?;
    let pixels = size.width as usize * size.height as usize;
    to_rgb(samples, colour, depth, has_alpha, scratch(rgb, pixels * 3));
    Ok(size)
}

/// Converts pixels after `Transformations::EXPAND` (8 or 16 bits a sample, no palette) to RGB
/// without alpha. `has_alpha`: the file has an alpha channel, not just one transparent colour.
fn to_rgb(samples: &[u8], colour: ColorType, depth: BitDepth, has_alpha: bool, rgb: &mut [u8]) {
    use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
    let word = u16::from_be_bytes;
    match (colour, depth) {
        (Grayscale, BitDepth::Sixteen) => each(samples, rgb, |&pixel| grey(saturate(word(pixel)))),
        // Pillow has no mode for grey and alpha of 16 bits: it keeps the high bytes then.
        (GrayscaleAlpha, BitDepth::Sixteen) if has_alpha => each(samples, rgb, |&[high, _, _, _]| grey(high)),
        (GrayscaleAlpha, BitDepth::Sixteen) => {
            each(samples, rgb, |&[high, low, _, _]| grey(saturate(word([high, low]))));
        }
        (Rgb, BitDepth::Sixteen) => each(samples, rgb, |&[r, _, g, _, b, _]| [r, g, b]),
        (Rgba, BitDepth::Sixteen) => each(samples, rgb, |&[r, _, g, _, b, _, _, _]| [r, g, b]),
        (Grayscale | Indexed, _) => each(samples, rgb, |&[value]| grey(value)),
        (GrayscaleAlpha, _) => each(samples, rgb, |&[value, _]| grey(value)),
        (Rgb, _) => each(samples, rgb, |&pixel| pixel),
        (Rgba, _) => each(samples, rgb, |&[r, g, b, _]| [r, g, b]),
    }
}

fn corrupt(error: impl ToString) -> ImageFault {
    ImageFault::corrupt(Media::Png, error)
}
