//! Some neighbouring samples of a shard, turned into the bytes they take there: the unit of parallel work.
//!
//! First all files are read, each behind a gap for its header, as they will lie in the shard. Where nothing is to be
//! changed, filling in the headers is all that remains, and no byte is copied. Otherwise images are transformed and
//! compressed into a second buffer.

use std::ops::Range;
use std::time::Instant;

use shade_formats::checksum::crc32c;
use shade_formats::index::{Entry, FieldsRow};
use shade_formats::limits::FIELDS_BYTES_MAX;
use shade_formats::shard::{
    END_OF_ARCHIVE, MEMBER_HEADER_BYTES, member_header, member_name, padded_len, record_extension,
};
use shade_formats::{SampleId, ShardId};

use super::read::SourceReader;
use super::readers::Pace;
use super::recipe::{Kit, Kits, Recipe};
use crate::catalogue::{Bad, Catalogue, Sample};
use crate::error::Error;
use crate::interrupt::Stop;

/// A stretch's bytes, and what lies where in them.
#[derive(Debug, Default)]
pub(super) struct Built {
    /// Members with their headers and padding.
    pub bytes: Vec<u8>,
    /// In the order of `bytes`.
    pub records: Vec<Placed>,
    /// What had to be left out.
    pub bad: Vec<(SampleId, Bad)>,
}

/// A record in a stretch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub sample: SampleId,
    /// Its offset counts from the stretch's start, until the stretch is placed in its shard.
    pub entry: Entry,
    pub fields: FieldsRow,
}

/// A sample that was read: where its parts lie in the first buffer.
struct Read {
    sample: SampleId,
    /// Its image.
    image: Range<usize>,
    /// The members behind it, headers and padding included.
    tail: Range<usize>,
    has_fields: bool,
}

/// What makes stretches on one thread, with the memory it uses again.
pub(super) struct StretchBuilder<'a> {
    catalogue: &'a Catalogue,
    recipe: &'a Recipe,
    /// The number in the member's name is the sample's id plus this.
    first_key: u32,
    reader: SourceReader,
    read: Vec<u8>,
}

impl<'a> StretchBuilder<'a> {
    pub(super) fn new(catalogue: &'a Catalogue, recipe: &'a Recipe, first_key: u32) -> Self {
        Self { catalogue, recipe, first_key, reader: SourceReader::default(), read: Vec::new() }
    }

    /// From now on sample `id` has this key, and the others' keys follow.
    pub(super) fn set_key(&mut self, id: SampleId, key: u32) {
        self.first_key = key.wrapping_sub(id.0);
    }

