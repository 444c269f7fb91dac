//! WebP: lossy or lossless, with alpha or without; the first frame of an animation.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};
use shade_formats::index::Media;

use super::colour::each;
use crate::limits::{RGBA_BYTES_MAX, check_size, scratch};
use crate::{ImageFault, Size};

/// Decodes `bytes` into `rgb`, over `rgba` if it has alpha.
pub(crate) fn decode(bytes: &[u8], rgba: &mut Vec<u8>, rgb: &mut Vec<u8>) -> Result<Size, ImageFault> {
    let mut decoder = open(bytes)?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())?;
    let pixels = width as usize * height as usize;
    if decoder.has_alpha() {
        let rgba = scratch(rgba, pixels * 4);
        decoder.read_image(rgba).map_err(fault)?;
        each(rgba, scratch(rgb, pixels * 3), |&[r, g, b, _]| [r, g, b]);
    } else {
        decoder.read_image(scratch(rgb, pixels * 3)).map_err(fault)?;
    }
    Ok(Size { width, height })
}

/// The EXIF chunk of a WebP, if it has one.
pub(crate) fn exif(bytes: &[u8]) -> Option<Vec<u8>> {
    open(bytes).ok()?.exif_metadata().ok()?
}

fn open(bytes: &[u8]) -> Result<WebPDecoder<Cursor<&[u8]>>, ImageFault> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(fault)?;
    decoder.set_memory_limit(RGBA_BYTES_MAX);
    if decoder.is_animated() {
        // The file's own colour is a hint for viewers; Pillow starts from transparent black.
        decoder.set_background_color([0; 4]).map_err(fault)?;
    }
    Ok(decoder)
}

fn fault(error: DecodingError) -> ImageFault {
    match error {
        DecodingError::UnsupportedFeature(detail) => ImageFault::unsupported(Media::Webp, detail),
        other => ImageFault::corrupt(Media::Webp, other),
    }
}
