//! Checks of an index when it is opened, after which its accessors cannot fail.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use super::entry::{Codec, Entry};
use super::extras::{check_dictionaries, check_fields, check_keys};
use super::layout::{
    ENTRY_BYTES, FLAG_CONTENT, FLAGS_REQUIRED, HEADER_BYTES, Header, KIND_CLASSES, KIND_DICTIONARIES,
    KIND_ENTRIES, KIND_FIELDS, KIND_KEYS, KIND_NAMES, KIND_OPTIONS, KIND_SHARDS, SHARD_BYTES, Section,
    u32_at, u64_at,
};
use super::names::Names;
use crate::checksum::crc32c;
use crate::error::FormatError;
use crate::ids::ContentId;
use crate::limits::{
    CLASSES_MAX, NAME_BYTES_MAX, RECORD_BYTES_MAX, SAMPLES_MAX, SHARD_ALIGN_BYTES, SHARD_BYTES_MAX,
    SHARDS_MAX,
};
use crate::shard::{END_OF_ARCHIVE, padded_len};

const SHARDS: &str = "index shard table";
const CLASSES: &str = "index class table";
const ENTRIES: &str = "index entries";
const NAMES: &str = "index names";
const OPTIONS: &str = "index options";

/// Where everything lies in a checked index.
#[derive(Clone, Debug)]
pub(super) struct IndexLayout {
    pub content_id: ContentId,
    pub samples: u32,
    pub shards: u32,
    pub classes: u32,
    pub entries_at: usize,
    pub shards_at: usize,
    pub shard_names: Names,
    pub class_names: Names,
    pub paths: Names,
    pub options: Range<usize>,
    /// The optional sections: `None`, or empty, where the index has none.
    pub keys_at: Option<usize>,
    pub dictionaries: Vec<(u32, Range<usize>)>,
    pub fields_at: Option<usize>,
}

/// The hash that identifies what a dataset holds: xxh3-128 over the entries section, then the
/// classes section, then the fields section, empty where there is none.
pub(super) fn content_id(entries: &[u8], classes: &[u8], fields: &[u8]) -> ContentId {
    let mut hash = Xxh3::new();
    hash.update(entries);
    hash.update(classes);
    hash.update(fields);
    ContentId(hash.digest128())
}

/// Checks a whole index.
pub(super) fn check(index: &[u8]) -> Result<IndexLayout, FormatError> {
    let header = Header::decode(index)?;
    let samples = limited(header.samples, SAMPLES_MAX, 40, "samples")?;
    limited(header.shards.into(), SHARDS_MAX.into(), 48, "shards")?;
    limited(header.classes.into(), CLASSES_MAX.into(), 52, "classes")?;
    let table = Section::table(index, &header)?;
    for section in &table {
        check_section(index, section)?;
    }
    let optional = |kind, structure| find_optional(&table, kind, structure);
    let find = |kind, structure| find(&table, kind, structure);
    let shards = find(KIND_SHARDS, SHARDS)?;
    let classes = find(KIND_CLASSES, CLASSES)?;
    let entries = find(KIND_ENTRIES, ENTRIES)?;
    let names = find(KIND_NAMES, NAMES)?;
    let options = find(KIND_OPTIONS, OPTIONS)?;

    let keys = optional(KIND_KEYS, "index keys")?;
    let dictionaries = optional(KIND_DICTIONARIES, "index dictionaries")?;
    let fields = optional(KIND_FIELDS, "index fields")?;

    let fields_bytes = fields.as_ref().map_or(Ok(&[][..]), |fields| slice(index, fields))?;
    let got = content_id(slice(index, &entries)?, slice(index, &classes)?, fields_bytes);
    if got != header.content_id {
        return Err(FormatError::new(
            "index header",
            24,
            format_args!("content id {}", header.content_id),
            got,
        ));
    }
    let (shard_rows, shard_names) = check_shards(index, &shards, header.shards)?;
    let class_names = Names::check(index, classes, header.classes.into(), NAME_BYTES_MAX, CLASSES)?;
    let dictionaries = dictionaries.map_or(Ok(Vec::new()), |range| check_dictionaries(index, range))?;
    let around = Around {
        shards: &shard_rows,
        classes: header.classes,
        samples: header.samples,
        dictionaries: !dictionaries.is_empty(),
    };
    check_entries(index, &entries, &around)?;
    let paths = Names::check(index, names, header.samples, NAME_BYTES_MAX, NAMES)?;
    let keys_at = keys.map(|range| check_keys(&range, samples)).transpose()?;
    let shard_bytes = |shard: usize| shard_rows.get(shard).map(|(bytes, _)| *bytes);
    let fields_at =
        fields.map(|range| check_fields(index, &range, &entries, shard_bytes, samples)).transpose()?;
    if std::str::from_utf8(slice(index, &options)?).is_err() {
        return Err(FormatError::new(OPTIONS, options.start as u64, "bytes that are not UTF-8", "JSON text"));
    }
    Ok(IndexLayout {
        content_id: header.content_id,
        samples,
        shards: header.shards,
        classes: header.classes,
        entries_at: entries.start,
        shards_at: shards.start,
        shard_names,
        class_names,
        paths,
        options,
        keys_at,
        dictionaries,
        fields_at,
    })
}

