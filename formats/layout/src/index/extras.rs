//! The optional sections: keys, dictionaries, fields. A dataset has only those that it needs.

use std::ops::Range;

use super::entry::Entry;
use super::layout::{ENTRY_BYTES, FIELDS_BYTES, KEY_BYTES, u32_at};
use super::names::Names;
use crate::error::FormatError;
use crate::limits::{DICTIONARIES_MAX, DICTIONARY_BYTES_MAX, FIELDS_BYTES_MAX, SHARD_ALIGN_BYTES};
use crate::shard::padded_len;

const KEYS: &str = "index keys";
const DICTIONARIES: &str = "index dictionaries";
const FIELDS: &str = "index fields";

/// How zstd's own dictionary format begins, little-endian; the dictionary's id follows.
const DICTIONARY_MAGIC: u32 = 0xEC30_A437;
/// The section's count of dictionaries and its padding, before the table.
const COUNT_BYTES: usize = 8;

/// A row of the fields section: where a sample's extra fields end, and their checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldsRow {
    /// 512-byte blocks from the end of the record's padding to the end of the last field's padding;
    /// 0 for no field.
    pub blocks: u32,
    /// CRC32C over these blocks; 0 for no field.
    pub crc32c: u32,
}

/// Where the tar members with a sample's extra fields lie, in the shard that holds its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldsSpan {
    /// Bytes from the shard's start to the first member's header: the end of the record's padding.
    /// In an index of [places](super::Places), to the first field's first byte.
    pub offset: u64,
    /// Bytes to the end of the last member's padding; in an index of places, of the last field.
    pub len: u64,
    /// CRC32C over them. `None` in an index of places, where each field may have its own.
    pub crc32c: Option<u32>,
}

impl FieldsRow {
    pub(super) fn encode(self) -> [u8; FIELDS_BYTES] {
        let mut row = [0; FIELDS_BYTES];
        let values = self.blocks.to_le_bytes().into_iter().chain(self.crc32c.to_le_bytes());
        row.iter_mut().zip(values).for_each(|(byte, value)| *byte = value);
        row
    }

    pub(super) fn decode(row: &[u8]) -> Option<Self> {
        Some(Self { blocks: u32_at(row, 0)?, crc32c: u32_at(row, 4)? })
    }

    /// The span of the row, behind the record of `entry`; `None` for no field, or for an offset
    /// that no file has.
    pub(super) fn span(self, entry: &Entry) -> Option<FieldsSpan> {
        let offset = entry.offset.checked_add(padded_len(entry.stored_len.into()))?;
        let len = u64::from(self.blocks) * SHARD_ALIGN_BYTES;
        (self.blocks != 0).then_some(FieldsSpan { offset, len, crc32c: Some(self.crc32c) })
    }
}

/// The id that a zstd dictionary says of itself; `None` when `dictionary` is none, or has none.
pub(super) fn dictionary_id(dictionary: &[u8]) -> Option<u32> {
    let magic = u32_at(dictionary, 0)?;
    u32_at(dictionary, 4).filter(|&id| magic == DICTIONARY_MAGIC && id != 0)
}

/// Checks a dictionary for an index that has those with ids `before`. Returns its id.
pub(super) fn check_dictionary(
    dictionary: &[u8],
    mut before: impl ExactSizeIterator<Item = u32>,
    at: u64,
) -> Result<u32, FormatError> {
    let wrong = |got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
        Err(FormatError::new(DICTIONARIES, at, got, expected))
    };
    if dictionary.len() > DICTIONARY_BYTES_MAX {
        let expected = format_args!("at most {DICTIONARY_BYTES_MAX}");
        return wrong(&format_args!("a dictionary of {} bytes", dictionary.len()), &expected);
    }
    if before.len() >= DICTIONARIES_MAX as usize {
        return wrong(&"one dictionary more", &format_args!("at most {DICTIONARIES_MAX}"));
    }
    let Some(id) = dictionary_id(dictionary) else {
        return wrong(&"a dictionary without magic or id", &"one that zstd has trained");
    };
    if before.any(|other| other == id) {
        return wrong(&format_args!("a second dictionary with id {id}"), &"one of each id");
    }
    Ok(id)
}

