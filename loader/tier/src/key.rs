//! The key of a record: `shade:CONTENT-ID:SAMPLE`, both in hexadecimal digits, or
//! `shade:CONTENT-ID:fields=NAMES:SAMPLE` where extra fields are with it, all or those with names.
//!
//! The content id keeps datasets apart, so a key never serves another dataset's bytes. No job is in
//! it: one daemon serves all jobs of a dataset from one cache, and the bytes are the same for all.
//! Digits, because braces in a key would decide its slot, and because people look at keys.

use shade_formats::{ContentId, SampleId};

/// Number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;
/// Digits of a sample id.
const ID_DIGITS: usize = 8;

/// The keys of one dataset.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// All that comes before the sample id.
    prefix: String,
}

impl Keys {
    /// The keys of records, or of records with these fields: those are longer.
    pub(crate) fn new(content_id: ContentId, fields: Option<&str>) -> Self {
        let kind = fields.map(|names| format!("fields={names}:")).unwrap_or_default();
        Self { prefix: format!("shade:{:032x}:{kind}", content_id.0) }
    }

    pub(crate) fn of(&self, sample: SampleId) -> Vec<u8> {
        format!("{}{:0width$x}", self.prefix, sample.0, width = ID_DIGITS).into_bytes()
    }

    /// The pattern of all keys of the dataset.
    pub(crate) fn pattern(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// The sample of a key.
    pub(crate) fn sample(&self, key: &[u8]) -> Option<SampleId> {
        let digits = key.strip_prefix(self.prefix.as_bytes()).filter(|digits| digits.len() == ID_DIGITS)?;
        let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u32::from_str_radix(digits, 16).ok().map(SampleId)
    }
}

/// The slot of a key without braces: CRC-16/XMODEM modulo 16,384 (Redis Cluster specification).
pub(crate) fn slot(key: &[u8]) -> u16 {
    let crc = key.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn a_key_names_its_dataset_and_its_sample() {
        let keys = Keys::new(ContentId(0xabcd), None);
        let key = keys.of(SampleId(258));
        assert_eq!(key, b"shade:0000000000000000000000000000abcd:00000102");
        assert_eq!(keys.sample(&key), Some(SampleId(258)));
        assert_eq!(keys.sample(&keys.of(SampleId(u32::MAX))), Some(SampleId(u32::MAX)));
        assert_eq!(Keys::new(ContentId(1), None).sample(&key), None, "another dataset");
        let whole = Keys::new(ContentId(0xabcd), Some("a,b")).of(SampleId(258));
        assert_eq!(whole, b"shade:0000000000000000000000000000abcd:fields=a,b:00000102");
        assert_eq!(keys.sample(&whole), None, "it has its fields with it");
        for bad in ["0102", "0000010g", "+0000102", "000000102"] {
            assert_eq!(keys.sample(format!("{}{bad}", keys.prefix).as_bytes()), None, "{bad}");
        }
    }
}
