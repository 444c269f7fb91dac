//! Writes an index. The samples' ids are the order in which they are pushed.

use std::collections::HashMap;

use super::check::{Hashed, check};
use super::entry::Entry;
use super::extras::{FieldsRow, check_dictionary, encode_dictionary_count};
use super::field_ends::{FieldEnd, FieldEndsBuilder};
use super::field_rows::FieldRowsBuilder;
use super::layout::{
    FIELDS_BYTES, HEADER_BYTES, Header, KEY_BYTES, KIND_CLASSES, KIND_DICTIONARIES, KIND_ENTRIES,
    KIND_FIELD_ENDS, KIND_FIELDS, KIND_KEYS, KIND_MEMBERS, KIND_NAMES, KIND_OPTIONS, KIND_PLACES,
    KIND_SHARDS, MINOR_EXTRAS, MINOR_PLACES, MINOR_PLAIN, SECTION_BYTES, Section, required_flags,
};
use super::members::{FieldPlace, MEMBER_BYTES, MembersBuilder};
use super::names::NamesBuilder;
use super::places::{PlacesBuilder, PlacesKind};
use super::reader::Shard;
use crate::checksum::crc32c;
use crate::error::FormatError;
use crate::ids::{SampleId, ShardId};

const BUILT: &str = "index being built";

/// Collects shards, classes and samples, and makes the index's bytes.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    shards: Vec<u8>,
    shard_names: NamesBuilder,
    classes: NamesBuilder,
    entries: Vec<u8>,
    paths: NamesBuilder,
    options: String,
    keys: Option<Vec<u32>>,
    dictionary_ids: Vec<u32>,
    dictionaries: NamesBuilder,
    fields: Option<Vec<FieldsRow>>,
    places: Option<PlacesBuilder>,
    members: MembersBuilder,
    field_ends: FieldEndsBuilder,
}

impl IndexBuilder {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next shard.
    ///
    /// # Errors
    /// There are 2³² already.
    pub fn push_shard(&mut self, shard: Shard<'_>) -> Result<ShardId, FormatError> {
        let id = count("shards", self.shard_names.len())?;
        self.shards.extend(shard.bytes.to_le_bytes());
        self.shards.extend(shard.records.to_le_bytes());
        self.shards.extend(shard.crc32c.to_le_bytes());
        self.shard_names.push(shard.name.as_bytes());
        Ok(ShardId(id))
    }

    /// Adds the next class and gives its label.
    ///
    /// # Errors
    /// There are 2³² already.
    pub fn push_class(&mut self, name: &[u8]) -> Result<u32, FormatError> {
        let label = count("classes", self.classes.len())?;
        self.classes.push(name);
        Ok(label)
    }

    /// Adds the next sample, whose source was `path`, relative to the ImageFolder's root.
    ///
    /// # Errors
    /// `entry.offset` is not a multiple of 512 or is beyond the largest shard; or there are 2³²
    /// samples already.
    pub fn push_sample(&mut self, entry: &Entry, path: &[u8]) -> Result<SampleId, FormatError> {
        let id = count("samples", self.paths.len())?;
        entry.encode(&mut self.entries)?;
        self.paths.push(path);
        Ok(SampleId(id))
    }

    /// Sets the description of how the dataset was packed, as JSON text.
    pub fn set_options(&mut self, json: &str) {
        json.clone_into(&mut self.options);
    }

    /// Sets the key of each sample, by position: it names the sample's members in its shard.
    /// Without this call a sample's key is its id.
    pub fn set_keys(&mut self, keys: Vec<u32>) {
        self.keys = Some(keys);
    }

    /// Sets where each sample's extra fields end, by position; without this call no sample has any.
    pub fn set_fields(&mut self, fields: Vec<FieldsRow>) {
        self.fields = Some(fields);
    }

    /// Says that the shards lie below `base`, an absolute path, and not beside the index.
    /// `changed_ns` is when each file of others was last changed, in nanoseconds since 1970; shards
    /// of packed datasets have no times. Shards that are images' own files have no names of their
    /// own.
    pub fn set_places(&mut self, kind: PlacesKind, base: &[u8], changed_ns: Vec<i64>) {
        self.places = Some(PlacesBuilder { kind, base: base.to_owned(), changed_ns });
    }

