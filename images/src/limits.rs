//! Limits of one image, checked before anything is allocated for it.

use shade_formats::limits::IMAGE_PIXELS_MAX;

use crate::ImageFault;

/// Bytes of the largest image with alpha, 8 bits a sample.
pub(crate) const RGBA_BYTES_MAX: usize = 715_827_880;
const _: () = assert!(RGBA_BYTES_MAX as u64 == 4 * IMAGE_PIXELS_MAX);

/// Most scans of a progressive JPEG: each one walks the whole image, so a small file could cost
/// hours of work. Encoders write about 10; 500 is what libjpeg-turbo's own fuzzers allow.
pub(crate) const JPEG_SCANS_MAX: u32 = 500;

/// Capacity in bytes above which a work buffer is freed after each image, so that one large image
/// does not keep a thread's memory large: 1.4 megapixels of RGB, about seven times an average
/// ImageNet image.
pub const SCRATCH_KEEP_BYTES: usize = 4 << 20;

/// Refuses an image that has no pixels or too many.
pub(crate) fn check_size(width: u64, height: u64) -> Result<(), ImageFault> {
    match width.checked_mul(height) {
        Some(1..=IMAGE_PIXELS_MAX) => Ok(()),
        _ => Err(ImageFault::Size { width, height }),
    }
}

/// The first `len` bytes of `buffer`, which grows to hold them. Their content is unspecified:
/// zeroing a buffer that is overwritten anyway would cost as much as a copy.
#[expect(clippy::indexing_slicing, reason = "the buffer was grown to `len` one line above")]
#[must_use]
pub fn scratch(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

/// Gives a buffer's memory back when it has grown beyond [`SCRATCH_KEEP_BYTES`].
pub fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > SCRATCH_KEEP_BYTES {
        *buffer = Vec::new();
    }
}
