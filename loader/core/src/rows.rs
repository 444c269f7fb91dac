//! Bytes of a batch that a record takes: known from the index, before anything is read.

use shade_formats::Size;
use shade_formats::index::Entry;
use shade_formats::limits::IMAGE_PIXELS_MAX;
use shade_job::Output;

/// Why an image cannot be delivered in its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeFault {
    /// The index has no size for it.
    #[error(
        "the index does not know the image's size, so there is no room for it: pack it with --format jpeg or raw"
    )]
    Unknown,
    /// It is too large to be decoded.
    #[error("image of {width} x {height} pixels: expected 1 to {IMAGE_PIXELS_MAX} pixels")]
    TooLarge {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
}

/// Bytes of the row that the record of `entry` becomes in a batch of `output`.
///
/// # Errors
/// An image in its own size has no size in the index, or one that is too large.
pub fn row_bytes(output: &Output, entry: &Entry) -> Result<u64, SizeFault> {
    match output {
        Output::Raw => Ok(entry.raw_len.into()),
        Output::Decoded(_) => Ok(output.row_bytes()),
        Output::Ragged { .. } => indexed_size(entry).map(|size| 3 * size.pixels()),
    }
}

/// The image's size in the index: with 3 bytes a pixel at most 512 MiB.
///
/// # Errors
/// As [`row_bytes`].
pub fn indexed_size(entry: &Entry) -> Result<Size, SizeFault> {
    let size = Size { width: entry.width.into(), height: entry.height.into() };
    match size.pixels() {
        0 => Err(SizeFault::Unknown),
        1..=IMAGE_PIXELS_MAX => Ok(size),
        _ => Err(SizeFault::TooLarge { width: size.width, height: size.height }),
    }
}
