//! Turns some neighbouring samples of a shard into their bytes there: the unit of parallel work.
//!
//! First all files are read, each behind a gap for its header, as they will lie in the shard. If
//! nothing is changed, only the headers are filled in, and no byte is copied. Otherwise images are
//! transformed and compressed into a second buffer.

use std::ops::Range;
use std::time::Instant;

use shade_formats::checksum::crc32c_append;
use shade_formats::index::{Entry, FieldEnd, FieldsRow};
use shade_formats::limits::FIELDS_BYTES_MAX;
use shade_formats::shard::{
    END_OF_ARCHIVE, MEMBER_HEADER_BYTES, member_header, member_name, padded_len, record_extension,
};
use shade_formats::{FormatError, SampleId, ShardId};
use shade_images::caught;

use super::not_decodable::NotDecodable;
use super::read::{SourceFault, SourceReader};
use super::readers::ReadPace;
use super::recipe::{EncoderPool, Recipe, RecordEncoder, RecordFacts, StoredRecord};
use super::transform::RecipeFault;
use crate::catalogue::{Bad, Catalogue, Sample};
use crate::error::Error;
use crate::interrupt::Stop;

#[derive(Debug, Default)]
pub(super) struct Built {
    /// Members with their headers and padding.
    pub bytes: Vec<u8>,
    /// In the order of `bytes`.
    pub records: Vec<PlacedRecord>,
    /// What had to be left out, by its id in the whole catalogue.
    pub bad: Vec<(SampleId, Bad)>,
    pub not_decodable: NotDecodable,
}

#[derive(Clone, Debug)]
pub(super) struct PlacedRecord {
    /// Its id in the whole catalogue.
    pub sample: SampleId,
    /// Its offset counts from the stretch's start, until the stretch is placed in its shard.
    pub entry: Entry,
    /// Its fields in their order in the shard: each one's name, and all up to its end.
    fields: Vec<(Box<str>, FieldsRow)>,
}

/// A sample that was read: the places of its parts in the first buffer.
struct SampleRead<'a> {
    sample: SampleId,
    image: Range<usize>,
    /// What the image is, if it is stored as it is. Its header is there then.
    plain: Option<RecordFacts>,
    /// The members behind the image, headers and padding included.
    tail: Range<usize>,
    /// Each field's name, and where its padding ends in the tail.
    ends: Vec<(&'a str, usize)>,
}

/// Why a sample that was listed cannot be packed, in words that go behind its path.
#[derive(Debug, thiserror::Error)]
enum StretchFault {
    #[error(transparent)]
    Source(#[from] SourceFault),
    #[error(transparent)]
    Header(#[from] FormatError),
    #[error("its extension of {0} bytes does not fit a tar's member: give it a shorter one")]
    Extension(usize),
    #[error("has a field named {0}, like its image")]
    FieldName(String),
    #[error("{0} bytes of fields; a sample has at most {FIELDS_BYTES_MAX}")]
    FieldsSize(usize),
    #[error("shade-pack panicked, a defect of it: {0}")]
    Panicked(String),
}

/// Makes stretches on one thread, reusing its memory.
pub(super) struct StretchBuilder<'a> {
    catalogue: &'a Catalogue,
    recipe: &'a Recipe,
    /// The number in the member's name is the sample's id in the whole catalogue plus this.
    first_key: u32,
    stop: &'a Stop,
    reader: SourceReader<'a>,
    read: Vec<u8>,
}

impl<'a> StretchBuilder<'a> {
    pub(super) fn new(catalogue: &'a Catalogue, recipe: &'a Recipe, first_key: u32, stop: &'a Stop) -> Self {
        Self { catalogue, recipe, first_key, stop, reader: SourceReader::new(stop), read: Vec::new() }
    }

    fn key(&self, id: SampleId) -> u32 {
        self.first_key.wrapping_add(self.catalogue.whole_id(id).0)
    }

    /// Reads and makes the stretch. `spare` is memory to reuse, `pace` notes how fast files come,
    /// and computing takes one of `encoders`.
    pub(super) fn build(
        &mut self,
        samples: &[SampleId],
        spare: Vec<u8>,
        pace: &mut ReadPace,
        encoders: &EncoderPool<'_>,
    ) -> Result<Built, Error> {
        let mut built = Built { bytes: spare, ..Built::default() };
        built.bytes.clear();
        if self.recipe.is_plain() {
            let read = self.read_all(samples, &mut built, pace)?;
            self.finish_plain(&read, &mut built);
        } else {
            std::mem::swap(&mut built.bytes, &mut self.read);
            built.bytes.clear();
            let read = self.read_all(samples, &mut built, pace)?;
            std::mem::swap(&mut built.bytes, &mut self.read);
            encoders.with(self.stop, |encoder| self.convert(encoder, &read, &mut built))?;
        }
        Ok(built)
    }

