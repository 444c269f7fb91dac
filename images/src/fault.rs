//! Why bytes do not become an image, or an image not bytes.

use shade_formats::index::Media;

use crate::{IMAGE_PIXELS_MAX, Size};

/// The fault of one image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// No decoder for this kind of image, or for this variant of it.
    #[error("a {} image cannot be decoded: {detail}", .media.name())]
    Unsupported {
        /// The kind of image.
        media: Media,
        /// Which of its features is missing here.
        detail: String,
    },
    /// The bytes are not the kind of image that they should be, or are damaged.
    #[error("corrupt {}: {text}", .media.name())]
    Corrupt {
        /// The kind of image that it is, or should be.
        media: Media,
        /// In the decoder's own words.
        text: String,
    },
    /// No pixels, or more than [`IMAGE_PIXELS_MAX`]: of a header that is read, or of a size that is
    /// asked for.
    #[error("image of {width} x {height} pixels: expected 1 to {IMAGE_PIXELS_MAX} pixels")]
    Size {
        /// Columns.
        width: u64,
        /// Rows.
        height: u64,
    },
    /// The number of bytes given for an image's pixels is not what its size takes.
    #[error("{got} bytes of pixels: expected {expected}")]
    Pixels {
        /// Bytes given.
        got: u64,
        /// `3 * width * height`.
        expected: u64,
    },
    /// The resizer refused.
    #[error("resizing {} x {} to {} x {}: {text}", .from.width, .from.height, .to.width, .to.height)]
    Resize {
        /// The image's size.
        from: Size,
        /// The size asked for.
        to: Size,
        /// In the resizer's own words.
        text: String,
    },
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
    /// The encoder refused: a quality outside 1 to 100, or a side that the format has no room for.
    #[error("encoding {} x {} pixels as {}: {text}", .size.width, .size.height, .media.name())]
    Encode {
        /// The format asked for.
        media: Media,
        /// The image's size.
        size: Size,
        /// In the encoder's own words.
        text: String,
    },
}
