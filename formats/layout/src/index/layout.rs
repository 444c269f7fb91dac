//! The index's fixed structures, byte for byte as in `INDEX.md`; reader and writer share this file.

use crate::checksum::crc32c;
use crate::error::FormatError;
use crate::ids::ContentId;

const MAGIC: [u8; 8] = *b"SHADEDS1";
/// Readers refuse another major version; a new minor version only adds what older readers may
/// ignore.
const MAJOR: u16 = 1;
/// A file that uses nothing of minor version 1 says 0, and is byte for byte what version 0 wrote.
pub(super) const MINOR_PLAIN: u16 = 0;
/// Keys, dictionaries, fields.
pub(super) const MINOR_EXTRAS: u16 = 1;
/// Places: records lie in files that shade has not written.
pub(super) const MINOR_PLACES: u16 = 2;
/// Reads as another number where bytes were swapped.
const ENDIAN_MARK: u32 = 0x0102_0304;
/// Length of the header, which identifies the dataset.
pub const HEADER_BYTES: usize = 64;
pub(super) const SECTION_BYTES: usize = 32;
pub(super) const ENTRY_BYTES: usize = 32;
pub(super) const SHARD_BYTES: usize = 16;
pub(super) const KEY_BYTES: usize = 4;
pub(super) const FIELDS_BYTES: usize = 8;
/// Limit of the table: far above the eleven types, far below what could hurt.
const SECTIONS_MAX: u32 = 1024;
/// Section flags that a reader must know to go on. The other flags may be ignored.
pub(super) const FLAGS_REQUIRED: u32 = 0xffff_0000;
/// The content id also covers this section. A reader that does not know it would find another id.
pub(super) const FLAG_CONTENT: u32 = 1 << 16;

pub(super) const KIND_SHARDS: u32 = 1;
pub(super) const KIND_CLASSES: u32 = 2;
pub(super) const KIND_ENTRIES: u32 = 3;
pub(super) const KIND_NAMES: u32 = 4;
pub(super) const KIND_OPTIONS: u32 = 5;
pub(super) const KIND_KEYS: u32 = 6;
pub(super) const KIND_DICTIONARIES: u32 = 7;
pub(super) const KIND_FIELDS: u32 = 8;
pub(super) const KIND_PLACES: u32 = 9;
pub(super) const KIND_MEMBERS: u32 = 10;
pub(super) const KIND_FIELD_ENDS: u32 = 11;

/// The required flags of a section of this type: all that it ever has.
pub(super) fn required_flags(kind: u32) -> u32 {
    if matches!(kind, KIND_FIELDS | KIND_PLACES | KIND_MEMBERS) { FLAG_CONTENT } else { 0 }
}

const HEADER: &str = "index header";
const TABLE: &str = "index section table";

/// The first 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub minor: u16,
    pub sections: u32,
    pub content_id: ContentId,
    pub samples: u64,
    pub shards: u32,
    pub classes: u32,
    pub table_crc32c: u32,
}

/// A row of the section table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub len: u64,
    pub crc32c: u32,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(MAJOR.to_le_bytes());
        bytes.extend(self.minor.to_le_bytes());
        bytes.extend(ENDIAN_MARK.to_le_bytes());
        // The field lets a later version grow the header.
        bytes.extend(64u32.to_le_bytes());
        bytes.extend(self.sections.to_le_bytes());
        bytes.extend(self.content_id.0.to_le_bytes());
        bytes.extend(self.samples.to_le_bytes());
        bytes.extend(self.shards.to_le_bytes());
        bytes.extend(self.classes.to_le_bytes());
        bytes.extend(self.table_crc32c.to_le_bytes());
        let crc = crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    /// Reads and checks the header at the start of an index.
    pub(super) fn decode(index: &[u8]) -> Result<Self, FormatError> {
        let short = || {
            FormatError::new(
                HEADER,
                0,
                format_args!("{} bytes", index.len()),
                "at least 64 bytes: is the file whole?",
            )
        };
        let bytes: &[u8; HEADER_BYTES] = index.first_chunk().ok_or_else(short)?;
        let wrong = |at: u64, got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(HEADER, at, got, expected)
        };
        if !bytes.starts_with(&MAGIC) {
            return Err(wrong(0, &"another magic", &"\"SHADEDS1\", the start of a dataset.shade"));
        }
        let endian = u32_at(bytes, 12).ok_or_else(short)?;
        if endian != ENDIAN_MARK {
            return Err(wrong(12, &format_args!("byte-order mark {endian:#010x}"), &"0x01020304"));
        }
        let major = u16_at(bytes, 8).ok_or_else(short)?;
        if major != MAJOR {
            return Err(wrong(
                8,
                &format_args!("major version {major}"),
                &format_args!("{MAJOR}: use a matching shade"),
            ));
        }
        let len = u32_at(bytes, 16).ok_or_else(short)?;
        if len != 64 {
            return Err(wrong(16, &format_args!("header length {len}"), &64));
        }
        let crc = u32_at(bytes, 60).ok_or_else(short)?;
        let expected = crc32c(bytes.get(..60).ok_or_else(short)?);
        if crc != expected {
            return Err(wrong(60, &format_args!("crc32c {crc:08x}"), &format_args!("{expected:08x}")));
        }
        let sections = u32_at(bytes, 20).ok_or_else(short)?;
        if sections > SECTIONS_MAX {
            return Err(wrong(
                20,
                &format_args!("{sections} sections"),
                &format_args!("at most {SECTIONS_MAX}"),
            ));
        }
        Ok(Self {
            minor: u16_at(bytes, 10).ok_or_else(short)?,
            sections,
            content_id: ContentId(u128_at(bytes, 24).ok_or_else(short)?),
            samples: u64_at(bytes, 40).ok_or_else(short)?,
            shards: u32_at(bytes, 48).ok_or_else(short)?,
            classes: u32_at(bytes, 52).ok_or_else(short)?,
            table_crc32c: u32_at(bytes, 56).ok_or_else(short)?,
        })
    }
}

