//! The one checksum: CRC32C (Castagnoli), common in storage and computed by CPUs at several GB/s.

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of the bytes seen so far followed by `bytes`, where `crc` covers those seen so far (0 for
/// none).
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// CRC32C of two pieces one behind the other, of which only the checksums and the second one's
/// length are known.
#[must_use]
pub fn crc32c_concat(first: u32, second: u32, second_len: usize) -> u32 {
    crc32c::crc32c_combine(first, second, second_len)
}

#[cfg(test)]
mod tests {
    #[test]
    fn check_value_of_the_polynomial() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c_append(super::crc32c(b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(super::crc32c_concat(super::crc32c(b"1234"), super::crc32c(b"56789"), 5), 0xe306_9283);
        assert_eq!(super::crc32c_concat(0, super::crc32c(b"123456789"), 9), 0xe306_9283);
        assert_eq!(super::crc32c_concat(0xe306_9283, 0, 0), 0xe306_9283);
    }
}
