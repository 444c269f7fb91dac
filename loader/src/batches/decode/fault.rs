//! Why a record does not become an image.

use shade_images::ImageFault;

/// What is wrong with one image; says nothing about the others of its batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// Damaged, too large, or of a kind that nothing decodes.
    #[error(transparent)]
    Image(#[from] ImageFault),
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