/// The beginning of the section that [`check_dictionaries`] reads.
pub(super) fn encode_dictionary_count(count: u32) -> [u8; COUNT_BYTES] {
    u64::from(count).to_le_bytes()
}

/// Each dictionary's id and where its bytes lie.
pub(super) fn check_dictionaries(
    index: &[u8],
    range: Range<usize>,
) -> Result<Vec<(u32, Range<usize>)>, FormatError> {
    let at = range.start as u64;
    let section = index.get(range.clone()).unwrap_or_default();
    let (Some(count), Some(0)) = (u32_at(section, 0), u32_at(section, 4)) else {
        let got = format_args!("{} bytes that begin with no count", section.len());
        return Err(FormatError::new(DICTIONARIES, at, got, "a count and four zeros"));
    };
    if count > DICTIONARIES_MAX {
        let expected = format_args!("at most {DICTIONARIES_MAX}");
        return Err(FormatError::new(DICTIONARIES, at, format_args!("{count} dictionaries"), expected));
    }
    let table = range.start.saturating_add(COUNT_BYTES)..range.end;
    let names = Names::check(index, table, count.into(), DICTIONARY_BYTES_MAX, DICTIONARIES)?;
    let mut found: Vec<(u32, Range<usize>)> = Vec::with_capacity(count as usize);
    for number in 0..count {
        let range = names.range(index, number.into()).unwrap_or_default();
        let dictionary = index.get(range.clone()).unwrap_or_default();
        let id = check_dictionary(dictionary, found.iter().map(|(id, _)| *id), range.start as u64)?;
        found.push((id, range));
    }
    Ok(found)
}

/// Checks that there is a key for each sample. Returns the place of the first.
pub(super) fn check_keys(range: &Range<usize>, samples: u32) -> Result<usize, FormatError> {
    check_rows(range, samples, KEY_BYTES, KEYS)?;
    Ok(range.start)
}

/// Checks that each sample's fields lie inside its shard. Returns the place of the first row.
/// `entries` and the lengths `shard_bytes` were checked before.
pub(super) fn check_fields(
    index: &[u8],
    range: &Range<usize>,
    entries: &Range<usize>,
    shard_bytes: impl Fn(usize) -> Option<u64>,
    samples: u32,
) -> Result<usize, FormatError> {
    check_rows(range, samples, FIELDS_BYTES, FIELDS)?;
    let rows = index.get(range.clone()).unwrap_or_default().chunks_exact(FIELDS_BYTES);
    let entries = index.get(entries.clone()).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    for (sample, (row, entry)) in rows.zip(entries).enumerate() {
        let (Some(row), Some(entry)) = (FieldsRow::decode(row), Entry::decode(entry)) else { continue };
        let wrong = |expected: &dyn std::fmt::Display| {
            let at = range.start as u64 + (sample as u64).saturating_mul(FIELDS_BYTES as u64);
            let FieldsRow { blocks, crc32c } = row;
            let got = format_args!("sample {sample} with {blocks} blocks of crc32c {crc32c:08x}");
            Err(FormatError::new(FIELDS, at, got, expected))
        };
        let Some(span) = row.span(&entry) else {
            // There is only one way to say "none", as the content id covers these bytes.
            if row != FieldsRow::default() {
                return wrong(&"crc32c 0 where there are no blocks");
            }
            continue;
        };
        let bytes = shard_bytes(entry.shard.index()).unwrap_or(0);
        if span.len > FIELDS_BYTES_MAX {
            return wrong(&format_args!("at most {FIELDS_BYTES_MAX} bytes"));
        }
        if span.offset.checked_add(span.len).is_none_or(|end| end > bytes) {
            let expected = format_args!("fields from {} on, inside the shard's {bytes} bytes", span.offset);
            return wrong(&expected);
        }
    }
    Ok(range.start)
}

fn check_rows(
    range: &Range<usize>,
    samples: u32,
    row_bytes: usize,
    structure: &'static str,
) -> Result<(), FormatError> {
    let expected = u64::from(samples).saturating_mul(row_bytes as u64);
    if range.len() as u64 != expected {
        let got = format_args!("{} bytes", range.len());
        let expected = format_args!("{expected}, {row_bytes} for each of {samples} samples");
        return Err(FormatError::new(structure, range.start as u64, got, expected));
    }
    Ok(())
}
