//! Memory for direct reads, which want it aligned.

/// What direct reads want memory, offsets and lengths to be multiples of, at most: the largest sector
/// and the page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Memory below this grows at least twofold, as records differ in length; above it are spans, all of
/// about one length.
const DOUBLED_BYTES_MAX: usize = 1 << 20;

/// Memory of one thread's reads, used again and again. Grows to the largest.
#[derive(Debug, Default)]
pub struct ReadMemory {
    /// A page longer than what is used of it, so that an aligned part is in it.
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
            // The old content is of no use: it is freed first, and not copied.
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
