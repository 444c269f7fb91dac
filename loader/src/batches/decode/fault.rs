//! Why a record does not become an image.

use shade_images::{ImageFault, Size};

/// What is wrong with one image; says nothing about the others of its batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// Damaged, too large, or of a kind that nothing decodes.
    #[error(transparent)]
    Image(#[from] ImageFault),
    /// There is no such crop in the image.
    #[error(
        "RandomCrop of {} x {} from an image of {} x {} padded by {padding}: resize it first, or pad more",
        .crop.width, .crop.height, .image.width, .image.height
    )]
    Small {
        /// The image, after resizing.
        image: Size,
        /// The crop asked for.
        crop: Size,
        /// Pixels added on each side.
        padding: u32,
    },
    /// The decoder panicked: a defect of the decoder, which this record shows.
    #[error("the decoder panicked: {text}")]
    Panicked {
        /// The panic's message.
        text: String,
    },
}
