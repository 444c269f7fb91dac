//! A dataset whose samples are read and cached with their extra fields.
//!
//! Fields lie beside their record, so one read brings both, and the cache keeps both or none. To
//! all who plan, read and cache, the two are one record: its entry here says where both lie. Only
//! who makes rows of it takes it apart again ([`WholeSamples::stored`]).

use std::ops::Range;
use std::sync::Arc;

use shade_formats::checksum::{crc32c, crc32c_concat};
use shade_formats::index::{Entry, FieldPlace, FieldsSpan, Index, Shard, WantedFields};
use shade_formats::limits::{FIELDS_BYTES_MAX, RECORD_BYTES_MAX, SHARD_ALIGN_BYTES};
use shade_formats::ring::COLUMN_ALIGN_BYTES;
use shade_formats::shard::Field;
use shade_formats::{ContentId, FormatError, SampleId, ShardId};
use shade_job::FieldsRead;

use crate::samples::Samples;

/// Most bytes that are read for a sample beyond its record and its fields: headers, padding, and
/// what others have put between them, such as a clip that was left out of the index.
const BETWEEN_BYTES_MAX: u64 = FIELDS_BYTES_MAX;

/// What lies behind a record of ours, up to the next multiple of [`SHARD_ALIGN_BYTES`].
const ZEROS: [u8; 512] = [0; 512];
const _: () = assert!(ZEROS.len() as u64 == SHARD_ALIGN_BYTES);

/// The samples of a dataset, each with those of its fields that are wanted.
#[derive(Clone, Debug)]
pub struct WholeSamples {
    index: Arc<Index>,
    /// None if the dataset has none.
    fields: FieldsRead,
    /// Their names, if they are not all.
    wanted: Option<WantedFields>,
}

/// What is stored of a sample, in one piece of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The record itself.
    pub record: Entry,
    /// Its fields, if the sample has some and they are in this piece.
    pub fields: Option<FieldsSpan>,
    /// Byte of the shard at which the piece begins: a multiple of 512 where the record's is.
    offset: u64,
    len: u32,
}

impl Stored {
    /// The record in the piece.
    #[must_use]
    pub fn record_range(&self) -> Range<usize> {
        self.range(self.record.offset, self.record.stored_len.into())
    }

    /// The fields in the piece.
    #[must_use]
    pub fn fields_range(&self) -> Option<Range<usize>> {
        self.fields.map(|span| self.range(span.offset, span.len))
    }