    /// Reads images and fields into `built.bytes`; headers of images that are made anew stay gaps.
    ///
    /// # Errors
    /// A store is in trouble, or the command should stop while it waits for one.
    fn read_all(
        &mut self,
        samples: &[SampleId],
        built: &mut Built,
        pace: &mut ReadPace,
    ) -> Result<Vec<SampleRead<'a>>, Error> {
        let mut all = Vec::with_capacity(samples.len());
        let mut before = Instant::now();
        for &id in samples {
            let Some(sample) = self.catalogue.sample(id) else { continue };
            let start = built.bytes.len();
            let read = caught(|| self.read_one(id, &sample, &mut built.bytes)).unwrap_or_else(|text| {
                self.reader = SourceReader::new(self.stop);
                Err(StretchFault::Panicked(text))
            });
            let now = Instant::now();
            pace.sample(now.duration_since(before), self.catalogue.bytes_of(id));
            before = now;
            match read {
                Ok(read) => all.push(read),
                Err(fault) => {
                    if let StretchFault::Source(fault) = &fault
                        && let Some(error) = fault.of_the_store(&sample)
                    {
                        self.stop.check()?;
                        return Err(error);
                    }
                    built.bytes.truncate(start);
                    built.bad.push((self.catalogue.whole_id(id), sample.bad(fault)));
                }
            }
        }
        Ok(all)
    }

    fn read_one(
        &mut self,
        id: SampleId,
        sample: &Sample<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<SampleRead<'a>, StretchFault> {
        let key = self.key(id);
        let image = bytes.len() + MEMBER_HEADER_BYTES;
        bytes.resize(image, 0);
        self.reader.image(sample, bytes)?;
        let image = image..bytes.len();
        let plain = if self.recipe.is_plain() {
            let stored = bytes.get(image.clone()).unwrap_or_default();
            let facts = Recipe::as_it_is(stored);
            let header = image_header(key, sample, &facts.unchecked(stored, sample.label, 0), false)?;
            copy_into(bytes, image.start.saturating_sub(MEMBER_HEADER_BYTES), &header);
            Some(facts)
        } else {
            None
        };
        pad(bytes);
        let start = bytes.len();
        let mut ends = Vec::new();
        if self.recipe.cls {
            let label = sample.label.to_string();
            let header = header_of(key, "cls", label.len())?;
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(label.as_bytes());
            pad(bytes);
        }
        let mut fields: Vec<_> = self.catalogue.fields(id).collect();
        // The large ones last: who wants a caption need not read the mask behind it.
        if !self.recipe.fields_as_listed {
            fields.sort_by_key(|field| field.content.bytes());
        }
        for field in fields {
            if is_named_like_image(field.name, sample, self.recipe) {
                return Err(StretchFault::FieldName(field.name.to_owned()));
            }
            let header = bytes.len();
            bytes.resize(header + MEMBER_HEADER_BYTES, 0);
            self.reader.field(sample, &field, bytes)?;
            let filled = header_of(key, field.name, bytes.len() - header - MEMBER_HEADER_BYTES)?;
            copy_into(bytes, header, &filled);
            pad(bytes);
            ends.push((field.name, bytes.len() - start));
        }
        let tail = start..bytes.len();
        if !ends.is_empty() && tail.len() as u64 > FIELDS_BYTES_MAX {
            return Err(StretchFault::FieldsSize(tail.len()));
        }
        Ok(SampleRead { sample: id, image, plain, tail, ends })
    }

