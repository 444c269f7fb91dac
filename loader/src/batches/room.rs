//! How many bytes of a batch a record takes: known from the index, before anything is read.

use shade_formats::control::Output;
use shade_formats::index::Entry;
use shade_images::{IMAGE_PIXELS_MAX, ImageFault, Size};

use super::FillFault;

/// Bytes of the row that the record of `entry` becomes in a batch of `output`.
///
/// # Errors
/// Of an image in its own size: the index does not know the size, or states one that is never decoded.
pub fn row_bytes(output: Output, entry: &Entry) -> Result<u64, FillFault> {
    match output {
        Output::Raw => Ok(entry.raw_len.into()),
        Output::Decoded(images) => Ok(images.bytes()),
        Output::Ragged { .. } => indexed_size(entry).map(|size| 3 * size.pixels()),
    }
}

/// The size of the image of `entry`, by the index: with 3 bytes a pixel never more than 512 MiB.
pub(super) fn indexed_size(entry: &Entry) -> Result<Size, FillFault> {
    let size = Size { width: entry.width.into(), height: entry.height.into() };
    match size.pixels() {
        0 => Err(FillFault::Unsized),
        1..=IMAGE_PIXELS_MAX => Ok(size),
        _ => Err(ImageFault::Size { width: size.width.into(), height: size.height.into() }.into()),
    }
}
