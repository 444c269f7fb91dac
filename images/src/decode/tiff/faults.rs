//! Faults of a TIFF.

use std::fmt::Display;

use shade_formats::index::Media;

use crate::ImageFault;

pub(super) fn corrupt(text: impl Display) -> ImageFault {
    ImageFault::corrupt(Media::Tiff, text)
}

pub(super) fn unsupported(detail: impl Display) -> ImageFault {
    ImageFault::unsupported(Media::Tiff, detail)
}