    /// Makes records of images that are stored as they are.
    fn finish_plain(&mut self, read: &[SampleRead<'_>], built: &mut Built) {
        for one in read {
            let (Some(sample), Some(facts)) = (self.catalogue.sample(one.sample), one.plain) else {
                continue;
            };
            let image = built.bytes.get(one.image.clone()).unwrap_or_default();
            let entry = facts.entry(image, sample.label, one.image.start as u64);
            built.not_decodable.note_record(facts.media, image, sample.path);
            let tail = built.bytes.get(one.tail.clone()).unwrap_or_default();
            let fields = fields_in(tail, &one.ends);
            let sample = self.catalogue.whole_id(one.sample);
            built.records.push(PlacedRecord { sample, entry, fields });
        }
    }

    /// Transforms and compresses images from the first buffer into `built.bytes`.
    fn convert(
        &self,
        encoder: &mut RecordEncoder<'_>,
        read: &[SampleRead<'_>],
        built: &mut Built,
    ) -> Result<(), Error> {
        for one in read {
            self.stop.check()?;
            let Some(sample) = self.catalogue.sample(one.sample) else { continue };
            let image = self.read.get(one.image.clone()).unwrap_or_default();
            let bad = match caught(|| encoder.record(image)) {
                Ok(Ok(record)) => {
                    self.add(one, &sample, &record, image, built).err().map(|fault| sample.bad(fault))
                }
                Ok(Err(fault)) => Some(sample.bad(fault)),
                Err(text) => {
                    *encoder = RecordEncoder::new(encoder.recipe)?;
                    Some(sample.bad(RecipeFault::Panicked(text)))
                }
            };
            if let Some(bad) = bad {
                built.bad.push((self.catalogue.whole_id(one.sample), bad));
            }
        }
        Ok(())
    }

    /// Appends a sample's members to `built`.
    fn add(
        &self,
        one: &SampleRead<'_>,
        sample: &Sample<'_>,
        record: &StoredRecord<'_>,
        image: &[u8],
        built: &mut Built,
    ) -> Result<(), StretchFault> {
        let stored = record.stored;
        let offset = (built.bytes.len() + MEMBER_HEADER_BYTES) as u64;
        let entry = record.facts.entry(stored, sample.label, offset);
        let header = image_header(self.key(one.sample), sample, &entry, self.recipe.transform.is_some())?;
        built.not_decodable.note_record(record.facts.media, image, sample.path);
        built.bytes.extend_from_slice(&header);
        built.bytes.extend_from_slice(stored);
        pad(&mut built.bytes);
        let tail = self.read.get(one.tail.clone()).unwrap_or_default();
        built.bytes.extend_from_slice(tail);
        let fields = fields_in(tail, &one.ends);
        let sample = self.catalogue.whole_id(one.sample);
        built.records.push(PlacedRecord { sample, entry, fields });
        Ok(())
    }
}

/// Whether the field's member would have the image's name.
fn is_named_like_image(field: &str, sample: &Sample<'_>, recipe: &Recipe) -> bool {
    let kept =
        sample.path.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case(field));
    kept || (recipe.transform.is_some() && matches!(field, "jpg" | "ppm"))
}

/// The header of an image's member.
fn image_header(
    key: u32,
    sample: &Sample<'_>,
    entry: &Entry,
    is_transformed: bool,
) -> Result<[u8; MEMBER_HEADER_BYTES], StretchFault> {
    let extension = record_extension(sample.path, entry, is_transformed);
    let header = member_header(&member_name(key, &extension), entry.stored_len.into());
    header.map_err(|_| StretchFault::Extension(extension.len()))
}

fn header_of(key: u32, extension: &str, len: usize) -> Result<[u8; MEMBER_HEADER_BYTES], FormatError> {
    member_header(&member_name(key, extension), len as u64)
}

/// The fields of a sample whose members are `tail`.
fn fields_in(tail: &[u8], ends: &[(&str, usize)]) -> Vec<(Box<str>, FieldsRow)> {
    let (mut start, mut crc32c) = (0, 0);
    let field = |&(name, end): &(&str, usize)| {
        crc32c = crc32c_append(crc32c, tail.get(start..end).unwrap_or_default());
        start = end;
        // At most FIELDS_BYTES_MAX, which was checked when it was read.
        let blocks = u32::try_from(end / MEMBER_HEADER_BYTES).unwrap_or(u32::MAX);
        (Box::from(name), FieldsRow { blocks, crc32c })
    };
    ends.iter().map(field).collect()
}

fn copy_into(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(target) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..part.len())) {
        target.copy_from_slice(part);
    }
}

/// Adds zeros up to tar's next block.
fn pad(bytes: &mut Vec<u8>) {
    let padded = padded_len(bytes.len() as u64);
    let missing = usize::try_from(padded).unwrap_or(bytes.len()).saturating_sub(bytes.len());
    // At most 511 bytes, and the archive's end has 1024.
    bytes.extend_from_slice(END_OF_ARCHIVE.get(..missing).unwrap_or_default());
}

impl PlacedRecord {
    /// All its fields.
    pub(super) fn fields(&self) -> FieldsRow {
        self.fields.last().map_or_else(FieldsRow::default, |(_, up_to)| *up_to)
    }

    /// Where each of its fields ends.
    pub(super) fn ends(&self) -> impl Iterator<Item = FieldEnd<'_>> {
        self.fields.iter().map(|(name, up_to)| FieldEnd { name, up_to: *up_to })
    }

    /// Moves the record to where its stretch begins in shard `shard`.
    pub(super) fn moved(mut self, shard: ShardId, base: u64) -> Self {
        self.entry.shard = shard;
        self.entry.offset = self.entry.offset.saturating_add(base);
        self
    }
}