    /// Reads and makes the stretch. `spare` is the memory it may take, `pace` hears how fast files come, and whoever
    /// computes has one of `kits`.
    pub(super) fn build(
        &mut self,
        samples: &[SampleId],
        spare: Vec<u8>,
        (pace, kits): (&mut Pace, &Kits<'_>),
        stop: &Stop,
    ) -> Result<Built, Error> {
        let mut built = Built { bytes: spare, ..Built::default() };
        built.bytes.clear();
        if self.recipe.is_plain() {
            let read = self.read_all(samples, &mut built, pace);
            self.finish_plain(&read, &mut built)?;
        } else {
            std::mem::swap(&mut built.bytes, &mut self.read);
            built.bytes.clear();
            let read = self.read_all(samples, &mut built, pace);
            std::mem::swap(&mut built.bytes, &mut self.read);
            kits.with(stop, |kit| self.convert(kit, &read, &mut built, stop))?;
        }
        Ok(built)
    }

    /// Reads images and fields into `built.bytes`; images' headers stay gaps.
    fn read_all(&mut self, samples: &[SampleId], built: &mut Built, pace: &mut Pace) -> Vec<Read> {
        let mut all = Vec::with_capacity(samples.len());
        let mut before = Instant::now();
        for &id in samples {
            let Some(sample) = self.catalogue.sample(id) else { continue };
            let start = built.bytes.len();
            let read = self.read_one(id, &sample, &mut built.bytes);
            let now = Instant::now();
            pace.file(now.duration_since(before), sample.bytes);
            before = now;
            match read {
                Ok(read) => all.push(read),
                Err(fault) => {
                    built.bytes.truncate(start);
                    built.bad.push((id, Bad { path: sample.place(), fault }));
                }
            }
        }
        all
    }

    fn read_one(&mut self, id: SampleId, sample: &Sample<'_>, bytes: &mut Vec<u8>) -> Result<Read, String> {
        let key = self.first_key.wrapping_add(id.0);
        let image = bytes.len() + MEMBER_HEADER_BYTES;
        bytes.resize(image, 0);
        self.reader.image(sample, bytes)?;
        let image = image..bytes.len();
        pad(bytes);
        let start = bytes.len();
        let mut has_fields = false;
        if self.recipe.cls {
            let label = sample.label.to_string();
            let header = header_of(key, "cls", label.len())?;
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(label.as_bytes());
            pad(bytes);
        }
        for field in self.catalogue.fields(id) {
            has_fields = true;
            if is_named_like_image(field.name, sample, self.recipe) {
                return Err(format!("has a field named {}, like its image", field.name));
            }
            let header = bytes.len();
            bytes.resize(header + MEMBER_HEADER_BYTES, 0);
            self.reader.field(sample, &field, bytes)?;
            let filled = header_of(key, field.name, bytes.len() - header - MEMBER_HEADER_BYTES)?;
            copy_into(bytes, header, &filled);
            pad(bytes);
        }
        let tail = start..bytes.len();
        if has_fields && tail.len() as u64 > FIELDS_BYTES_MAX {
            return Err(format!("{} bytes of fields; a sample has at most {FIELDS_BYTES_MAX}", tail.len()));
        }
        Ok(Read { sample: id, image, tail, has_fields })
    }

    /// Fills in the headers of images that are stored as they are.
    fn finish_plain(&mut self, read: &[Read], built: &mut Built) -> Result<(), Error> {
        for one in read {
            let Some(sample) = self.catalogue.sample(one.sample) else { continue };
            let image = built.bytes.get(one.image.clone()).unwrap_or_default();
            let record = Recipe::as_it_is(image);
            let entry = record.entry(image, sample.label, one.image.start as u64);
            let extension = record_extension(sample.path, &entry, false);
            let header = self.header(one.sample, &extension, image.len(), &sample)?;
            let tail = built.bytes.get(one.tail.clone()).unwrap_or_default();
            let fields = fields_row(one.has_fields, tail);
            copy_into(&mut built.bytes, one.image.start.saturating_sub(MEMBER_HEADER_BYTES), &header);
            built.records.push(Placed { sample: one.sample, entry, fields });
        }
        Ok(())
    }

    /// Transforms and compresses images from the first buffer into `built.bytes`.
    fn convert(&self, kit: &mut Kit<'_>, read: &[Read], built: &mut Built, stop: &Stop) -> Result<(), Error> {
        for one in read {
            stop.check()?;
            let Some(sample) = self.catalogue.sample(one.sample) else { continue };
            let image = self.read.get(one.image.clone()).unwrap_or_default();
            let record = match kit.record(image) {
                Ok(record) => record,
                Err(fault) => {
                    built.bad.push((one.sample, Bad { path: sample.place(), fault }));
                    continue;
                }
            };
            let stored = record.stored;
            let offset = (built.bytes.len() + MEMBER_HEADER_BYTES) as u64;
            let entry = record.facts.entry(stored, sample.label, offset);
            let extension = record_extension(sample.path, &entry, self.recipe.transform.is_some());
            let key = self.first_key.wrapping_add(one.sample.0);
            let header = header_of(key, &extension, stored.len())
                .map_err(|fault| Error::Source { path: sample.file(), fault })?;
            built.bytes.extend_from_slice(&header);
            built.bytes.extend_from_slice(stored);
            pad(&mut built.bytes);
            let tail = self.read.get(one.tail.clone()).unwrap_or_default();
            built.bytes.extend_from_slice(tail);
            let fields = fields_row(one.has_fields, tail);
            built.records.push(Placed { sample: one.sample, entry, fields });
        }
        Ok(())
    }

    fn header(
        &self,
        id: SampleId,
        extension: &str,
        len: usize,
        sample: &Sample<'_>,
    ) -> Result<[u8; MEMBER_HEADER_BYTES], Error> {
        let key = self.first_key.wrapping_add(id.0);
        header_of(key, extension, len).map_err(|fault| Error::Source { path: sample.file(), fault })
    }
}

/// Whether the field's member would have the image's name.
fn is_named_like_image(field: &str, sample: &Sample<'_>, recipe: &Recipe) -> bool {
    let kept =
        sample.path.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case(field));
    kept || (recipe.transform.is_some() && matches!(field, "jpg" | "ppm"))
}

fn header_of(key: u32, extension: &str, len: usize) -> Result<[u8; MEMBER_HEADER_BYTES], String> {
    member_header(&member_name(key, extension), len as u64).map_err(|fault| fault.to_string())
}

fn fields_row(has_fields: bool, tail: &[u8]) -> FieldsRow {
    if !has_fields {
        return FieldsRow::default();
    }
    // Bounded by FIELDS_BYTES_MAX when it was read.
    let blocks = u32::try_from(tail.len() / MEMBER_HEADER_BYTES).unwrap_or(u32::MAX);
    FieldsRow { blocks, crc32c: crc32c(tail) }
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
    // At most 511 bytes, which the archive's end has.
    bytes.extend_from_slice(END_OF_ARCHIVE.get(..missing).unwrap_or_default());
}

impl Placed {
    /// Moves the record to where its stretch begins in shard `shard`.
    pub(super) fn moved(mut self, shard: ShardId, base: u64) -> Self {
        self.entry.shard = shard;
        self.entry.offset = self.entry.offset.saturating_add(base);
        self
    }
}
