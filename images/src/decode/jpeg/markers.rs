//! Restart markers, added to a JPEG without a change of its pixels.

use super::baseline::Frame;
use super::turbo::Recoder;
use super::{corrupt, is_harmless, open};
use crate::ImageFault;
use crate::limits::{JPEG_SCANS_MAX, check_size};

/// Columns of pixels between two markers that are added to a JPEG: one unit of coding with the
/// usual half resolution of colours. Fewer would not be possible there, more would decode more
/// beside a crop.
const SPACING: u32 = 16;

/// A JPEG with the same pixels and a restart marker about every 16 columns, so that a part of it is
/// decoded without what lies above and beside it
/// ([`Decoder::decode_part`](crate::Decoder::decode_part)). Its Huffman tables are made for it,
/// which makes up for the markers' bytes in most photographs; it is not progressive, and all else
/// that stood in it still does. One that is left to libjpeg-turbo, which makes nothing of the
/// markers, comes back as it is, and so does one with damage that decoding overlooks.
///
/// # Errors
/// The image is damaged or too large.
pub fn with_restart_markers(jpeg: &[u8]) -> Result<Vec<u8>, ImageFault> {
    let header = open(jpeg)?.header;
    check_size(header.size.width.into(), header.size.height.into())?;
    let Some(unit_width) = header.block_width.filter(|_| !header.is_lossless) else {
        return Ok(jpeg.to_vec());
    };
    let recoder = Recoder::new(JPEG_SCANS_MAX, spacing(header.size.width, unit_width)).map_err(corrupt)?;
    match recoder.recode(jpeg) {
        Ok(marked) if Frame::read(&marked).is_ok() => Ok(marked),
        Err(complaint) if !is_harmless(&complaint) => Err(corrupt(complaint)),
        _ => Ok(jpeg.to_vec()),
    }
}

/// Units of coding (MCUs) between two markers for an image `width` pixels wide, whose units have
/// `unit_width`: about [`SPACING`] pixels, and a whole number of times in a row of units, so that
/// every row begins at a marker.
fn spacing(width: u32, unit_width: u32) -> u32 {
    let in_a_row = width.div_ceil(unit_width);
    (2..=SPACING / unit_width).rev().find(|&units| in_a_row.is_multiple_of(units)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_that_are_added_begin_every_row() {
        for (width, unit_width, expected) in [(40, 16, 1), (48, 8, 2), (40, 8, 1), (500, 16, 1), (64, 32, 1)]
        {
            assert_eq!(spacing(width, unit_width), expected, "{width}");
        }
    }

    #[test]
    fn a_jpeg_with_markers_is_a_usual_one() {
        for name in ["baseline.jpg", "full.jpg", "grey.jpg", "turned6.jpg"] {
            let file = std::fs::read(format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            let marked = with_restart_markers(&file).unwrap();
            assert!(marked != file && Frame::read(&marked).is_ok(), "{name}");
        }
    }
}
