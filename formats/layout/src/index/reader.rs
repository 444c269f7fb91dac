//! Reads an index: it is checked once when opened; look-ups by position then neither parse nor
//! copy.

use super::check::{Hashed, IndexLayout, check};
use super::entry::Entry;
use super::extras::{FieldsRow, FieldsSpan};
use super::field_ends::FieldEnd;
use super::layout::{ENTRY_BYTES, FIELDS_BYTES, Header, KEY_BYTES, SHARD_BYTES, u32_at, u64_at};
use super::members::{FieldPlace, MembersLayout};
use super::places::{Places, PlacesKind};
use crate::error::FormatError;
use crate::ids::{ContentId, SampleId, ShardId};
use crate::limits::SAMPLES_MAX;
use crate::shard::{Field, parse_fields};

/// A checked index and its bytes, which may be owned memory or a mapped file.
///
/// If mapped bytes change after the check (somebody overwrote the file in place), accessors may
/// answer `None` or give wrong values, but they never panic; the record's CRC32C tells.
pub struct Index {
    bytes: Box<dyn AsRef<[u8]> + Send + Sync>,
    layout: IndexLayout,
}

/// A row of the shard table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard<'a> {
    /// The shard's file name, next to the index; in an index of [places](Places) its path below
    /// the base.
    pub name: &'a str,
    /// The shard's length: a multiple of 512, except in an index of places.
    pub bytes: u64,
    /// CRC32C of the whole file; 0 in an index of places, where it says nothing.
    pub crc32c: u32,
    /// Records in it.
    pub records: u32,
}

/// Some of a dataset's fields, for [`Index::fields_up_to`].
#[derive(Clone, Debug)]
pub struct WantedFields {
    /// By position of their names in the index.
    names: Vec<bool>,
}

impl Index {
    /// Checks `bytes` and takes them: every section's CRC32C, all lengths and offsets, that each
    /// record lies inside its shard and that each label has a class. So accessors answer for every
    /// id below the count.
    ///
    /// # Errors
    /// The bytes are not an index of this version, or some byte of them is damaged; the error says
    /// which structure.
    pub fn open(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, FormatError> {
        let layout = check(bytes.as_ref())?;
        Ok(Self { bytes: Box::new(bytes), layout })
    }

    /// Number of samples; ids are `0 .. len`.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.layout.samples
    }

    /// Whether the dataset has no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The content id of the dataset whose index begins with `start`: its first 64 bytes or more.
    /// Tells whether a dataset in use was replaced, without reading its whole index again.
    ///
    /// # Errors
    /// The bytes are not the beginning of an index of this version.
    pub fn content_id_at_start(start: &[u8]) -> Result<ContentId, FormatError> {
        Ok(Header::decode(start)?.content_id)
    }

    /// Samples of the dataset whose index begins with `start`: its first 64 bytes or more.
    ///
    /// # Errors
    /// The bytes are not the beginning of an index of this version, or it says more than a dataset
    /// can have.
    pub fn samples_at_start(start: &[u8]) -> Result<u32, FormatError> {
        let samples = Header::decode(start)?.samples;
        let too_many =
            |_| FormatError::new("index header", 40, samples, format_args!("at most {SAMPLES_MAX}"));
        u32::try_from(samples).map_err(too_many)
    }

    /// Classes of the dataset whose index begins with `start`: its first 64 bytes or more.
    ///
    /// # Errors
    /// The bytes are not the beginning of an index of this version.
    pub fn classes_at_start(start: &[u8]) -> Result<u32, FormatError> {
        Ok(Header::decode(start)?.classes)
    }

    /// What identified the content of a dataset of the first `samples` samples and `classes`
    /// classes; `None` if there are fewer. It tells whether this one is that dataset with more
    /// added at its end, as `shade-pack append` adds it.
    #[must_use]
    pub fn content_id_of_first(&self, samples: u32, classes: u32) -> Option<ContentId> {
        if samples > self.len() || classes > self.class_count() {
            return None;
        }
        let rows = |start: usize, len: usize| {
            let end = (samples as usize).checked_mul(len)?.checked_add(start)?;
            self.bytes().get(start..end)
        };
        if self.layout.places.is_some() {
            // Nothing is added to such an index: it is made anew.
            let is_all = samples == self.len() && classes == self.class_count();
            return is_all.then(|| self.content_id());
        }
        let entries = rows(self.layout.entries_at, ENTRY_BYTES)?;
        let class_names = self.layout.class_names.first(self.bytes(), classes)?;
        let fields = self.layout.fields_at.map_or(Some(&[][..]), |at| rows(at, FIELDS_BYTES))?;
        // A dataset in which no sample has fields has no section of them.
        let has_fields = fields.iter().any(|&byte| byte != 0);
        let fields = if has_fields { fields } else { &[] };
        Some(Hashed { entries, classes: &class_names, fields, placed: [&[]; 4] }.content_id())
    }

    /// What identifies the dataset's content.
    #[must_use]
    pub fn content_id(&self) -> ContentId {
        self.layout.content_id
    }