    /// Adds a field of the sample that was pushed last, in an index of places.
    ///
    /// # Errors
    /// There are 2³² fields already, or 2¹⁶ names.
    pub fn push_field(&mut self, field: FieldPlace<'_>) -> Result<(), FormatError> {
        self.members.push(self.paths.len(), field)
    }

    /// Says where a field of the sample that was pushed last ends, in a shard. Those of one sample
    /// come in their order there. A sample of which nothing is said is read with all its fields.
    ///
    /// # Errors
    /// There are 2³² fields already, or 2¹⁶ names.
    pub fn push_field_end(&mut self, end: FieldEnd<'_>) -> Result<(), FormatError> {
        self.field_ends.push(self.paths.len(), end)
    }

    /// Adds a zstd dictionary, which records of
    /// [`Codec::ZstdDictionary`](super::Codec::ZstdDictionary) may need.
    ///
    /// # Errors
    /// It is not in zstd's format, has no id or that of another one, is larger than
    /// [`DICTIONARY_BYTES_MAX`](crate::limits::DICTIONARY_BYTES_MAX), or is one too many.
    pub fn push_dictionary(&mut self, dictionary: &[u8]) -> Result<(), FormatError> {
        let id = check_dictionary(dictionary, self.dictionary_ids.iter().copied(), 0)?;
        self.dictionary_ids.push(id);
        self.dictionaries.push(dictionary);
        Ok(())
    }

    /// The index's bytes, after the checks that [`Index::open`](super::Index::open) will make.
    ///
    /// # Errors
    /// What was pushed does not fit together, for instance a label without class or a record beyond
    /// its shard's end.
    pub fn finish(self) -> Result<Vec<u8>, FormatError> {
        let samples = count("samples", self.paths.len())?;
        let shards = count("shards", self.shard_names.len())?;
        let classes = count("classes", self.classes.len())?;
        let keys = for_each_sample("keys", self.keys, samples)?;
        let keys = keys.filter(|keys| !(0..).zip(keys).all(|(id, key)| id == *key));
        let fields = for_each_sample("rows of fields", self.fields, samples)?;
        let fields = fields.filter(|fields| fields.iter().any(|row| *row != FieldsRow::default()));
        let has_dictionaries = !self.dictionary_ids.is_empty();
        let extras = keys.is_some() || has_dictionaries || fields.is_some();

        // Entries come first: 64 bytes and 32 for each section precede them, so no entry crosses a
        // cache line.
        let mut sections = vec![
            (KIND_ENTRIES, Part::Bytes(self.entries)),
            (KIND_SHARDS, Part::Table(self.shards, self.shard_names)),
            (KIND_CLASSES, Part::Table(Vec::new(), self.classes)),
            (KIND_NAMES, Part::Table(Vec::new(), self.paths)),
            (KIND_OPTIONS, Part::Bytes(self.options.into_bytes())),
        ];
        sections.extend(keys.map(|keys| (KIND_KEYS, Part::Keys(keys))));
        if has_dictionaries {
            let head = encode_dictionary_count(count("dictionaries", self.dictionary_ids.len())?);
            sections.push((KIND_DICTIONARIES, Part::Table(head.to_vec(), self.dictionaries)));
        }
        sections.extend(fields.map(|fields| (KIND_FIELDS, Part::Fields(fields))));
        let minor = match &self.places {
            Some(_) => MINOR_PLACES,
            None if extras => MINOR_EXTRAS,
            None => MINOR_PLAIN,
        };
        sections.extend(self.places.map(|places| (KIND_PLACES, Part::Places(places))));
        let members = self.members.finish(samples as usize);
        sections.extend(members.map(|members| (KIND_MEMBERS, Part::Members(members))));
        let ends = self.field_ends.finish(samples as usize);
        sections.extend(ends.map(|ends| (KIND_FIELD_ENDS, Part::FieldEnds(ends))));
        let index = assemble(minor, samples, shards, classes, sections)?;
        check(&index)?;
        Ok(index)
    }
}

