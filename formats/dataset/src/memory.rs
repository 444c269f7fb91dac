//! Aligned memory for direct reads.

/// Largest alignment of memory, offsets and lengths for direct reads: the largest sector and the
/// page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Memory below this at least doubles, as records differ in length; above it are spans, all of
/// about one length.
const DOUBLED_BYTES_MAX: usize = 1 << 20;

/// Memory for one thread's reads, reused. It grows to the largest read.
#[derive(Debug, Default)]
pub struct ReadMemory {
    /// A page longer than needed, so that it contains an aligned part.
    bytes: Vec<u8>,
}

impl ReadMemory {
    /// Bytes that it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// `len` bytes that start at a multiple of [`PAGE_BYTES`], with any content.
    pub(crate) fn aligned(&mut self, len: usize) -> &mut [u8] {
        let needed = len.saturating_add(PAGE_BYTES);
        if self.bytes.len() < needed {
            let twice = 2 * self.bytes.len();
            let grown = if needed < DOUBLED_BYTES_MAX { needed.max(twice) } else { needed };
            // The old content is not needed: it is freed first, and not copied.
            self.bytes = Vec::new();
            self.bytes = vec![0; grown];
        }
        let start = self.bytes.as_ptr().align_offset(PAGE_BYTES);
        self.bytes.get_mut(start..).and_then(|rest| rest.get_mut(..len)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_whatever_it_held() {
        let mut memory = ReadMemory::default();
        for len in [0, 1, 4096, 100, 70_000, 512] {
            let room = memory.aligned(len);
            assert_eq!((room.len(), room.as_ptr().align_offset(PAGE_BYTES)), (len, 0));
        }
        assert!(memory.capacity() > 70_000);
    }
}
