//! Why a JPEG is not decoded here.

use std::fmt;

/// Why this decoder refuses an image. Another decoder may accept it: the image need not be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The headers are damaged, or not those of a usual baseline JPEG.
    Headers,
    /// The region is empty, too large or not within the image, the reduction is unknown, or the
    /// buffer for the pixels has another length.
    Region,
    /// The coded data is damaged or cut off, or something follows it.
    Data,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headers => "headers that are damaged or not those of a usual baseline JPEG",
            Self::Region => "no such region or reduction of this JPEG",
            Self::Data => "the JPEG's coded data is damaged or does not end where it should",
        })
    }
}

impl std::error::Error for Error {}