    /// Where and what `sample` is; `None` from [`len`](Self::len) on.
    #[must_use]
    pub fn entry(&self, sample: SampleId) -> Option<Entry> {
        if sample.0 >= self.layout.samples {
            return None;
        }
        Entry::decode(self.row(self.layout.entries_at, sample.index(), ENTRY_BYTES)?)
    }

    /// The key that names the members of `sample` in its shard: see
    /// [`member_name`](crate::shard::member_name). It is the id, unless the dataset was made by
    /// merging or skipping, which give new ids but rewrite no shard.
    #[must_use]
    pub fn key(&self, sample: SampleId) -> u32 {
        let row = |at| self.row(at, sample.index(), KEY_BYTES);
        let key = self.layout.keys_at.filter(|_| sample.0 < self.layout.samples).and_then(row);
        key.and_then(|row| u32_at(row, 0)).unwrap_or(sample.0)
    }

    /// Where the extra fields of `sample` lie, in the shard of its record; `None` if it has none.
    /// [`fields_in`](Self::fields_in) reads them.
    #[must_use]
    pub fn fields(&self, sample: SampleId) -> Option<FieldsSpan> {
        if let Some(members) = self.members(sample) {
            return members.span(self.bytes(), sample.index(), None);
        }
        let row = self.row(self.layout.fields_at?, sample.index(), FIELDS_BYTES)?;
        FieldsRow::decode(row)?.span(&self.entry(sample)?)
    }

