//! The one checksum: CRC32C (Castagnoli), which storage people expect and which CPUs compute at several GB/s.

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of the bytes seen so far followed by `bytes`, where `crc` covers those seen so far (0 for none).
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn check_value_of_the_polynomial() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c_append(super::crc32c(b"1234"), b"56789"), 0xe306_9283);
    }
}
