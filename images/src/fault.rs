//! Why an image cannot be decoded, resized or encoded.

use shade_formats::index::Media;

use crate::{IMAGE_PIXELS_MAX, Size};

/// Kinds that are decoded, for messages.
const DECODED: &str = "JPEG, PNG, WebP, TIFF, BMP, PPM and PGM";

/// The fault of one image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// No decoder for this kind of image.
    #[error("not decodable: {kind}; {DECODED} are")]
    NoDecoder {
        /// The kind's name.
        kind: &'static str,
    },
    /// A mask is of a kind that is no PNG.
    #[error("{kind}, where masks are PNG")]
    NoMask {
        /// The kind's name.
        kind: &'static str,
    },
    /// The first bytes are of no known kind of image.
    #[error("no image: {what}")]
    NoImage {
        /// What it is instead.
        what: &'static str,
    },
    /// No decoder for this variant of a kind that is decoded.
    #[error("not decodable: {} with {detail}", .media.name())]
    Unsupported {
        /// The kind of image.
        media: Media,
        /// What it has that no decoder here knows.
        detail: String,
    },
    /// The bytes are not the kind of image that they should be, or are damaged.
    #[error("corrupt {}: {text}", .media.name())]
    Corrupt {
        /// The kind of image that it is, or should be.
        media: Media,
        /// The decoder's message.
        text: String,
    },
    /// The decoder panicked: a defect of the decoder, whatever the bytes are.
    #[error("the {} decoder panicked, a defect of shade: {text}", .media.name())]
    Panicked {
        /// The kind of image that it is, or should be.
        media: Media,
        /// The panic's message and place.
        text: String,
    },
    /// A header or a requested size has no pixels, or more than [`IMAGE_PIXELS_MAX`].
    #[error("image of {width} x {height} pixels: expected 1 to {IMAGE_PIXELS_MAX} pixels")]
    Size {
        /// Columns.
        width: u64,
        /// Rows.
        height: u64,
    },
    /// The number of bytes given for an image's pixels does not fit its size.
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
        /// The resizer's message.
        text: String,
    },
    /// The image is too small for the crop.
    #[error(
        "a crop of {} x {} from an image of {} x {} padded by {padding}: resize it first, or pad more",
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
    /// A transform before the crop cannot be done to an image of this size.
    #[error("image of {} x {} pixels: {text}", .image.width, .image.height)]
    Transform {
        /// The image's size.
        image: Size,
        /// The transform, and why not.
        text: String,
    },
    /// An image that is delivered as it is has another size than the row.
    #[error(
        "image of {} x {} pixels in rows of {} x {}, and decode has no crop: add one, such as CenterCrop, or give \
         image_size",
        .image.width, .image.height, .row.width, .row.height
    )]
    Unlike {
        /// The image's size.
        image: Size,
        /// The row's.
        row: Size,
    },
    /// An image that is delivered in its own size does not have the index's size, for which the row
    /// has room.
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
    /// The encoder refused: a quality outside 1 to 100, or a side that the format cannot hold.
    #[error("encoding {} x {} pixels as {}: {text}", .size.width, .size.height, .media.name())]
    Encode {
        /// The format asked for.
        media: Media,
        /// The image's size.
        size: Size,
        /// The encoder's message.
        text: String,
    },
}

impl ImageFault {
    pub(crate) fn corrupt(media: Media, text: impl ToString) -> Self {
        Self::Corrupt { media, text: text.to_string() }
    }

    pub(crate) fn unsupported(media: Media, detail: impl ToString) -> Self {
        Self::Unsupported { media, detail: detail.to_string() }
    }
}