/// A section's content. It may be gigabytes, so each part is encoded straight into the result.
enum Part {
    Bytes(Vec<u8>),
    /// Rows, then a name table.
    Table(Vec<u8>, NamesBuilder),
    Keys(Vec<u32>),
    Fields(Vec<FieldsRow>),
    Places(PlacesBuilder),
    Members(FieldRowsBuilder<MEMBER_BYTES>),
    FieldEnds(FieldRowsBuilder<FIELDS_BYTES>),
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Table(rows, names) => rows.len().saturating_add(names.bytes()),
            Self::Keys(keys) => keys.len().saturating_mul(KEY_BYTES),
            Self::Fields(fields) => fields.len().saturating_mul(FIELDS_BYTES),
            Self::Places(places) => places.bytes(),
            Self::Members(members) => members.bytes(),
            Self::FieldEnds(ends) => ends.bytes(),
        }
    }

    /// Appends the section's bytes to `out`, and frees the part.
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => out.extend_from_slice(&bytes),
            Self::Table(rows, names) => {
                out.extend_from_slice(&rows);
                names.write(out);
            }
            Self::Keys(keys) => out.extend(keys.into_iter().flat_map(u32::to_le_bytes)),
            Self::Fields(fields) => out.extend(fields.into_iter().flat_map(FieldsRow::encode)),
            Self::Places(places) => places.write(out),
            Self::Members(members) => members.write(out),
            Self::FieldEnds(ends) => ends.write(out),
        }
    }
}

/// Assembles the file: allocated once, each part freed once it is in, so that the whole never
/// exists twice.
fn assemble(
    minor: u16,
    samples: u32,
    shards: u32,
    classes: u32,
    sections: Vec<(u32, Part)>,
) -> Result<Vec<u8>, FormatError> {
    let head = HEADER_BYTES + sections.len() * SECTION_BYTES;
    let capacity = sections.iter().fold(head, |sum, (_, part)| sum.saturating_add(part.bytes()));
    let mut index = Vec::new();
    index.try_reserve_exact(capacity).map_err(|fault| {
        FormatError::new(
            BUILT,
            0,
            format_args!("{capacity} bytes: {fault}"),
            "an index that fits into memory",
        )
    })?;
    index.resize(head, 0);
    let mut table = Vec::with_capacity(sections.len() * SECTION_BYTES);
    let mut placed = HashMap::new();
    let count_of_sections = count("sections", sections.len())?;
    for (kind, part) in sections {
        let start = index.len();
        part.write(&mut index);
        let bytes = index.get(start..).unwrap_or_default();
        let flags = required_flags(kind);
        let (offset, len) = (start as u64, bytes.len() as u64);
        table.extend(Section { kind, flags, offset, len, crc32c: crc32c(bytes) }.encode());
        placed.insert(kind, start..index.len());
    }
    let section = |kind| placed.get(&kind).and_then(|range| index.get(range.clone()));
    let header = Header {
        minor,
        sections: count_of_sections,
        content_id: Hashed::of(section).content_id(),
        samples: samples.into(),
        shards,
        classes,
        table_crc32c: crc32c(&table),
    };
    for (byte, value) in index.iter_mut().zip(header.encode().into_iter().chain(table)) {
        *byte = value;
    }
    Ok(index)
}

/// `rows`, where given, if there is one for each sample.
fn for_each_sample<T>(what: &str, rows: Option<Vec<T>>, samples: u32) -> Result<Option<Vec<T>>, FormatError> {
    let len = rows.as_ref().map(Vec::len).filter(|&len| len != samples as usize);
    let wrong = |len| {
        let expected = format_args!("{samples}, one for each sample");
        FormatError::new(BUILT, 0, format_args!("{len} {what}"), expected)
    };
    len.map_or(Ok(rows), |len| Err(wrong(len)))
}

fn count(what: &str, count: usize) -> Result<u32, FormatError> {
    u32::try_from(count)
        .map_err(|_| FormatError::new(BUILT, 0, format_args!("{count} {what}"), "fewer than 2^32"))
}
