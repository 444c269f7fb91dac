//! Reads the little-endian fields of saved bytes that end with their CRC32C.
#![warn(clippy::indexing_slicing)]

use shade_formats::FormatError;
use shade_formats::checksum::crc32c;

/// Reads fields one after the other; running out of bytes is an error.
pub(super) struct Fields<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// The fields of `bytes`, whose checksum is right.
    pub(super) fn new(structure: &'static str, bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (fields, crc) = bytes
            .split_last_chunk()
            .ok_or_else(|| FormatError::new(structure, 0, bytes.len(), "at least 4 bytes"))?;
        let (got, expected) = (crc32c(fields), u32::from_le_bytes(*crc));
        if got != expected {
            let offset = fields.len() as u64;
            let (got, expected) = (format!("{got:#010x}"), format!("the checksum {expected:#010x}"));
            return Err(FormatError::new(structure, offset, got, expected));
        }
        Ok(Self { structure, bytes: fields, at: 0 })
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.saturating_add(len);
        let found = self.bytes.get(self.at..end);
        let found = found.ok_or_else(|| self.error("its end", &format!("{len} more bytes")))?;
        self.at = end;
        Ok(found)
    }

    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], FormatError> {
        let mut array = [0; LEN];
        array.copy_from_slice(self.take(LEN)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    /// A column of `len` numbers.
    pub(super) fn u32s(&mut self, len: u32) -> Result<Vec<u32>, FormatError> {
        let words = self.take((len as usize).saturating_mul(4))?.chunks_exact(4);
        Ok(words.filter_map(|word| word.first_chunk()).map(|word| u32::from_le_bytes(*word)).collect())
    }

    pub(super) fn f32s(&mut self, len: u32) -> Result<Vec<f32>, FormatError> {
        Ok(self.u32s(len)?.into_iter().map(f32::from_bits).collect())
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Refuses the field read last unless it `holds`.
    pub(super) fn expect(&self, expected: &str, holds: bool) -> Result<(), FormatError> {
        if holds { Ok(()) } else { Err(self.error("something else", expected)) }
    }

    fn error(&self, got: &str, expected: &str) -> FormatError {
        FormatError::new(self.structure, self.at as u64, got, expected)
    }
}
