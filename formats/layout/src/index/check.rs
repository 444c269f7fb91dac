//! Checks of an index when it is opened, after which its accessors cannot fail.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use super::entry::{Codec, Entry};
use super::extras::{FieldsRow, check_dictionaries, check_fields, check_keys};
use super::field_ends::FieldEndsLayout;
use super::layout::{
    ENTRY_BYTES, FIELDS_BYTES, FLAGS_REQUIRED, HEADER_BYTES, Header, KIND_CLASSES, KIND_DICTIONARIES,
    KIND_ENTRIES, KIND_FIELD_ENDS, KIND_FIELDS, KIND_KEYS, KIND_MEMBERS, KIND_NAMES, KIND_OPTIONS,
    KIND_PLACES, KIND_SHARDS, SHARD_BYTES, Section, required_flags, u32_at, u64_at,
};
use super::members::MembersLayout;
use super::names::Names;
use super::places::{PlacesKind, PlacesLayout, is_path_below};
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
    pub places: Option<PlacesLayout>,
    pub members: Option<MembersLayout>,
    pub field_ends: Option<FieldEndsLayout>,
}

/// What identifies the content of a dataset, in the order of the hash; empty where there is none.
pub(super) struct Hashed<'a> {
    pub(super) entries: &'a [u8],
    pub(super) classes: &'a [u8],
    pub(super) fields: &'a [u8],
    /// The sections shards, names, places without its base, and members, in an index of places: its
    /// checksums may not be known, so that the files themselves are what it holds.
    pub(super) placed: [&'a [u8]; 4],
}

impl<'a> Hashed<'a> {
    /// What is hashed of these sections.
    pub(super) fn of(section: impl Fn(u32) -> Option<&'a [u8]>) -> Self {
        let of = |kind| section(kind).unwrap_or_default();
        let places = of(KIND_PLACES);
        // The base is not content: another machine may have mounted it elsewhere.
        let base = u32_at(places, 4).map_or(0, |len| (len as usize).saturating_add(8).next_multiple_of(8));
        let times = places.get(base..).unwrap_or_default();
        // Records of packed shards have checksums: their place is not content.
        let is_foreign = u32_at(places, 0).is_some_and(|kind| kind != PlacesKind::Shards as u32);
        let placed = match is_foreign {
            false => [&[][..]; 4],
            true => [of(KIND_SHARDS), of(KIND_NAMES), times, of(KIND_MEMBERS)],
        };
        Self { entries: of(KIND_ENTRIES), classes: of(KIND_CLASSES), fields: of(KIND_FIELDS), placed }
    }

    /// The hash: xxh3-128.
    pub(super) fn content_id(&self) -> ContentId {
        let mut hash = Xxh3::new();
        for part in [self.entries, self.classes, self.fields].iter().chain(&self.placed) {
            hash.update(part);
        }
        ContentId(hash.digest128())
    }
}

