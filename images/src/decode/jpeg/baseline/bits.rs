//! The entropy-coded data: segments between markers, and their bits.

use memchr::memchr;

/// Zeros after a segment, so that whole words can be read up to its end.
const PADDING: usize = 8;

/// Cuts the data into segments at its markers.
pub(super) struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    pub(super) fn of(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Moves past the next segment and returns the marker that ends it; `None` if there is none.
    /// Appends the segment's data to `segment`, if given, without the zeros stuffed after bytes of
    /// 0xFF (T.81, B.1.1.5), but with padding.
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

/// A position in a segment.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits {
    /// The next bits, from the highest on: `count` of them, and perhaps some more.
    pub(super) buffer: u64,
    count: u32,
    /// The next byte to read into the buffer.
    at: usize,
}

impl Bits {
    /// Least number of bits after [`Bits::fill`].
    pub(super) const FILLED: u32 = 56;

    /// Fills the buffer from `segment`; with zeros after its end.
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

    /// Bytes from which bits were taken.
    pub(super) fn taken(self) -> usize {
        self.at - (self.count >> 3) as usize
    }
}

/// Bytes of a segment from [`Segments::next`], without the padding.
pub(super) fn len(segment: &[u8]) -> usize {
    segment.len().saturating_sub(PADDING)
}
