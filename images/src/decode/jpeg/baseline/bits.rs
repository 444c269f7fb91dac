//! The entropy-coded data: segments between markers, and their bits.

use memchr::memchr;

/// Zeros behind a segment, so that whole words can be read up to its end.
const PADDING: usize = 8;

/// Data that is cut into segments at its markers.
pub(super) struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    pub(super) fn of(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Leaves the next segment behind, and the marker that ends it, which is the answer; `None` if
    /// there is none. If `segment` is given, the data is appended to it, without the zeros that are
    /// stuffed behind bytes of 0xFF (T.81, B.1.1.5), and padding.
    pub(super) fn next(&mut self, mut segment: Option<&mut Vec<u8>>) -> Option<u8> {
        loop {
            let (before, behind) = self.rest.split_at_checked(memchr(0xFF, self.rest)?)?;
            let &[_, marker] = behind.first_chunk()?;
            self.rest = behind.get(2..)?;
            if let Some(segment) = &mut segment {
                segment.extend_from_slice(before);
                segment.extend_from_slice(if marker == 0 { &[0xFF] } else { &[0; PADDING] });
            }
            if marker != 0 {
                return Some(marker);
            }
        }
    }
}

/// Where in a segment one is.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits {
    /// The next bits, from the highest on. Those below `count` may be there already.
    pub(super) buffer: u64,
    count: u32,
    /// The byte from which on the buffer lacks bits.
    at: usize,
}

impl Bits {
    /// Bits that there are at least after [`Bits::fill`].
    pub(super) const FILLED: u32 = 56;

    /// Fills the buffer from `segment`; with zeros behind its end.
    #[inline(always)]
    pub(super) fn fill(&mut self, segment: &[u8]) {
        let word = segment.get(self.at..).and_then(|rest| rest.first_chunk());
        self.buffer |= u64::from_be_bytes(word.copied().unwrap_or_default()) >> (self.count & 63);
        self.at += ((63 - self.count) >> 3) as usize;
        self.count |= Self::FILLED;
    }

    /// Skips `count` bits, which must be there.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u8) {
        self.buffer <<= count & 63;
        self.count = self.count.wrapping_sub(count.into());
    }

    /// Bytes of which bits were taken.
    pub(super) fn taken(self) -> usize {
        self.at - (self.count >> 3) as usize
    }
}

/// Bytes of a segment that [`Segments::next`] gave.
pub(super) fn len(segment: &[u8]) -> usize {
    segment.len().saturating_sub(PADDING)
}