/// Checks a whole index.
pub(super) fn check(index: &[u8]) -> Result<IndexLayout, FormatError> {
    let header = Header::decode(index)?;
    let samples = limited(header.samples, SAMPLES_MAX, 40, "samples")?;
    limited(header.shards.into(), SHARDS_MAX.into(), 48, "shards")?;
    limited(header.classes.into(), CLASSES_MAX.into(), 52, "classes")?;
    let table = Section::table(index, &header)?;
    table.iter().try_for_each(|section| check_section(index, section))?;
    check_content_id(index, &table, &header)?;
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
    let places = optional(KIND_PLACES, "index places")?;
    let members = optional(KIND_MEMBERS, "index members")?;
    let field_ends = optional(KIND_FIELD_ENDS, "index field ends")?;

    let places = places.map(|range| PlacesLayout::check(index, range, header.shards)).transpose()?;
    let lie_elsewhere = places.is_some();
    let kind = places.as_ref().map(|places| places.kind).filter(|kind| kind.is_foreign());
    let (shard_rows, shard_names) = check_shards(index, &shards, header.shards, kind, lie_elsewhere)?;
    let class_names = Names::check(index, classes, header.classes.into(), NAME_BYTES_MAX, CLASSES)?;
    let dictionaries = dictionaries.map_or(Ok(Vec::new()), |range| check_dictionaries(index, range))?;
    let around = Around {
        shards: &shard_rows,
        classes: header.classes,
        samples: header.samples,
        dictionaries: !dictionaries.is_empty(),
        kind,
    };
    check_entries(index, &entries, &around)?;
    let paths = Names::check(index, names, header.samples, NAME_BYTES_MAX, NAMES)?;
    if kind == Some(PlacesKind::Files) {
        check_file_names(index, &paths, samples, header.shards)?;
    }
    let keys_at = keys.map(|range| check_keys(&range, samples)).transpose()?;
    let shard_bytes = |shard: usize| shard_rows.get(shard).map(|(bytes, _)| *bytes);
    let fields_at =
        fields.map(|range| check_fields(index, &range, &entries, shard_bytes, samples)).transpose()?;
    let members = check_members(index, members, kind, fields_at.is_some(), samples, |sample| {
        let row = index.get(entries.clone())?.get(sample.checked_mul(ENTRY_BYTES)?..)?;
        shard_bytes(Entry::decode(row)?.shard.index())
    })?;
    let field_ends = field_ends.map(|range| check_field_ends(index, range, fields_at, samples));
    let field_ends = field_ends.transpose()?;
    check_options(index, &options)?;
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
        places,
        members,
        field_ends,
    })
}

fn check_content_id(index: &[u8], table: &[Section], header: &Header) -> Result<(), FormatError> {
    let section = |kind| index.get(find_optional(table, kind, "index section").ok()??);
    let got = Hashed::of(section).content_id();
    if got == header.content_id {
        return Ok(());
    }
    let said = format_args!("content id {}", header.content_id);
    Err(FormatError::new("index header", 24, said, got))
}

fn check_options(index: &[u8], range: &Range<usize>) -> Result<(), FormatError> {
    match std::str::from_utf8(slice(index, range)?) {
        Ok(_) => Ok(()),
        Err(_) => Err(FormatError::new(OPTIONS, range.start as u64, "bytes that are not UTF-8", "JSON text")),
    }
}

/// The members of an index of tars. `has_fields`: it has a section of fields.
fn check_members(
    index: &[u8],
    range: Option<Range<usize>>,
    kind: Option<PlacesKind>,
    has_fields: bool,
    samples: u32,
    shard_bytes: impl Fn(usize) -> Option<u64>,
) -> Result<Option<MembersLayout>, FormatError> {
    let at = range.as_ref().map_or(HEADER_BYTES, |range| range.start) as u64;
    let is_misplaced = range.is_some() && kind != Some(PlacesKind::Tars);
    if is_misplaced || kind.is_some() && has_fields {
        let expected = "fields of shards, or members of tars in places";
        return Err(FormatError::new("index members", at, "fields of another kind of index", expected));
    }
    let check = |range| MembersLayout::check(index, range, samples, |at| shard_bytes(at).unwrap_or(0));
    range.map(check).transpose()
}

/// The ends of fields, of which the rows at `fields_at` say the last of each sample.
fn check_field_ends(
    index: &[u8],
    range: Range<usize>,
    fields_at: Option<usize>,
    samples: u32,
) -> Result<FieldEndsLayout, FormatError> {
    let whole = |sample: usize| {
        let row = fields_at?.checked_add(sample.checked_mul(FIELDS_BYTES)?)?;
        FieldsRow::decode(index.get(row..)?)
    };
    FieldEndsLayout::check(index, range, samples, |sample| whole(sample).unwrap_or_default())
}

