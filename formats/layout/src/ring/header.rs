//! The header line that both index segments begin with.

use super::descriptor::PLACES;
use super::fields::{LINE_BYTES, Line, put_raw, put_u32, put_u64, raw_at, u32_at, u64_at};
use super::layout::{
    CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, DESCRIPTORS, DESCRIPTORS_START, HEAD, HEADER, HEARTBEAT,
    PayloadSize, RELEASED, RESIZED, RING_VERSION, WAITING, WORKING, check_payload_bytes, line_crc,
};
use crate::FormatError;
use crate::limits::PAYLOAD_ALIGN_BYTES;

const DAEMON_MAGIC: [u8; 8] = *b"SHADERNG";
const CLIENT_MAGIC: [u8; 8] = *b"SHADEREL";

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
const DESCRIPTORS_AT: usize = 12;
const LAYOUT_HASH_AT: usize = 16;
const PAYLOAD_BYTES_AT: usize = 24;
const GAP_BYTES_AT: usize = 32;
const CRC_AT: usize = 124;

/// FNV-1a over every place and size above: two builds with different layouts refuse each other,
/// even if the version was not raised.
const LAYOUT_HASH: u64 = {
    let places = [
        HEAD,
        HEARTBEAT,
        RESIZED,
        DESCRIPTORS_START,
        WORKING,
        WAITING,
        RELEASED,
        LINE_BYTES as u64,
        DESCRIPTORS as u64,
        DAEMON_SEGMENT_BYTES,
        CLIENT_SEGMENT_BYTES,
        PAYLOAD_ALIGN_BYTES,
    ];
    fnv1a(fnv1a(0xcbf2_9ce4_8422_2325, &places), &PLACES)
};

const fn fnv1a(start: u64, words: &[u64]) -> u64 {
    let mut hash = start;
    let mut rest = words;
    while let Some((word, tail)) = rest.split_first() {
        let mut left = 8;
        let mut value = *word;
        while left > 0 {
            hash = (hash ^ (value & 0xff)).wrapping_mul(0x0000_0100_0000_01b3);
            value >>= 8;
            left -= 1;
        }
        rest = tail;
    }
    hash
}

impl PayloadSize {
    /// Refuses impossible lengths.
    fn check(&self) -> Result<(), FormatError> {
        check_payload_bytes(self.bytes)?;
        if self.gap_bytes == 0 || self.gap_bytes > self.bytes {
            let expected = format_args!("1 to {} bytes, the payload's length", self.bytes);
            let at = GAP_BYTES_AT as u64;
            return Err(FormatError::new("ring gap length", at, self.gap_bytes, expected));
        }
        Ok(())
    }
}

/// Which of the two index segments a header opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The daemon writes it, the client maps it read-only.
    Daemon,
    /// The client writes it.
    Client,
}

impl Segment {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Daemon => DAEMON_MAGIC,
            Self::Client => CLIENT_MAGIC,
        }
    }

    /// Length in bytes that the segment must have.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Daemon => DAEMON_SEGMENT_BYTES,
            Self::Client => CLIENT_SEGMENT_BYTES,
        }
    }

    /// Name of its header in errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon segment header",
            Self::Client => "client segment header",
        }
    }

    /// The header of a fresh segment.
    ///
    /// # Errors
    /// When `payload` is impossible.
    pub fn header(self, payload: PayloadSize) -> Result<Line, FormatError> {
        payload.check()?;
        let mut line: Line = [0; LINE_BYTES];
        put_raw::<MAGIC_AT>(&mut line, self.magic());
        put_u32::<VERSION_AT>(&mut line, RING_VERSION);
        put_u32::<DESCRIPTORS_AT>(&mut line, descriptors_u32());
        put_u64::<LAYOUT_HASH_AT>(&mut line, LAYOUT_HASH);
        put_u64::<PAYLOAD_BYTES_AT>(&mut line, payload.bytes);
        put_u64::<GAP_BYTES_AT>(&mut line, payload.gap_bytes);
        let crc = line_crc(&line);
        put_u32::<CRC_AT>(&mut line, crc);
        Ok(line)
    }

    /// Checks a header and returns what it says of the payload.
    ///
    /// # Errors
    /// When it is not the header of this segment in this build's layout.
    pub fn payload(self, header: &Line) -> Result<PayloadSize, FormatError> {
        let fault = |at: usize, got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(self.name(), HEADER + at as u64, got, expected)
        };
        let magic = raw_at::<MAGIC_AT>(header);
        if magic != self.magic() {
            let expected = self.magic();
            return Err(fault(MAGIC_AT, &magic.escape_ascii(), &expected.escape_ascii()));
        }
        let version = u32_at::<VERSION_AT>(header);
        if version != RING_VERSION {
            return Err(fault(VERSION_AT, &version, &RING_VERSION));
        }
        let crc = u32_at::<CRC_AT>(header);
        if crc != line_crc(header) {
            return Err(fault(CRC_AT, &crc, &line_crc(header)));
        }
        let hash = u64_at::<LAYOUT_HASH_AT>(header);
        if hash != LAYOUT_HASH {
            return Err(fault(LAYOUT_HASH_AT, &hash, &LAYOUT_HASH));
        }
        let descriptors = u32_at::<DESCRIPTORS_AT>(header);
        if descriptors != descriptors_u32() {
            return Err(fault(DESCRIPTORS_AT, &descriptors, &DESCRIPTORS));
        }
        let payload = PayloadSize {
            bytes: u64_at::<PAYLOAD_BYTES_AT>(header),
            gap_bytes: u64_at::<GAP_BYTES_AT>(header),
        };
        payload.check()?;
        Ok(payload)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 64, asserted in limits.rs")]
const fn descriptors_u32() -> u32 {
    DESCRIPTORS as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PAYLOAD_BYTES_MAX;

    const PAYLOAD: PayloadSize = PayloadSize { bytes: 8192, gap_bytes: 5000 };

    fn header() -> Line {
        Segment::Daemon.header(PAYLOAD).unwrap()
    }

    #[test]
    fn a_header_says_what_was_written() {
        assert_eq!(Segment::Daemon.payload(&header()).unwrap(), PAYLOAD);
    }

    #[test]
    fn every_flipped_header_bit_is_refused() {
        for bit in 0..LINE_BYTES * 8 {
            let mut header = header();
            header[bit / 8] ^= 1 << (bit % 8);
            assert!(Segment::Daemon.payload(&header).is_err(), "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn the_other_segment_and_impossible_lengths_are_refused() {
        assert!(Segment::Client.payload(&header()).is_err());
        let lengths = [(0, 1), (100, 1), (PAYLOAD_BYTES_MAX + 4096, 1), (8192, 0), (8192, 8193)];
        for (bytes, gap_bytes) in lengths {
            let payload = PayloadSize { bytes, gap_bytes };
            assert!(Segment::Daemon.header(payload).is_err(), "{payload:?}");
        }
    }
}
