//! Buffers that are kept from image to image.

/// Frees a buffer that has grown beyond `bytes_max`.
pub(super) fn shrink(buffer: &mut Vec<u8>, bytes_max: usize) {
    if buffer.capacity() > bytes_max {
        *buffer = Vec::new();
    }
}
