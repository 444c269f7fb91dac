//! The pixels that are resized.

use crate::Size;

/// The source: interleaved RGB.
pub(crate) struct Source<'a> {
    /// From the first pixel on.
    pub(crate) rgb: &'a [u8],
    /// Bytes from a line to the next.
    pub(crate) pitch: usize,
    /// Pixels that may be read. Neither side is 0.
    pub(crate) size: Size,
}