fn limited(count: u64, max: u64, at: u64, what: &str) -> Result<u32, FormatError> {
    let wrong = || {
        FormatError::new("index header", at, format_args!("{count} {what}"), format_args!("at most {max}"))
    };
    if count > max {
        return Err(wrong());
    }
    u32::try_from(count).map_err(|_| wrong())
}

fn check_section(index: &[u8], section: &Section) -> Result<(), FormatError> {
    let range = range_of(section)?;
    let got = crc32c(slice(index, &range)?);
    if got != section.crc32c {
        let got = format_args!("type {} with crc32c {got:08x}", section.kind);
        let expected = format_args!("{:08x}", section.crc32c);
        return Err(FormatError::new("index section", section.offset, got, expected));
    }
    // One flag has a meaning; it is set on one type, always.
    let expected = if section.kind == KIND_FIELDS { FLAG_CONTENT } else { 0 };
    let required = section.flags & FLAGS_REQUIRED;
    if required != expected {
        let got = format_args!("type {} with required flags {required:#010x}", section.kind);
        let expected = format_args!("{expected:#010x}, the flags that this version knows: use a newer shade");
        return Err(FormatError::new("index section", section.offset, got, expected));
    }
    Ok(())
}

fn range_of(section: &Section) -> Result<Range<usize>, FormatError> {
    let end = section.offset.checked_add(section.len);
    match (usize::try_from(section.offset), end.map(usize::try_from)) {
        (Ok(start), Some(Ok(end))) => Ok(start..end),
        _ => Err(FormatError::new(
            "index section",
            section.offset,
            section.len,
            "a length this machine can address",
        )),
    }
}

fn slice<'a>(index: &'a [u8], range: &Range<usize>) -> Result<&'a [u8], FormatError> {
    index.get(range.clone()).ok_or_else(|| {
        let expected = format_args!("a section inside the file's {} bytes", index.len());
        FormatError::new(
            "index section",
            range.start as u64,
            format_args!("its end at {}", range.end),
            expected,
        )
    })
}

/// The one section of this type.
fn find(table: &[Section], kind: u32, structure: &'static str) -> Result<Range<usize>, FormatError> {
    let found = find_optional(table, kind, structure)?;
    found.ok_or_else(|| FormatError::new(structure, HEADER_BYTES as u64, "no such section", "one"))
}

/// The one section of this type, if there is any.
fn find_optional(
    table: &[Section],
    kind: u32,
    structure: &'static str,
) -> Result<Option<Range<usize>>, FormatError> {
    let mut found = table.iter().filter(|section| section.kind == kind);
    match (found.next(), found.next()) {
        (section, None) => section.map(range_of).transpose(),
        (_, Some(again)) => Err(FormatError::new(structure, again.offset, "a second such section", "one")),
    }
}

/// Bytes and records of each shard, and the table of their names.
fn check_shards(
    index: &[u8],
    range: &Range<usize>,
    count: u32,
) -> Result<(Vec<(u64, u32)>, Names), FormatError> {
    let rows_len = (count as usize).saturating_mul(SHARD_BYTES);
    let rows_end = range.start.saturating_add(rows_len);
    let rows = slice(index, range)?.get(..rows_len).ok_or_else(|| {
        FormatError::new(
            SHARDS,
            range.start as u64,
            format_args!("{} bytes", range.len()),
            format_args!("{count} rows"),
        )
    })?;
    let mut shards = Vec::with_capacity(count as usize);
    for (number, row) in rows.chunks_exact(SHARD_BYTES).enumerate() {
        let at = range.start as u64 + (number as u64).saturating_mul(SHARD_BYTES as u64);
        let wrong = |got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(SHARDS, at, format_args!("shard {number} of {got}"), expected)
        };
        let bytes = u64_at(row, 0).ok_or_else(|| wrong(&"no bytes", &"a row"))?;
        let records = u32_at(row, 8).ok_or_else(|| wrong(&"no bytes", &"a row"))?;
        let aligned = bytes.is_multiple_of(SHARD_ALIGN_BYTES) && bytes >= END_OF_ARCHIVE.len() as u64;
        if !aligned || bytes > SHARD_BYTES_MAX {
            let expected = format_args!("a multiple of 512 in 1024..={SHARD_BYTES_MAX}");
            return Err(wrong(&format_args!("{bytes} bytes"), &expected));
        }
        shards.push((bytes, records));
    }
    let names = Names::check(index, rows_end..range.end, count.into(), NAME_BYTES_MAX, SHARDS)?;
    for number in 0..count {
        let name = names.get(index, number.into()).unwrap_or_default();
        if !is_file_name(name) {
            let got = format_args!("shard {number} named {:?}", String::from_utf8_lossy(name));
            return Err(FormatError::new(SHARDS, rows_end as u64, got, "a plain UTF-8 file name"));
        }
    }
    Ok((shards, names))
}

