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
    /// Images are wanted in their own sizes, and the index has none for this one.
    #[error(
        "the index does not know how large the image is, and only then is there room for it: pack it with --format jpeg or raw"
    )]
    Unsized,
    /// An image is wanted in its own size, which is not the one that there is room for.
    #[error(
        "image of {} x {} pixels: expected {} x {}, as the index says",
        .image.width, .image.height, .indexed.width, .indexed.height
    )]
    OtherSize {
        /// The image's size.
        image: Size,
        /// The index's.
        indexed: Size,
    },
    /// The decoder panicked: a defect of the decoder, which this record shows.
    #[error("the decoder panicked: {text}")]
    Panicked {
        /// The panic's message.
        text: String,
    },
}
