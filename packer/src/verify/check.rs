//! Compares one sample's bytes in its shard with what the index says of them.

use shade_dataset::{Decompressor, Dictionaries, Mismatch, ReadFault, RecordFault};
use shade_formats::checksum::crc32c;
use shade_formats::index::{Entry, sniff};
use shade_formats::shard::{MEMBER_HEADER_BYTES, is_record_name, parse_member_header};
use shade_formats::{FormatError, SampleId};
use shade_images::{Decoder, ImageFault, Part};

use super::report::DamagedSample;
use crate::dataset::Dataset;

/// What is wrong with a sample. [`in_dataset`](Self::in_dataset) adds its id, path, shard and
/// offset.
#[derive(Debug, thiserror::Error)]
pub(super) enum SampleFault {
    #[error("its shard cannot be opened")]
    NoShard,
    #[error("{}", read_text(.0))]
    Read(ReadFault),
    #[error("overlaps the record before it, which ends at {before_end}")]
    Overlap { before_end: u64 },
    #[error("its tar header says {got:?} of {len} bytes, expected the key {key:012} and {expected} bytes")]
    Header { got: String, len: u64, key: u32, expected: u32 },
    #[error("its fields: {0}")]
    Fields(Mismatch),
    #[error("its shard does not have its field {0:?} where the index says")]
    FieldName(String),
    #[error("its record is cut short")]
    CutShort,
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Record(#[from] RecordFault),
    /// Its bytes are what was packed, but no image.
    #[error("no image: {0}")]
    NoImage(&'static str),
    /// Its bytes are what was packed, but no image of its kind.
    #[error("cannot be decoded: {0}")]
    Undecodable(ImageFault),
    /// Its bytes are what was packed, an image of a kind or a variant without decoder.
    #[error("{0}")]
    NoDecoder(String),
    #[error("shade-pack panicked, a defect of it: {0}")]
    Panicked(String),
}

impl SampleFault {
    pub(super) fn in_dataset(&self, dataset: &Dataset, sample: SampleId, entry: &Entry) -> DamagedSample {
        DamagedSample::new(dataset, sample, entry, self.to_string())
    }
}

/// A fault of a read, in words that go behind the shard's path.
pub(super) fn read_text(fault: &ReadFault) -> String {
    match fault {
        ReadFault::Open { errno, .. } => format!("cannot be opened: {errno}"),
        ReadFault::NotAFile { what, .. } => what.clone(),
        other => format!("cannot be read: {other}"),
    }
}

/// Checks samples one after the other, reusing its memory.
pub(super) struct Checker<'a> {
    dataset: &'a Dataset,
    zstd: Decompressor,
    raw: Vec<u8>,
    decoder: Option<Decoder>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(dataset: &'a Dataset, dictionaries: &Dictionaries, decode: bool) -> Self {
        let decoder = decode.then(Decoder::new);
        Self { dataset, zstd: Decompressor::new(dictionaries.clone()), raw: Vec::new(), decoder }
    }

    /// Checks a sample. `bytes` are those of its [extent](Dataset::extent). Returns what is wrong
    /// with its file although all pixels are there.
    pub(super) fn check(
        &mut self,
        sample: SampleId,
        entry: &Entry,
        bytes: &[u8],
    ) -> Result<Option<String>, SampleFault> {
        let record = self.stored(sample, entry, bytes)?;
        let unpacked = self.zstd.unpack(record, entry, &mut self.raw)?;
        self.decoder.as_mut().map_or(Ok(None), |decoder| decode(decoder, unpacked))
    }

    /// The record in `bytes`, once its header and its fields are found right. Tars of others and
    /// files have no header that the index knows.
    fn stored<'b>(&self, sample: SampleId, entry: &Entry, bytes: &'b [u8]) -> Result<&'b [u8], SampleFault> {
        let index = &self.dataset.index;
        if !self.dataset.is_in_place() {
            let start = entry.offset.saturating_sub(MEMBER_HEADER_BYTES as u64);
            let header = parse_member_header(bytes, start)?;
            let (key, path) = (index.key(sample), index.path(sample).unwrap_or_default());
            let (len, expected) = (header.stored_len, entry.stored_len);
            if !is_record_name(&header.name, key, path, entry) || len != u64::from(expected) {
                return Err(SampleFault::Header { got: header.name, len, key, expected });
            }
        }
        if let Some(fields) = self.dataset.fields_in(sample, entry, bytes) {
            let expected = index.fields(sample).and_then(|span| span.crc32c);
            Mismatch::compare(crc32c(fields), expected).map_err(SampleFault::Fields)?;
            let found = index.fields_in(sample, fields)?;
            for (number, end) in index.field_ends(sample).enumerate() {
                // A block is as long as a header.
                let len = (end.up_to.blocks as usize).saturating_mul(MEMBER_HEADER_BYTES);
                let up_to = crc32c(fields.get(..len).unwrap_or_default());
                Mismatch::compare(up_to, Some(end.up_to.crc32c)).map_err(SampleFault::Fields)?;
                if found.get(number).is_none_or(|field| field.name != end.name) {
                    return Err(SampleFault::FieldName(end.name.to_owned()));
                }
            }
        }
        self.dataset.record_in(sample, entry, bytes).ok_or(SampleFault::CutShort)
    }
}

fn decode(decoder: &mut Decoder, image: &[u8]) -> Result<Option<String>, SampleFault> {
    let decoded = decoder.decode_part(sniff(image).0, image, Part::whole);
    let note = decoded.map(|pixels| pixels.note.map(str::to_owned));
    decoder.shrink();
    note.map_err(|fault| match fault {
        // No decoder will ever know it: that is what files of zeros look like.
        ImageFault::NoImage { what } => SampleFault::NoImage(what),
        ImageFault::NoDecoder { kind } => SampleFault::NoDecoder(kind.to_owned()),
        ImageFault::Unsupported { media, detail } => {
            SampleFault::NoDecoder(format!("{} with {detail}", media.name()))
        }
        _ => SampleFault::Undecodable(fault),
    })
}
