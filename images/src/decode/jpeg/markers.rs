//! Adds restart markers to a JPEG without changing its pixels.

use super::baseline::Frame;
use super::turbo::Recoder;
use super::{CUT_SHORT, corrupt, has_end, open};
use crate::ImageFault;
use crate::limits::{JPEG_SCANS_MAX, check_size};

/// Columns of pixels between two added markers: one MCU with the usual 4:2:0 subsampling. Fewer are
/// impossible there; more would decode more beside a crop.
const SPACING: u32 = 16;

/// A JPEG with the same pixels and a restart marker about every 16 columns, so that
/// [`Decoder::decode_part`](crate::Decoder::decode_part) decodes a part without the rows above and
/// the columns beside it.
///
/// It gets optimised Huffman tables, which make up for the markers' bytes in most photographs, and
/// is never progressive; all other content stays. Returned unchanged: a JPEG for libjpeg-turbo,
/// which does not use the markers, and one with damage that decoding ignores.
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
    match recoder.recode(jpeg).map_err(corrupt)? {
        Some(marked) if Frame::read(&marked).is_ok() => Ok(marked),
        None if !has_end(jpeg) => Err(corrupt(CUT_SHORT.to_owned())),
        _ => Ok(jpeg.to_vec()),
    }
}

/// MCUs between two markers for an image `width` pixels wide with MCUs of `unit_width` pixels:
/// about [`SPACING`] pixels, and a divisor of the MCUs in a row, so that every row begins at a
/// marker.
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
