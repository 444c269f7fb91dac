//! WebP: lossy or lossless, with alpha or without. Of an animation, the first frame.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};
use shade_formats::index::Media;

use super::colour::each;
use crate::limits::{RGBA_BYTES_MAX, check_size, scratch, shrink};
use crate::{ImageFault, Size};

/// The buffer for images with alpha.
#[derive(Default)]
pub(crate) struct Webp {
    rgba: Vec<u8>,
}

impl Webp {
    /// Decodes `bytes` into `rgb`.
    pub(crate) fn decode(&mut self, bytes: &[u8], rgb: &mut Vec<u8>) -> Result<Size, ImageFault> {
        let mut decoder = open(bytes)?;
        let (width, height) = decoder.dimensions();
        check_size(width.into(), height.into())?;
        let pixels = width as usize * height as usize;
        if decoder.has_alpha() {
            let rgba = scratch(&mut self.rgba, pixels * 4);
            decoder.read_image(rgba).map_err(fault)?;
            each(rgba, scratch(rgb, pixels * 3), |&[r, g, b, _]| [r, g, b]);
        } else {
            decoder.read_image(scratch(rgb, pixels * 3)).map_err(fault)?;
        }
        Ok(Size { width, height })
    }

    /// Gives back what one large image made the buffer grow to.
    pub(crate) fn shrink(&mut self) {
        shrink(&mut self.rgba);
    }
}

/// The EXIF chunk of a WebP, if it has one.
pub(crate) fn exif(bytes: &[u8]) -> Option<Vec<u8>> {
    open(bytes).ok()?.exif_metadata().ok()?
}

fn open(bytes: &[u8]) -> Result<WebPDecoder<Cursor<&[u8]>>, ImageFault> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(fault)?;
    decoder.set_memory_limit(RGBA_BYTES_MAX);
    if decoder.is_animated() {
        // The file's own hint is for viewers; Pillow starts from transparent black.
        decoder.set_background_color([0; 4]).map_err(fault)?;
    }
    Ok(decoder)
}

fn fault(error: DecodingError) -> ImageFault {
    let media = Media::Webp;
    match error {
        DecodingError::UnsupportedFeature(detail) => ImageFault::Unsupported { media, detail },
        other => ImageFault::Corrupt { media, text: other.to_string() },
    }
}