    /// Bytes of the piece.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.len
    }

    fn range(&self, offset: u64, len: u64) -> Range<usize> {
        let start = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
        start..start.saturating_add(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// CRC32C of the piece, if it follows from those of its parts: behind a record of ours are
    /// zeros, and then its fields.
    #[must_use]
    pub fn crc32c(&self) -> Option<u32> {
        let Some(fields) = self.fields else { return self.record.crc32c };
        let (record, fields_crc) = self.record.crc32c.zip(fields.crc32c)?;
        let padding = usize::try_from(fields.offset.checked_sub(self.record_end())?).ok()?;
        let padded = crc32c_concat(record, crc32c(ZEROS.get(..padding)?), padding);
        Some(crc32c_concat(padded, fields_crc, usize::try_from(fields.len).ok()?))
    }

    fn record_end(&self) -> u64 {
        self.record.offset + u64::from(self.record.stored_len)
    }
}

impl WholeSamples {
    /// The samples of `index`: with these fields, or as their records alone.
    #[must_use]
    pub fn new(index: Arc<Index>, fields: &FieldsRead) -> Self {
        let fields = if index.has_fields() { fields.clone() } else { FieldsRead::None };
        let is_named = matches!(fields, FieldsRead::Named(_));
        let wanted = is_named.then(|| index.wanted_fields(|name| fields.has(name)));
        Self { index, fields, wanted }
    }

    /// Whether some samples have fields that are read.
    #[must_use]
    pub fn has_fields(&self) -> bool {
        self.fields != FieldsRead::None
    }

    /// The fields that are read.
    #[must_use]
    pub fn fields(&self) -> &FieldsRead {
        &self.fields
    }

    /// The fields of `sample` in `span`, which [`Stored::fields`] says: all that are there.
    ///
    /// # Errors
    /// The bytes are not these fields.
    pub fn fields_in<'a>(&'a self, sample: SampleId, span: &'a [u8]) -> Result<Vec<Field<'a>>, FormatError> {
        match &self.wanted {
            None => self.index.fields_in(sample, span),
            Some(wanted) => self.index.wanted_fields_in(sample, wanted, span),
        }
    }

    /// Where each field of `sample` that is read lies, in an index of tars.
    pub fn field_places(&self, sample: SampleId) -> impl Iterator<Item = FieldPlace<'_>> {
        self.index.field_places(sample, self.wanted.as_ref())
    }

    /// Where the fields lie of `sample` that are read, and what must be read with them.
    #[must_use]
    pub fn fields_span(&self, sample: SampleId) -> Option<FieldsSpan> {
        match &self.wanted {
            None => self.index.fields(sample),
            Some(wanted) => self.index.fields_up_to(sample, wanted),
        }
    }

    /// Their index.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// What is stored of a sample.
    #[must_use]
    pub fn stored(&self, sample: SampleId) -> Option<Stored> {
        let record = self.index.entry(sample)?;
        let alone = Stored { record, fields: None, offset: record.offset, len: record.stored_len };
        if !self.has_fields() {
            return Some(alone);
        }
        let Some(span) = self.fields_span(sample) else { return Some(alone) };
        let end = (span.offset.saturating_add(span.len)).max(alone.record_end());
        let offset = span.offset.min(record.offset);
        let offset = offset - offset % SHARD_ALIGN_BYTES;
        let len = end - offset;
        // Only an index that lies has fields far from their record. Such a row is a fault. Fields
        // that are not wanted may lie between.
        let all = self.index.fields(sample).map_or(0, |all| all.len);
        let most = u64::from(record.stored_len) + all + BETWEEN_BYTES_MAX;
        let len = u32::try_from(len).ok().filter(|_| len <= most);
        Some(len.map_or(alone, |len| Stored { record, fields: Some(span), offset, len }))
    }
}

const _: () = assert!(RECORD_BYTES_MAX + FIELDS_BYTES_MAX + BETWEEN_BYTES_MAX <= u32::MAX as u64);

impl Samples for WholeSamples {
    fn len(&self) -> u32 {
        self.index.len()
    }

    fn entry(&self, sample: SampleId) -> Option<Entry> {
        if !self.has_fields() {
            return self.index.entry(sample);
        }
        let Stored { record, fields, offset, len } = self.stored(sample)?;
        let crc32c = if fields.is_some() { None } else { record.crc32c };
        Some(Entry { offset, stored_len: len, crc32c, ..record })
    }

    fn checksum(&self, sample: SampleId, entry: &Entry) -> Option<u32> {
        if !self.has_fields() {
            return entry.crc32c;
        }
        self.stored(sample)?.crc32c()
    }

    fn reads_field(&self, name: &str) -> bool {
        self.fields.has(name)
    }

    fn field_names(&self) -> Option<Vec<&str>> {
        self.index.knows_all_field_names().then(|| self.index.field_names().collect())
    }

    fn fields_bytes(&self, sample: SampleId, is_wanted: &dyn Fn(&str) -> bool) -> u64 {
        if !self.has_fields() {
            return 0;
        }
        let Some(fields) = self.stored(sample).and_then(|stored| stored.fields) else { return 0 };
        let mut places = self.field_places(sample).peekable();
        if places.peek().is_none() {
            // With headers and padding: more room than the fields take, aligned.
            return fields.len;
        }
        places
            .filter(|place| is_wanted(place.name))
            .map(|place| u64::from(place.bytes).next_multiple_of(COLUMN_ALIGN_BYTES))
            .sum()
    }

    fn path(&self, sample: SampleId) -> Option<&[u8]> {
        self.index.path(sample)
    }

    fn shard(&self, shard: ShardId) -> Option<Shard<'_>> {
        self.index.shard(shard)
    }

    fn class_count(&self) -> u32 {
        self.index.class_count()
    }

    fn content_id(&self) -> ContentId {
        self.index.content_id()
    }
}
