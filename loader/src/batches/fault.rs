//! Why a row of a batch has no bytes.

use shade_dataset::{Mismatch, ZstdFault};
use shade_formats::FormatError;
use shade_images::ImageFault;

use crate::blocks::BlocksError;

/// What went wrong with one row; the others of its order are filled all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillFault {
    /// The stored bytes are not those that were packed.
    #[error(transparent)]
    Checksum(#[from] Mismatch),
    /// The record is no image that can be decoded.
    #[error(transparent)]
    Decode(#[from] ImageFault),
    /// The decoder panicked: a defect of the decoder, which this record shows.
    #[error("the decoder panicked: {text}")]
    Panicked {
        /// The panic's message.
        text: String,
    },
    /// Images are wanted in their own sizes, and the index has none for this one.
    #[error(
        "the index does not know how large the image is, and only then is there room for it: pack it with --format jpeg or raw"
    )]
    Unsized,
    /// The record cannot be decompressed.
    #[error(transparent)]
    Zstd(#[from] ZstdFault),
    /// The order does not fit the record, the arena or the payload: a defect of this program, not of the record.
    #[error(transparent)]
    Layout(#[from] LayoutFault),
}

/// How an order is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutFault {
    /// The room reserved for the row is not what the row takes.
    #[error("room of {got} bytes for the row: expected {expected}")]
    Room {
        /// Bytes reserved in the payload.
        got: u64,
        /// Bytes of the record, or of the decoded image.
        expected: u64,
    },
    /// The blocks do not hold the record.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
    /// The row lies outside the payload.
    #[error(transparent)]
    Payload(#[from] FormatError),
}

impl From<BlocksError> for FillFault {
    fn from(error: BlocksError) -> Self {
        LayoutFault::from(error).into()
    }
}

impl From<FormatError> for FillFault {
    fn from(error: FormatError) -> Self {
        LayoutFault::from(error).into()
    }
}
