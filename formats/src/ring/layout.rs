//! Where everything lies in the two index segments, and the header line that both begin with.

use super::Region;
use super::fields::{LINE_BYTES, Line, put_raw, put_u32, put_u64, raw_at, u32_at, u64_at};
use crate::FormatError;
use crate::checksum::crc32c;
use crate::limits::{PAYLOAD_ALIGN_BYTES, PAYLOAD_BYTES_MAX, RING_DESCRIPTORS};

/// Version of this layout. A change of any constant here or of a descriptor field needs a new one.
pub const RING_VERSION: u32 = 4;

/// Descriptors of a ring, and as many release marks. loom explores every interleaving, so its ring
/// has two: enough to wrap.
pub const DESCRIPTORS: usize = if cfg!(loom) { 2 } else { RING_DESCRIPTORS };

/// Length of the segment that the daemon writes and the client maps read-only.
pub const DAEMON_SEGMENT_BYTES: u64 = 12_288;
/// Length of the segment that the client writes.
pub const CLIENT_SEGMENT_BYTES: u64 = 4096;
/// Longest text of an error descriptor: the longest path thrice, and words around it.
pub const ERROR_TEXT_BYTES_MAX: u64 = 16 * 1024;

const HEADER: u64 = 0;
/// Daemon segment: number of descriptors published since the start.
pub(super) const HEAD: u64 = 128;
/// Daemon segment: CLOCK_MONOTONIC of the daemon's last sign of life, in nanoseconds.
pub(super) const HEARTBEAT: u64 = 256;
/// Daemon segment: the first descriptor. On a page of its own, so that polling the head moves no
/// descriptor line.
pub(super) const DESCRIPTORS_START: u64 = 4096;
/// Client segment: not 0 while the consumer sleeps or is about to.
pub(super) const WAITING: u64 = 128;
/// Client segment: the first of the release marks, 8 bytes each.
pub(super) const RELEASED: u64 = 512;

const _: () = assert!(DESCRIPTORS_START + (RING_DESCRIPTORS * LINE_BYTES) as u64 == DAEMON_SEGMENT_BYTES);
const _: () = assert!(RELEASED + (RING_DESCRIPTORS * 8) as u64 <= CLIENT_SEGMENT_BYTES);

const DAEMON_MAGIC: [u8; 8] = *b"SHADERNG";
const CLIENT_MAGIC: [u8; 8] = *b"SHADEREL";

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
const DESCRIPTORS_AT: usize = 12;
const LAYOUT_HASH_AT: usize = 16;
const PAYLOAD_BYTES_AT: usize = 24;
const GAP_BYTES_AT: usize = 32;
const CRC_AT: usize = 124;

