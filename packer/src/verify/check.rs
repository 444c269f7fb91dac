//! Compares one sample's bytes in its shard with what the index says of them.

use shade_dataset::{Decompressor, Dictionaries, Mismatch};
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Entry, Media, sniff};
use shade_formats::shard::{
    MEMBER_HEADER_BYTES, is_record_name, padded_len, parse_fields, parse_member_header,
};
use shade_images::{Decoder, ImageFault, Part};

use crate::dataset::Dataset;

/// Why a sample is not in order, in words.
#[derive(Debug)]
pub(super) enum Fault {
    /// Its bytes are not those that were packed.
    Damaged(String),
    /// Its bytes are those that were packed, but no image.
    NoImage(String),
    /// There is no decoder for its kind of image.
    NotDecodable(String),
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

    /// Checks a sample. `bytes` are those of its [extent](Dataset::extent).
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check(&mut self, sample: SampleId, entry: &Entry, bytes: &[u8]) -> Result<(), Fault> {
        let record = self.stored(sample, entry, bytes).map_err(Fault::Damaged)?;
        let unpacked = self.zstd.unpack(record, entry, &mut self.raw);
        let unpacked = unpacked.map_err(|fault| Fault::Damaged(fault.to_string()))?;
        match &mut self.decoder {
            Some(decoder) => decode(decoder, unpacked),
            None => Ok(()),
        }
    }

    /// The record in `bytes`, once its header and its fields are found right.
    fn stored<'b>(&self, sample: SampleId, entry: &Entry, bytes: &'b [u8]) -> Result<&'b [u8], String> {
        let index = &self.dataset.index;
        let start = entry.offset.saturating_sub(MEMBER_HEADER_BYTES as u64);
        let header = parse_member_header(bytes, start).map_err(|fault| fault.to_string())?;
        let (key, path) = (index.key(sample), index.path(sample).unwrap_or_default());
        let named = is_record_name(&header.name, key, path, entry);
        if !named || header.stored_len != u64::from(entry.stored_len) {
            let (got, len, expected) = (header.name, header.stored_len, entry.stored_len);
            return Err(format!(
                "its tar header says {got:?} of {len} bytes, expected the key {key:012} and {expected} bytes"
            ));
        }
        let (_, data) = bytes.split_at_checked(MEMBER_HEADER_BYTES).unwrap_or_default();
        if let Some(span) = index.fields(sample) {
            let padded = usize::try_from(padded_len(entry.stored_len.into())).unwrap_or(usize::MAX);
            let fields = data.get(padded..).unwrap_or_default();
            Mismatch::compare(crc32c(fields), span.crc32c).map_err(|fault| format!("its fields: {fault}"))?;
            parse_fields(fields, key, span.offset).map_err(|fault| fault.to_string())?;
        }
        data.get(..entry.stored_len as usize).ok_or_else(|| "its record is cut short".to_owned())
    }
}

fn decode(decoder: &mut Decoder, image: &[u8]) -> Result<(), Fault> {
    let decoded = decoder.decode_part(sniff(image).0, image, Part::whole).map(|_| ());
    decoder.shrink();
    decoded.map_err(|fault| match fault {
        // No decoder will ever know it: that is what files of zeros look like.
        ImageFault::Unsupported { media: Media::Other, .. } => {
            Fault::NoImage("no image: its first bytes are of no known kind".to_owned())
        }
        ImageFault::Unsupported { .. } => Fault::NotDecodable(fault.to_string()),
        _ => Fault::NoImage(format!("cannot be decoded: {fault}")),
    })
}
