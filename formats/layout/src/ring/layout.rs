//! Layout of the two index segments.

use super::fields::{LINE_BYTES, Line};
use crate::FormatError;
use crate::checksum::crc32c;
use crate::limits::{PAYLOAD_ALIGN_BYTES, PAYLOAD_BYTES_MAX, RING_DESCRIPTORS};

/// Version of this layout. A change of any constant here or of a descriptor field needs a new one.
pub const RING_VERSION: u32 = 9;

/// Descriptors of a ring, and as many release marks. loom explores every interleaving, so its ring
/// has two: enough to wrap.
pub const DESCRIPTORS: usize = if cfg!(loom) { 2 } else { RING_DESCRIPTORS };

/// Length of the segment that the daemon writes and the client maps read-only.
pub const DAEMON_SEGMENT_BYTES: u64 = 12_288;
/// Length of the segment that the client writes.
pub const CLIENT_SEGMENT_BYTES: u64 = 4096;
/// Longest text of an error descriptor: the longest path thrice, and words around it.
pub const ERROR_TEXT_BYTES_MAX: u64 = 16 * 1024;

/// Both segments: the header line that they begin with.
pub const HEADER: u64 = 0;
/// Daemon segment: number of descriptors published since the start.
pub const HEAD: u64 = 128;
/// Daemon segment: CLOCK_MONOTONIC of the daemon's last sign of life, in nanoseconds.
pub const HEARTBEAT: u64 = 256;
/// Daemon segment: one more than the bytes that the cache was given while the daemon ran; 0 while
/// it has the size that it began with.
pub const RESIZED: u64 = 384;
/// Daemon segment: the first of the words that say which row each worker makes, 8 bytes each, in
/// any order.
pub const WORKING: u64 = 512;
/// Workers that have such a word. Those beyond say nothing.
pub const WORKING_MAX: usize = 448;
/// Daemon segment: the first descriptor. On a page of its own, so that polling the head moves no
/// descriptor line.
pub(super) const DESCRIPTORS_START: u64 = 4096;
/// Client segment: one more than the number of the descriptor for which the consumer sleeps or is
/// about to; 0 while it is awake.
pub const WAITING: u64 = 128;
/// Client segment: the first of the release marks, 8 bytes each.
pub const RELEASED: u64 = 512;

const _: () = assert!(DESCRIPTORS_START + (RING_DESCRIPTORS * LINE_BYTES) as u64 == DAEMON_SEGMENT_BYTES);
const _: () = assert!(WORKING + (WORKING_MAX * 8) as u64 == DESCRIPTORS_START);
const _: () = assert!(RELEASED + (RING_DESCRIPTORS * 8) as u64 <= CLIENT_SEGMENT_BYTES);

/// Where in the daemon segment descriptor `seq` lies.
#[must_use]
pub fn line_of(seq: u64) -> u64 {
    DESCRIPTORS_START + seq % DESCRIPTORS as u64 * LINE_BYTES as u64
}

/// What a payload has room for, as the headers of both index segments say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadSize {
    /// Length of the payload in bytes, a multiple of [`PAYLOAD_ALIGN_BYTES`] up to
    /// [`PAYLOAD_BYTES_MAX`].
    pub bytes: u64,
    /// Bytes that the batches which a trainer keeps must leave free in one piece, so that the
    /// daemon can go on.
    pub gap_bytes: u64,
}

/// CRC32C of a line without its last four bytes, which hold it.
pub(super) fn line_crc(line: &Line) -> u32 {
    crc32c(line.split_last_chunk::<4>().map_or(&[], |(covered, _)| covered))
}

/// Refuses a payload length that is zero, too long or not whole pages.
pub(super) fn check_payload_bytes(bytes: u64) -> Result<(), FormatError> {
    if bytes == 0 || bytes > PAYLOAD_BYTES_MAX || !bytes.is_multiple_of(PAYLOAD_ALIGN_BYTES) {
        return Err(FormatError::new(
            "ring payload length",
            0,
            bytes,
            format_args!(
                "a multiple of {PAYLOAD_ALIGN_BYTES} from {PAYLOAD_ALIGN_BYTES} to {PAYLOAD_BYTES_MAX}"
            ),
        ));
    }
    Ok(())
}
