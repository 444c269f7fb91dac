//! What becomes of an image's bytes on their way into a shard: kept, transformed, compressed.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use shade_formats::ShardId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, Media, sniff};
use zstd::bulk::Compressor;

use super::gate::Gate;
use super::transform::{Transform, Transformer};
use crate::config::SAVING_MIN_PERCENT;
use crate::error::Error;
use crate::interrupt::Stop;

/// How records of one dataset are made.
#[derive(Debug, Default)]
pub struct Recipe {
    /// `None` keeps the image's bytes.
    pub transform: Option<Transform>,
    /// `None` stores records as they are.
    pub zstd: Option<Zstd>,
    /// Whether each record is followed by its label as a `.cls` member, for WebDataset.
    pub cls: bool,
}

/// How records are compressed, where it saves [`SAVING_MIN_PERCENT`].
#[derive(Debug, Default)]
pub struct Zstd {
    /// 1 to 22.
    pub level: i32,
    /// Kinds of images that are tried.
    pub media: Vec<Media>,
    /// What small records have in common; empty for none.
    pub dictionary: Vec<u8>,
}

/// What is known about a record besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub raw_len: u32,
    pub codec: Codec,
    pub media: Media,
    pub width: u16,
    pub height: u16,
}

/// A record as it will be stored.
pub(super) struct Record<'k> {
    pub facts: Facts,
    pub stored: &'k [u8],
}

/// As many kits as may compute at a time, for whichever thread does: a compressor at a high level takes much
/// memory.
pub(crate) struct Kits<'a> {
    recipe: &'a Recipe,
    cpus: Gate,
    spare: Mutex<Vec<Kit<'a>>>,
}

impl<'a> Kits<'a> {
    pub(crate) fn new(recipe: &'a Recipe, jobs: NonZeroUsize) -> Self {
        Self { recipe, cpus: Gate::new(jobs.get() as u64), spare: Mutex::new(Vec::new()) }
    }

    /// Does `work` with a kit, once one is free.
    pub(super) fn with<T>(
        &self,
        stop: &Stop,
        work: impl FnOnce(&mut Kit<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _pass = self.cpus.pass(1, stop)?;
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut kit = spare.map_or_else(|| Kit::new(self.recipe), Ok)?;
        let done = work(&mut kit);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(kit);
        done
    }
}

/// What one thread needs to make records, with the memory it uses again.
pub(super) struct Kit<'a> {
    transformer: Option<Transformer<'a>>,
    zstd: Option<(&'a Zstd, Compressor<'static>)>,
    compressed: Vec<u8>,
}

impl Recipe {
    /// Whether images are stored as they are.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.transform.is_none() && self.zstd.is_none()
    }

    /// Bytes in memory for a byte of the source: decoded pixels and their encoder take several times as much.
    pub(super) fn weight(&self) -> u64 {
        if self.transform.is_some() { 8 } else { 1 }
    }

    pub(super) fn as_it_is(image: &[u8]) -> Facts {
        let (media, width, height) = sniff(image);
        Facts { raw_len: length(image), codec: Codec::None, media, width, height }
    }
}

impl Facts {
    pub(super) fn entry(&self, stored: &[u8], label: u32, offset: u64) -> Entry {
        let Self { raw_len, codec, media, width, height } = *self;
        Entry {
            shard: ShardId(0),
            offset,
            stored_len: length(stored),
            raw_len,
            crc32c: crc32c(stored),
            label,
            width,
            height,
            codec,
            media,
        }
    }
}

/// A record's length. Listing refused what is longer than a record may be; transforming checks it.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

impl<'a> Kit<'a> {
    pub(super) fn new(recipe: &'a Recipe) -> Result<Self, Error> {
        let zstd = match &recipe.zstd {
            None => None,
            Some(zstd) => {
                let compressor = Compressor::with_dictionary(zstd.level, &zstd.dictionary);
                Some((zstd, compressor.map_err(|source| Error::Zstd { source })?))
            }
        };
        let transformer = recipe.transform.as_ref().map(Transformer::new);
        Ok(Self { transformer, zstd, compressed: Vec::new() })
    }

    /// Makes the record of an image.
    ///
    /// # Errors
    /// The image cannot be transformed: what is wrong with it.
    pub(super) fn record<'k>(&'k mut self, image: &'k [u8]) -> Result<Record<'k>, String> {
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
            done.map_err(|fault| format!("cannot be compressed: {fault}"))?;
            if pays(raw.len() as u64, self.compressed.len() as u64) {
                facts.codec = if zstd.dictionary.is_empty() { Codec::Zstd } else { Codec::ZstdDictionary };
                return Ok(Record { facts, stored: &self.compressed });
            }
        }
        Ok(Record { facts, stored: raw })
    }
}

/// Whether compression saves enough for the trainer's time to decompress.
pub(super) fn pays(raw: u64, compressed: u64) -> bool {
    saves(raw, compressed, SAVING_MIN_PERCENT)
}

/// Whether at least this share is saved.
pub(super) fn saves(raw: u64, compressed: u64, percent: u64) -> bool {
    let left = 100u64.saturating_sub(percent);
    compressed.saturating_mul(100) <= raw.saturating_mul(left) && raw > 0
}