/// A shard's name is joined to the dataset's directory, so it must not lead out of it.
fn is_file_name(name: &[u8]) -> bool {
    let plain = !name.contains(&b'/') && !name.contains(&0);
    plain && !matches!(name, b"" | b"." | b"..") && std::str::from_utf8(name).is_ok()
}

/// What the entries must fit.
struct Around<'a> {
    /// Bytes and records of each shard.
    shards: &'a [(u64, u32)],
    classes: u32,
    samples: u64,
    /// Whether there are any.
    dictionaries: bool,
}

fn check_entries(index: &[u8], range: &Range<usize>, around: &Around<'_>) -> Result<(), FormatError> {
    let Around { shards, samples, .. } = *around;
    let rows = slice(index, range)?;
    if samples.checked_mul(ENTRY_BYTES as u64) != Some(rows.len() as u64) {
        let expected = format_args!("{samples} entries of {ENTRY_BYTES} bytes");
        let got = format_args!("{} bytes", rows.len());
        return Err(FormatError::new(ENTRIES, range.start as u64, got, expected));
    }
    let mut records = vec![0u32; shards.len()];
    for (sample, row) in rows.chunks_exact(ENTRY_BYTES).enumerate() {
        check_entry(row, around, &mut records).map_err(|(got, expected)| {
            let at = range.start as u64 + (sample as u64).saturating_mul(ENTRY_BYTES as u64);
            FormatError::new(ENTRIES, at, format_args!("sample {sample} with {got}"), expected)
        })?;
    }
    for (number, (counted, (_, said))) in records.iter().zip(shards).enumerate() {
        if counted != said {
            let got = format_args!("{counted} entries for shard {number}");
            return Err(FormatError::new(SHARDS, range.start as u64, got, format_args!("{said}")));
        }
    }
    Ok(())
}

/// Checks one entry and counts it for its shard. An error is what it has and what it should have.
fn check_entry(row: &[u8], around: &Around<'_>, records: &mut [u32]) -> Result<(), (String, String)> {
    let Around { shards, classes, dictionaries, .. } = *around;
    let entry = Entry::decode(row)
        .ok_or_else(|| ("an unknown codec or flag".to_owned(), "those of this version".to_owned()))?;
    let number = entry.shard.index();
    let (Some((bytes, _)), Some(count)) = (shards.get(number), records.get_mut(number)) else {
        return Err((format!("shard {number}"), format!("a shard below {}", shards.len())));
    };
    *count = count.saturating_add(1);
    if entry.label >= classes {
        return Err((format!("label {}", entry.label), format!("a label below {classes}")));
    }
    if u64::from(entry.stored_len.max(entry.raw_len)) > RECORD_BYTES_MAX {
        let got = format!("{} bytes stored, {} raw", entry.stored_len, entry.raw_len);
        return Err((got, format!("at most {RECORD_BYTES_MAX}")));
    }
    if entry.codec == Codec::None && entry.stored_len != entry.raw_len {
        return Err((
            format!("{} bytes stored", entry.stored_len),
            format!("{}, its raw length", entry.raw_len),
        ));
    }
    if entry.codec == Codec::ZstdDictionary && !dictionaries {
        return Err(("a codec that needs a dictionary".to_owned(), "an index with one".to_owned()));
    }
    let end = entry.offset.checked_add(padded_len(entry.stored_len.into()));
    if entry.offset == 0 || end.is_none_or(|end| end > *bytes) {
        let got = format!("{} bytes at {}", entry.stored_len, entry.offset);
        return Err((got, format!("a record behind a header, inside the shard's {bytes} bytes")));
    }
    Ok(())
}