/// FNV-1a over every place and size above: two builds that disagree about the layout refuse each
/// other even if someone forgot to raise the version.
const LAYOUT_HASH: u64 = {
    let places = [
        HEAD,
        HEARTBEAT,
        DESCRIPTORS_START,
        WAITING,
        RELEASED,
        LINE_BYTES as u64,
        DESCRIPTORS as u64,
        DAEMON_SEGMENT_BYTES,
        CLIENT_SEGMENT_BYTES,
        PAYLOAD_ALIGN_BYTES,
    ];
    fnv1a(fnv1a(0xcbf2_9ce4_8422_2325, &places), &super::descriptor::PLACES)
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

/// Where in the daemon segment descriptor `seq` lies.
pub(super) fn line_of(seq: u64) -> u64 {
    DESCRIPTORS_START + seq % DESCRIPTORS as u64 * LINE_BYTES as u64
}

/// What a payload has room for, as the headers of both index segments say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadSize {
    /// Length of the payload in bytes, a multiple of [`PAYLOAD_ALIGN_BYTES`] up to
    /// [`PAYLOAD_BYTES_MAX`].
    pub bytes: u64,
    /// What the batches in a trainer's hand must leave free in one piece, in bytes, for the daemon
    /// to go on.
    pub gap_bytes: u64,
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
pub(super) enum Segment {
    Daemon,
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
    fn bytes(self) -> u64 {
        match self {
            Self::Daemon => DAEMON_SEGMENT_BYTES,
            Self::Client => CLIENT_SEGMENT_BYTES,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon segment header",
            Self::Client => "client segment header",
        }
    }

    /// Refuses a region of another length.
    fn check_len(self, region: &Region) -> Result<(), FormatError> {
        if region.len() != self.bytes() {
            return Err(FormatError::new(
                self.name(),
                HEADER,
                format_args!("a segment of {} bytes", region.len()),
                self.bytes(),
            ));
        }
        Ok(())
    }

    /// Writes the header of a fresh segment.
    pub(super) fn write_header(self, region: &Region, payload: PayloadSize) -> Result<(), FormatError> {
        self.check_len(region)?;
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
        region.write(HEADER, &line)
    }

    /// Checks the header and returns what it says of the payload.
    pub(super) fn read_header(self, region: &Region) -> Result<PayloadSize, FormatError> {
        self.check_len(region)?;
        let mut line: Line = [0; LINE_BYTES];
        region.read(HEADER, &mut line)?;
        let fault = |at: usize, got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(self.name(), HEADER + at as u64, got, expected)
        };
        let magic = raw_at::<MAGIC_AT>(&line);
        if magic != self.magic() {
            let expected = self.magic();
            return Err(fault(MAGIC_AT, &magic.escape_ascii(), &expected.escape_ascii()));
        }
        let version = u32_at::<VERSION_AT>(&line);
        if version != RING_VERSION {
            return Err(fault(VERSION_AT, &version, &RING_VERSION));
        }
        let crc = u32_at::<CRC_AT>(&line);
        if crc != line_crc(&line) {
            return Err(fault(CRC_AT, &crc, &line_crc(&line)));
        }
        let hash = u64_at::<LAYOUT_HASH_AT>(&line);
        if hash != LAYOUT_HASH {
            return Err(fault(LAYOUT_HASH_AT, &hash, &LAYOUT_HASH));
        }
        let descriptors = u32_at::<DESCRIPTORS_AT>(&line);
        if descriptors != descriptors_u32() {
            return Err(fault(DESCRIPTORS_AT, &descriptors, &DESCRIPTORS));
        }
        let payload = PayloadSize {
            bytes: u64_at::<PAYLOAD_BYTES_AT>(&line),
            gap_bytes: u64_at::<GAP_BYTES_AT>(&line),
        };
        payload.check()?;
        Ok(payload)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 64, asserted in limits.rs")]
const fn descriptors_u32() -> u32 {
    DESCRIPTORS as u32
}

/// CRC32C of a line but for its last four bytes, which hold it.
pub(super) fn line_crc(line: &Line) -> u32 {
    crc32c(line.split_last_chunk::<4>().map_or(&[], |(covered, _)| covered))
}

/// Refuses a payload length that is zero, too long or not whole pages.
pub(super) fn check_payload_bytes(bytes: u64) -> Result<(), FormatError> {
    if bytes == 0 || bytes > PAYLOAD_BYTES_MAX || !bytes.is_multiple_of(PAYLOAD_ALIGN_BYTES) {
        return Err(FormatError::new(
            "ring payload length",
            PAYLOAD_BYTES_AT as u64,
            bytes,
            format_args!(
                "a multiple of {PAYLOAD_ALIGN_BYTES} from {PAYLOAD_ALIGN_BYTES} to {PAYLOAD_BYTES_MAX}"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: PayloadSize = PayloadSize { bytes: 8192, gap_bytes: 5000 };

    fn segment() -> Region {
        let region = Region::heap(DAEMON_SEGMENT_BYTES);
        Segment::Daemon.write_header(&region, PAYLOAD).unwrap();
        region
    }

    #[test]
    fn header_round_trips() {
        assert_eq!(Segment::Daemon.read_header(&segment()).unwrap(), PAYLOAD);
    }

    #[test]
    fn every_flipped_header_bit_is_refused() {
        for bit in 0..LINE_BYTES * 8 {
            let region = segment();
            let mut byte = [0_u8];
            region.read((bit / 8) as u64, &mut byte).unwrap();
            byte[0] ^= 1 << (bit % 8);
            region.write((bit / 8) as u64, &byte).unwrap();
            assert!(Segment::Daemon.read_header(&region).is_err(), "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn the_other_segment_and_other_lengths_are_refused() {
        assert!(Segment::Client.read_header(&segment()).is_err());
        let short = Region::heap(4096);
        assert!(Segment::Daemon.write_header(&short, PAYLOAD).is_err());
        let lengths = [(0, 1), (100, 1), (PAYLOAD_BYTES_MAX + 4096, 1), (8192, 0), (8192, 8193)];
        for (bytes, gap_bytes) in lengths {
            let region = Region::heap(DAEMON_SEGMENT_BYTES);
            let payload = PayloadSize { bytes, gap_bytes };
            assert!(Segment::Daemon.write_header(&region, payload).is_err(), "{payload:?}");
        }
    }
}