    /// The names of the extra fields that samples have, as far as the index says where single
    /// fields lie.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        let members = self.layout.members.as_ref().map(|members| members.names(self.bytes()));
        let ends = self.layout.field_ends.as_ref().filter(|_| members.is_none());
        let ends = ends.map(|ends| ends.names(self.bytes()));
        members.into_iter().flatten().chain(ends.into_iter().flatten())
    }

    /// Whether [`field_names`](Self::field_names) has all: samples of older datasets may lie beside
    /// newer ones.
    #[must_use]
    pub fn knows_all_field_names(&self) -> bool {
        let knows = |sample: SampleId| {
            let ends = self.layout.field_ends.as_ref();
            self.members(sample).is_some() || ends.is_some_and(|ends| ends.has(self.bytes(), sample.index()))
        };
        (0..self.len()).map(SampleId).all(|sample| knows(sample) || self.fields(sample).is_none())
    }

    /// The fields with these names, for the functions below.
    #[must_use]
    pub fn wanted_fields(&self, is_wanted: impl Fn(&str) -> bool) -> WantedFields {
        let members = self.layout.members.as_ref().map(|members| members.wanted(self.bytes(), &is_wanted));
        let ends = || self.layout.field_ends.as_ref().map(|ends| ends.wanted(self.bytes(), &is_wanted));
        WantedFields { names: members.or_else(ends).unwrap_or_default() }
    }

    /// The part of [`fields`](Self::fields) that holds the `wanted` ones, and as little else as can
    /// be: in a shard, all up to the last of them. `None` if the sample has none of them. Where the
    /// index does not know where single fields lie, it is all of them.
    #[must_use]
    pub fn fields_up_to(&self, sample: SampleId, wanted: &WantedFields) -> Option<FieldsSpan> {
        if let Some(members) = self.members(sample) {
            return members.span(self.bytes(), sample.index(), Some(&wanted.names));
        }
        let entry = self.entry(sample)?;
        match self.layout.field_ends.as_ref().filter(|ends| ends.has(self.bytes(), sample.index())) {
            Some(ends) => ends.up_to(self.bytes(), sample.index(), &wanted.names)?.span(&entry),
            None => self.fields(sample),
        }
    }

    /// The extra fields of `sample` in `span`, the bytes that [`fields`](Self::fields) names, in
    /// their order on disk.
    ///
    /// # Errors
    /// The bytes are not these fields: see [`parse_fields`]; in an index of places, one has another
    /// checksum.
    pub fn fields_in<'a>(&'a self, sample: SampleId, span: &'a [u8]) -> Result<Vec<Field<'a>>, FormatError> {
        self.parse(sample, None, span)
    }

    /// The extra fields of `sample` in `span`, the bytes that [`fields_up_to`](Self::fields_up_to)
    /// names for `wanted`: of tars of others the wanted ones, of shards all that are there.
    ///
    /// # Errors
    /// As those of [`fields_in`](Self::fields_in).
    pub fn wanted_fields_in<'a>(
        &'a self,
        sample: SampleId,
        wanted: &'a WantedFields,
        span: &'a [u8],
    ) -> Result<Vec<Field<'a>>, FormatError> {
        self.parse(sample, Some(wanted), span)
    }

    fn parse<'a>(
        &'a self,
        sample: SampleId,
        wanted: Option<&'a WantedFields>,
        span: &'a [u8],
    ) -> Result<Vec<Field<'a>>, FormatError> {
        if let Some(members) = self.members(sample) {
            let wanted = wanted.map(|wanted| &wanted.names[..]);
            return members.fields(self.bytes(), sample.index(), wanted, span);
        }
        let start = self.fields(sample).map_or(0, |span| span.offset);
        parse_fields(span, self.key(sample), start)
    }

    /// Where each of the extra fields of `sample` lies, in an index of tars: of all of them, or of
    /// the `wanted` ones.
    pub fn field_places<'a>(
        &'a self,
        sample: SampleId,
        wanted: Option<&'a WantedFields>,
    ) -> impl Iterator<Item = FieldPlace<'a>> {
        let wanted = wanted.map(|wanted| &wanted.names[..]);
        let members = self.members(sample).into_iter();
        members.flat_map(move |members| members.places(self.bytes(), sample.index(), wanted))
    }

    /// Where each of the extra fields of `sample` ends in its shard; none if that is not known.
    pub fn field_ends(&self, sample: SampleId) -> impl Iterator<Item = FieldEnd<'_>> {
        let ends = self.layout.field_ends.as_ref().filter(|_| sample.0 < self.layout.samples);
        ends.into_iter().flat_map(move |ends| ends.ends(self.bytes(), sample.index()))
    }

    /// Whether any sample has extra fields.
    #[must_use]
    pub fn has_fields(&self) -> bool {
        self.layout.fields_at.is_some() || self.layout.members.is_some()
    }

    /// Where the shards lie; `None` if they lie beside the index.
    #[must_use]
    pub fn places(&self) -> Option<Places<'_>> {
        self.layout.places.as_ref().map(|places| places.places(self.bytes()))
    }

    /// Whether the shards are files of others, which shade has not written.
    #[must_use]
    pub fn is_of_others(&self) -> bool {
        self.layout.places.as_ref().is_some_and(|places| places.kind.is_foreign())
    }

    /// When the file of a shard was last changed, in nanoseconds since 1970, in an index of files
    /// of others.
    #[must_use]
    pub fn changed_ns(&self, shard: ShardId) -> Option<i64> {
        self.layout.places.as_ref()?.changed_ns(self.bytes(), shard.index())
    }

    /// Whether the checksum of each record is known.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        let is_known = |sample| self.entry(SampleId(sample)).is_none_or(|entry| entry.crc32c.is_some());
        !self.is_of_others() || (0..self.len()).all(is_known)
    }

    fn members(&self, sample: SampleId) -> Option<&MembersLayout> {
        self.layout.members.as_ref().filter(|_| sample.0 < self.layout.samples)
    }

    /// The zstd dictionaries that compressed records may need, each as zstd has trained it.
    pub fn dictionaries(&self) -> impl Iterator<Item = &[u8]> {
        self.layout.dictionaries.iter().map(|(_, range)| self.bytes().get(range.clone()).unwrap_or_default())
    }

    /// The dictionary with this zstd id, which a frame's header names.
    #[must_use]
    pub fn dictionary(&self, id: u32) -> Option<&[u8]> {
        let (_, range) = self.layout.dictionaries.iter().find(|(found, _)| *found == id)?;
        self.bytes().get(range.clone())
    }

    /// Number of shards.
    #[must_use]
    pub fn shard_count(&self) -> u32 {
        self.layout.shards
    }

    /// A shard's file; `None` from [`shard_count`](Self::shard_count) on.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<Shard<'_>> {
        if shard.0 >= self.layout.shards {
            return None;
        }
        let row = self.row(self.layout.shards_at, shard.index(), SHARD_BYTES)?;
        let is_file = self.layout.places.as_ref().is_some_and(|places| places.kind == PlacesKind::Files);
        let names = if is_file { &self.layout.paths } else { &self.layout.shard_names };
        let name = names.get(self.bytes(), shard.0.into())?;
        Some(Shard {
            name: std::str::from_utf8(name).ok()?,
            bytes: u64_at(row, 0)?,
            records: u32_at(row, 8)?,
            crc32c: u32_at(row, 12)?,
        })
    }

    /// Number of classes; labels are `0 .. class_count`.
    #[must_use]
    pub fn class_count(&self) -> u32 {
        self.layout.classes
    }

    /// The class behind a label, as the bytes of its directory's name.
    #[must_use]
    pub fn class_name(&self, label: u32) -> Option<&[u8]> {
        self.layout.class_names.get(self.bytes(), label.into())
    }

    /// The source file of `sample`, relative to the ImageFolder's root, such as `cat/1.png`. It is
    /// not checked to be a safe path: a program that writes to it must refuse what leads elsewhere.
    #[must_use]
    pub fn path(&self, sample: SampleId) -> Option<&[u8]> {
        self.layout.paths.get(self.bytes(), sample.0.into())
    }

    /// How the dataset was packed, as JSON text.
    #[must_use]
    pub fn options(&self) -> &str {
        let text = self.bytes().get(self.layout.options.clone()).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    fn row(&self, start: usize, number: usize, len: usize) -> Option<&[u8]> {
        let at = number.checked_mul(len)?.checked_add(start)?;
        self.bytes().get(at..at.checked_add(len)?)
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("layout", &self.layout).finish_non_exhaustive()
    }
}
