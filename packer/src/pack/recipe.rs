//! Makes the record of an image: its bytes are kept, transformed or compressed.

use std::num::NonZeroUsize;
use std::sync::Mutex;

use shade_formats::ShardId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, Media, sniff};
use zstd::bulk::Compressor;

use super::gate::Gate;
use super::transform::{RecipeFault, Transform, Transformer};
use crate::config::SAVING_MIN_PERCENT;
use crate::error::Error;
use crate::interrupt::{Stop, lock};

/// How records of one dataset are made.
#[derive(Debug, Default)]
pub struct Recipe {
    /// `None` keeps the image's bytes.
    pub(crate) transform: Option<Transform>,
    /// `None` stores records as they are.
    pub(crate) zstd: Option<Zstd>,
    /// Whether each record is followed by its label as a `.cls` member, for WebDataset.
    pub(crate) cls: bool,
    /// Whether a sample's fields have the order of the source, as in the first datasets. Else the
    /// small ones come first.
    pub(crate) fields_as_listed: bool,
}

/// How records are compressed, where it saves [`SAVING_MIN_PERCENT`].
#[derive(Debug, Default)]
pub(crate) struct Zstd {
    pub(crate) level: i32,
    /// Kinds of images that are tried.
    pub(crate) media: Vec<Media>,
    /// What small records have in common; empty for none.
    pub(crate) dictionary: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFacts {
    pub(crate) raw_len: u32,
    pub(crate) codec: Codec,
    pub(crate) media: Media,
    pub(crate) width: u16,
    pub(crate) height: u16,
}

pub(super) struct StoredRecord<'k> {
    pub(crate) facts: RecordFacts,
    pub(crate) stored: &'k [u8],
}

/// The encoders of all threads, no more than may compute at a time: a compressor at a high level
/// takes much memory.
pub(super) struct EncoderPool<'a> {
    pub(crate) recipe: &'a Recipe,
    cpus: Gate,
    spare: Mutex<Vec<RecordEncoder<'a>>>,
}

impl<'a> EncoderPool<'a> {
    pub(crate) fn new(recipe: &'a Recipe, jobs: NonZeroUsize) -> Self {
        Self { recipe, cpus: Gate::new(jobs.get() as u64), spare: Mutex::new(Vec::new()) }
    }

    /// Does `work` with an encoder, once one is free.
    pub(super) fn with<T>(
        &self,
        stop: &Stop,
        work: impl FnOnce(&mut RecordEncoder<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _pass = self.cpus.pass(1, stop)?;
        let spare = lock(&self.spare).pop();
        let mut encoder = spare.map_or_else(|| RecordEncoder::new(self.recipe), Ok)?;
        let done = work(&mut encoder);
        lock(&self.spare).push(encoder);
        done
    }
}

/// What one thread makes records with, reusing its memory.
pub(super) struct RecordEncoder<'a> {
    pub(super) recipe: &'a Recipe,
    transformer: Option<Transformer<'a>>,
    zstd: Option<(&'a Zstd, Compressor<'static>)>,
    compressed: Vec<u8>,
}

impl Recipe {
    pub(crate) fn is_plain(&self) -> bool {
        self.transform.is_none() && self.zstd.is_none()
    }

    /// The dictionary of compressed records; empty for none.
    pub(crate) fn dictionary(&self) -> &[u8] {
        self.zstd.as_ref().map_or(&[], |zstd| zstd.dictionary.as_slice())
    }

    /// Bytes of memory for a byte of the source: decoded pixels and their encoder take several
    /// times as much.
    pub(super) fn weight(&self) -> u64 {
        if self.transform.is_some() { 8 } else { 1 }
    }

    pub(super) fn as_it_is(image: &[u8]) -> RecordFacts {
        let (media, width, height) = sniff(image);
        RecordFacts { raw_len: length(image), codec: Codec::None, media, width, height }
    }
}

impl RecordFacts {
    pub(super) fn entry(&self, stored: &[u8], label: u32, offset: u64) -> Entry {
        Entry { crc32c: Some(crc32c(stored)), ..self.unchecked(stored, label, offset) }
    }

    /// The entry without its checksum, which takes a look at all bytes.
    pub(super) fn unchecked(&self, stored: &[u8], label: u32, offset: u64) -> Entry {
        let Self { raw_len, codec, media, width, height } = *self;
        Entry {
            shard: ShardId(0),
            offset,
            stored_len: length(stored),
            raw_len,
            crc32c: None,
            label,
            width,
            height,
            codec,
            media,
        }
    }
}

/// A record's length. Listing and transforming refuse longer records.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

impl<'a> RecordEncoder<'a> {
    pub(super) fn new(recipe: &'a Recipe) -> Result<Self, Error> {
        let zstd = match &recipe.zstd {
            None => None,
            Some(zstd) => {
                let compressor = Compressor::with_dictionary(zstd.level, &zstd.dictionary);
                Some((zstd, compressor.map_err(|source| Error::Zstd { source })?))
            }
        };
        let transformer = recipe.transform.as_ref().map(Transformer::new);
        Ok(Self { recipe, transformer, zstd, compressed: Vec::new() })
    }

    /// The record of `image`. After a panic the encoder is of no use any more.
    pub(super) fn record<'k>(&'k mut self, image: &'k [u8]) -> Result<StoredRecord<'k>, RecipeFault> {
        let raw = match &mut self.transformer {
            Some(transformer) => transformer.transform(image)?,
            None => image,
        };
        let mut facts = Recipe::as_it_is(raw);
        if let Some((zstd, compressor)) = &mut self.zstd
            && zstd.media.contains(&facts.media)
        {
            let bound = zstd::zstd_safe::compress_bound(raw.len());
            self.compressed.clear();
            self.compressed.reserve(bound);
            let done = compressor.compress_to_buffer(raw, &mut self.compressed);
            done.map_err(RecipeFault::Zstd)?;
            if pays(raw.len() as u64, self.compressed.len() as u64) {
                facts.codec = if zstd.dictionary.is_empty() { Codec::Zstd } else { Codec::ZstdDictionary };
                return Ok(StoredRecord { facts, stored: &self.compressed });
            }
        }
        Ok(StoredRecord { facts, stored: raw })
    }
}

/// Whether compression saves enough for the trainer's time to decompress.
pub(super) fn pays(raw: u64, compressed: u64) -> bool {
    saves(raw, compressed, SAVING_MIN_PERCENT)
}

pub(super) fn saves(raw: u64, compressed: u64, percent: u64) -> bool {
    let left = 100u64.saturating_sub(percent);
    compressed.saturating_mul(100) <= raw.saturating_mul(left) && raw > 0
}