/// Checks that each path leads to a file below the base, and that there is one for each shard.
fn check_file_names(index: &[u8], paths: &Names, samples: u32, shards: u32) -> Result<(), FormatError> {
    if shards != samples {
        return Err(FormatError::new(
            SHARDS,
            0,
            format_args!("{shards} shards"),
            format_args!("{samples} files"),
        ));
    }
    for number in 0..samples {
        let name = paths.get(index, number.into()).unwrap_or_default();
        if !is_path_below(name) {
            let got = format_args!("sample {number} at {:?}", String::from_utf8_lossy(name));
            return Err(FormatError::new(NAMES, 0, got, "a relative UTF-8 path without '..'"));
        }
    }
    Ok(())
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
    // One flag has a meaning; it is set on the types that need it, always.
    let expected = required_flags(section.kind);
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

/// Bytes and records of each shard, and the table of their names. `kind` is that of files of
/// others.
fn check_shards(
    index: &[u8],
    range: &Range<usize>,
    count: u32,
    kind: Option<PlacesKind>,
    lie_elsewhere: bool,
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
        // Files of others may have any length.
        if !(aligned || kind.is_some()) || bytes > SHARD_BYTES_MAX {
            let expected = format_args!("a multiple of 512 in 1024..={SHARD_BYTES_MAX}");
            return Err(wrong(&format_args!("{bytes} bytes"), &expected));
        }
        shards.push((bytes, records));
    }
    let names = Names::check(index, rows_end..range.end, count.into(), NAME_BYTES_MAX, SHARDS)?;
    for number in 0..count {
        let name = names.get(index, number.into()).unwrap_or_default();
        let (is_right, expected) = match kind {
            None if !lie_elsewhere => (is_file_name(name), "a plain UTF-8 file name"),
            None | Some(PlacesKind::Tars | PlacesKind::Shards) => {
                (is_path_below(name), "a relative UTF-8 path without '..'")
            }
            Some(PlacesKind::Files) => (name.is_empty(), "no name, as its sample's path names it"),
        };
        if !is_right {
            let got = format_args!("shard {number} named {:?}", String::from_utf8_lossy(name));
            return Err(FormatError::new(SHARDS, rows_end as u64, got, expected));
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
    /// The kind of places, if it has files of others.
    kind: Option<PlacesKind>,
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
        let checked = check_entry(row, around, &mut records);
        checked.and_then(|entry| check_place(&entry, sample, around)).map_err(|(got, expected)| {
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
fn check_entry(row: &[u8], around: &Around<'_>, records: &mut [u32]) -> Result<Entry, (String, String)> {
    let Around { shards, classes, dictionaries, .. } = *around;
    let entry = Entry::decode(row)
        .ok_or_else(|| ("an unknown codec or flag".to_owned(), "those of this version".to_owned()))?;
    let number = entry.shard.index();
    let Some(count) = records.get_mut(number) else {
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
    Ok(entry)
}

/// Checks that a record lies inside its shard, and as its kind of index has it. An error is what it
/// has and what it should have.
fn check_place(entry: &Entry, sample: usize, around: &Around<'_>) -> Result<(), (String, String)> {
    let bytes = around.shards.get(entry.shard.index()).map_or(0, |(bytes, _)| *bytes);
    let got = || format!("{} bytes at {}", entry.stored_len, entry.offset);
    let is_plain = entry.codec == Codec::None;
    let stored = u64::from(entry.stored_len);
    match around.kind {
        None | Some(PlacesKind::Shards) if entry.crc32c.is_none() => {
            Err(("no checksum".to_owned(), "one, as records lie in shards".to_owned()))
        }
        None | Some(PlacesKind::Shards) => {
            let end = entry.offset.checked_add(padded_len(stored));
            if entry.offset == 0 || end.is_none_or(|end| end > bytes) {
                let expected = format!("a record behind a header, inside the shard's {bytes} bytes");
                return Err((got(), expected));
            }
            Ok(())
        }
        Some(_) if !is_plain => Err(("a compressed record".to_owned(), "none in places".to_owned())),
        Some(PlacesKind::Tars) => {
            // The last record's padding may be missing.
            let end = entry.offset.checked_add(stored);
            if entry.offset == 0 || end.is_none_or(|end| end > bytes) {
                return Err((got(), format!("a record behind a header, inside the tar's {bytes} bytes")));
            }
            Ok(())
        }
        Some(PlacesKind::Files) => {
            if entry.offset != 0 || stored != bytes || entry.shard.index() != sample {
                let expected = format!("the whole file {sample} of {bytes} bytes");
                return Err((format!("{} of shard {}", got(), entry.shard), expected));
            }
            Ok(())
        }
    }
}
