//! Why a record does not become an image.

use shade_formats::index::Media;

use super::IMAGE_PIXELS_MAX;

/// What is wrong with one image; says nothing about the others of its batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// No decoder for this kind of record. Raw batches carry it.
    #[error("a {} record cannot be decoded: {detail}", .media.name())]
    Unsupported {
        /// What the index says the record is.
        media: Media,
        /// Which of its features is missing here.
        detail: &'static str,
    },
    /// The bytes are not what the index says they are, or are damaged.
    #[error("corrupt {}: {text}", .media.name())]
    Corrupt {
        /// What the index says the record is.
        media: Media,
        /// In the decoder's own words.
        text: String,
    },
    /// The header states no pixels, or more than [`IMAGE_PIXELS_MAX`].
    #[error("image of {width} x {height} pixels: expected 1 to {IMAGE_PIXELS_MAX} pixels")]
    Size {
        /// Columns, as the header states them.
        width: u64,
        /// Rows, as the header states them.
        height: u64,
    },
    /// The caller's output is not three planes of the size it asks for.
    #[error("output of {got} bytes for an image: expected {expected}")]
    Output {
        /// Bytes offered.
        got: u64,
        /// Bytes of three planes; 0 where no image has the size asked for.
        expected: u64,
    },
    /// The decoder panicked: a defect of the decoder, which this record shows.
    #[error("the decoder panicked: {text}")]
    Panicked {
        /// The panic's message.
        text: String,
    },
}