impl Section {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SECTION_BYTES);
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(self.crc32c.to_le_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    fn decode(row: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32_at(row, 0)?,
            flags: u32_at(row, 4)?,
            offset: u64_at(row, 8)?,
            len: u64_at(row, 16)?,
            crc32c: u32_at(row, 24)?,
        })
    }

    /// Reads the section table and checks that the sections tile the rest of the file without gap
    /// or overlap, so that no byte escapes a checksum.
    pub(super) fn table(index: &[u8], header: &Header) -> Result<Vec<Self>, FormatError> {
        let start = HEADER_BYTES as u64;
        let short = || {
            FormatError::new(TABLE, start, "the end of the file", format_args!("{} rows", header.sections))
        };
        let len = usize::try_from(header.sections).ok().and_then(|count| count.checked_mul(SECTION_BYTES));
        let end = len.and_then(|len| len.checked_add(HEADER_BYTES)).ok_or_else(short)?;
        let rows = index.get(HEADER_BYTES..end).ok_or_else(short)?;
        let got = crc32c(rows);
        if got != header.table_crc32c {
            let got = format_args!("bytes with crc32c {got:08x}");
            let expected = format_args!("{:08x}", header.table_crc32c);
            return Err(FormatError::new(TABLE, start, got, expected));
        }
        let table: Vec<Self> = rows.chunks_exact(SECTION_BYTES).filter_map(Self::decode).collect();
        let mut next = end as u64;
        for section in &table {
            if section.offset != next {
                let got = format_args!("a section at {}", section.offset);
                return Err(FormatError::new(TABLE, start, got, next));
            }
            next = section.offset.checked_add(section.len).ok_or_else(short)?;
        }
        if next != index.len() as u64 {
            let expected = format_args!("{next} bytes, where the last section ends");
            return Err(FormatError::new("index file", next.min(index.len() as u64), index.len(), expected));
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_structures_have_their_sizes_and_round_trip() {
        let header = Header {
            minor: MINOR_EXTRAS,
            sections: 5,
            content_id: ContentId(1 << 127 | 9),
            samples: 7,
            shards: 2,
            classes: 3,
            table_crc32c: 11,
        };
        assert_eq!(header.encode().len(), HEADER_BYTES);
        assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        let section = Section { kind: 3, flags: 1, offset: 64, len: 5, crc32c: 9 };
        assert_eq!(section.encode().len(), SECTION_BYTES);
        assert_eq!(Section::decode(&section.encode()), Some(section));
    }

    #[test]
    fn a_strange_version_or_byte_order_is_named() {
        let header = Header {
            minor: MINOR_PLAIN,
            sections: 0,
            content_id: ContentId(0),
            samples: 0,
            shards: 0,
            classes: 0,
            table_crc32c: 0,
        };
        let mut newer = header.encode();
        newer[8] = 2;
        assert!(Header::decode(&newer).unwrap_err().to_string().contains("major version 2"));
        let mut swapped = header.encode();
        swapped[12..16].reverse();
        assert!(Header::decode(&swapped).unwrap_err().to_string().contains("0x04030201"));
    }
}
