//! Little-endian numbers at fixed places of a 128-byte line. A place outside the line does not
//! compile.

/// A cache line pair: what x86 prefetches together, and Apple and POWER cores use as one line.
pub const LINE_BYTES: usize = 128;

/// The bytes of one line.
pub type Line = [u8; LINE_BYTES];

fn bytes_at<const AT: usize, const N: usize>(line: &Line) -> [u8; N] {
    const { assert!(AT + N <= LINE_BYTES) };
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(line.iter().skip(AT)) {
        *to = *from;
    }
    bytes
}

fn put_bytes<const AT: usize, const N: usize>(line: &mut Line, bytes: [u8; N]) {
    const { assert!(AT + N <= LINE_BYTES) };
    for (to, from) in line.iter_mut().skip(AT).zip(bytes) {
        *to = from;
    }
}

/// The eight raw bytes at `AT`.
pub(super) fn raw_at<const AT: usize>(line: &Line) -> [u8; 8] {
    bytes_at::<AT, 8>(line)
}

/// The `u64` at `AT`.
pub(super) fn u64_at<const AT: usize>(line: &Line) -> u64 {
    u64::from_le_bytes(bytes_at::<AT, 8>(line))
}

/// The `u32` at `AT`.
pub(super) fn u32_at<const AT: usize>(line: &Line) -> u32 {
    u32::from_le_bytes(bytes_at::<AT, 4>(line))
}

/// The `u16` at `AT`.
pub(super) fn u16_at<const AT: usize>(line: &Line) -> u16 {
    u16::from_le_bytes(bytes_at::<AT, 2>(line))
}

/// Writes eight raw bytes at `AT`.
pub(super) fn put_raw<const AT: usize>(line: &mut Line, bytes: [u8; 8]) {
    put_bytes::<AT, 8>(line, bytes);
}

/// Writes a `u64` at `AT`.
pub(super) fn put_u64<const AT: usize>(line: &mut Line, value: u64) {
    put_bytes::<AT, 8>(line, value.to_le_bytes());
}

/// Writes a `u32` at `AT`.
pub(super) fn put_u32<const AT: usize>(line: &mut Line, value: u32) {
    put_bytes::<AT, 4>(line, value.to_le_bytes());
}

/// Writes a `u16` at `AT`.
pub(super) fn put_u16<const AT: usize>(line: &mut Line, value: u16) {
    put_bytes::<AT, 2>(line, value.to_le_bytes());
}
