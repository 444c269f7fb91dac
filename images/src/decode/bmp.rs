//! Windows bitmaps: palettes, 16, 24 and 32 bits a pixel, run lengths.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder, ImageError};
use shade_formats::index::Media;

use super::colour::{each, grey};
use crate::limits::{check_size, scratch};
use crate::{ImageFault, Size};

/// Decodes `bytes` into `rgb`.
pub(crate) fn decode(bytes: &[u8], rgb: &mut Vec<u8>) -> Result<Size, ImageFault> {
    let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(fault)?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())?;
    let pixels = width as usize * height as usize;
    let colour = decoder.color_type();
    if colour == ColorType::Rgb8 {
        decoder.read_image(scratch(rgb, pixels * 3)).map_err(fault)?;
        return Ok(Size { width, height });
    }
    let mut samples = vec![0; pixels * usize::from(colour.bytes_per_pixel())];
    decoder.read_image(&mut samples).map_err(fault)?;
    let rgb = scratch(rgb, pixels * 3);
    match colour {
        ColorType::Rgba8 => each(&samples, rgb, |&[r, g, b, _]| [r, g, b]),
        ColorType::L8 => each(&samples, rgb, |&[value]| grey(value)),
        other => return Err(unsupported(format!("pixels of {other:?}"))),
    }
    Ok(Size { width, height })
}

fn unsupported(detail: String) -> ImageFault {
    ImageFault::Unsupported { media: Media::Bmp, detail }
}

fn fault(error: ImageError) -> ImageFault {
    match error {
        ImageError::Unsupported(error) => unsupported(error.to_string()),
        other => ImageFault::Corrupt { media: Media::Bmp, text: other.to_string() },
    }
}
