//! Which kinds of images are worth compressing, and what small records have in common: seen from a few of them.

use std::collections::BTreeMap;

use rayon::prelude::*;
use shade_formats::SampleId;
use shade_formats::index::Media;
use zstd::bulk::compress;

use super::read::SourceReader;
use super::recipe::{Kit, Recipe, Zstd, pays};
use crate::catalogue::{Catalogue, Sample};
use crate::config::{Compression, ZSTD_LEVEL};
use crate::error::Error;
use crate::interrupt::Stop;

/// Samples looked at, evenly spaced over the catalogue.
const PROBES: u32 = 256;

/// Samples a dictionary is made from, evenly spaced, too. zstd asks for a hundred times the dictionary's size; small
/// records bring less, and this many are read in moments.
const DICTIONARY_PROBES: u32 = 4096;

/// A dictionary helps records below this median size; larger ones have enough to learn from by themselves.
const DICTIONARY_RECORD_BYTES: usize = 16 * 1024;

/// zstd's own default for dictionaries.
const DICTIONARY_BYTES: usize = 112_640;

/// With fewer records there is nothing common to be found.
const DICTIONARY_RECORDS_MIN: usize = 32;

/// Decides how `compression` applies to the samples of `catalogue` once `recipe` has transformed them. Reads some of
/// them, as many at a time as the current rayon pool has threads; those that cannot be read are left for packing to
/// complain about.
///
/// # Errors
/// [`Error::Interrupted`], or zstd cannot be set up.
pub fn choose_zstd(
    catalogue: &Catalogue,
    recipe: &Recipe,
    compression: Compression,
    stop: &Stop,
) -> Result<Option<Zstd>, Error> {
    let (level, probing) = match compression {
        Compression::None => return Ok(None),
        Compression::Auto => (ZSTD_LEVEL, true),
        Compression::Zstd { level } => (level, false),
    };
    let probes = records(catalogue, recipe, PROBES, stop)?;
    let candidates = probes.iter().filter(|(media, _)| may_pay(*media));
    let mut sizes: Vec<usize> = candidates.map(|(_, bytes)| bytes.len()).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(usize::MAX);
    let mut dictionary = Vec::new();
    if median < DICTIONARY_RECORD_BYTES {
        dictionary = train(&records(catalogue, recipe, DICTIONARY_PROBES, stop)?, level);
    }
    let media = if probing { worth_it(&probes, level, &dictionary) } else { compressible() };
    let zstd = Zstd { level, media, dictionary };
    Ok((!zstd.media.is_empty()).then_some(zstd))
}

/// JPEG and WebP hold what an entropy coder has left; nothing more is to be had from them.
fn may_pay(media: Media) -> bool {
    !matches!(media, Media::Jpeg | Media::Webp)
}

fn compressible() -> Vec<Media> {
    let all = [Media::Other, Media::Png, Media::Ppm, Media::Bmp, Media::Gif, Media::Tiff];
    all.into_iter().filter(|&media| may_pay(media)).collect()
}

/// Some of the dataset's records, uncompressed.
fn records(
    catalogue: &Catalogue,
    recipe: &Recipe,
    probes: u32,
    stop: &Stop,
) -> Result<Vec<(Media, Vec<u8>)>, Error> {
    let samples = catalogue.len();
    let count = probes.min(samples);
    let spaced = |number: u32| {
        let position = u64::from(number) * u64::from(samples) / u64::from(count.max(1));
        SampleId(u32::try_from(position).unwrap_or(u32::MAX))
    };
    let plain = Recipe { transform: recipe.transform, zstd: None, cls: false };
    let read = |number| {
        stop.check()?;
        let Some(sample) = catalogue.sample(spaced(number)) else { return Ok(None) };
        Ok(record(&sample, &mut Kit::new(&plain)?))
    };
    let read: Result<Vec<Option<_>>, Error> = (0..count).into_par_iter().map(read).collect();
    Ok(read?.into_iter().flatten().collect())
}

fn record(sample: &Sample<'_>, kit: &mut Kit<'_>) -> Option<(Media, Vec<u8>)> {
    let mut image = Vec::new();
    SourceReader::default().image(sample, &mut image).ok()?;
    let record = kit.record(&image).ok()?;
    Some((record.facts.media, record.stored.to_vec()))
}

/// A dictionary, if it makes records smaller by as much as compression itself must.
fn train(records: &[(Media, Vec<u8>)], level: i32) -> Vec<u8> {
    let samples: Vec<&[u8]> = records
        .iter()
        .filter(|(media, bytes)| may_pay(*media) && bytes.len() <= DICTIONARY_RECORD_BYTES)
        .map(|(_, bytes)| bytes.as_slice())
        .collect();
    if samples.len() < DICTIONARY_RECORDS_MIN {
        return Vec::new();
    }
    // zstd finds nothing common in records that have nothing in common, and says so by an error.
    let Ok(dictionary) = zstd::dict::from_samples(&samples, DICTIONARY_BYTES) else { return Vec::new() };
    let total = |dictionary: &[u8]| {
        let one = |bytes: &&[u8]| compressed_len(bytes, level, dictionary);
        samples.par_iter().map(one).sum::<u64>()
    };
    if pays(total(&[]), total(&dictionary)) { dictionary } else { Vec::new() }
}

/// Bytes stored: as they are where compression does not pay.
fn compressed_len(bytes: &[u8], level: i32, dictionary: &[u8]) -> u64 {
    let raw = bytes.len() as u64;
    let compressed = if dictionary.is_empty() {
        compress(bytes, level)
    } else {
        zstd::bulk::Compressor::with_dictionary(level, dictionary).and_then(|mut zstd| zstd.compress(bytes))
    };
    compressed.map_or(raw, |compressed| compressed.len() as u64).min(raw)
}

/// The kinds of images of which the probes together become smaller by the least saving.
fn worth_it(probes: &[(Media, Vec<u8>)], level: i32, dictionary: &[u8]) -> Vec<Media> {
    let mut totals: BTreeMap<Media, (u64, u64)> = BTreeMap::new();
    let probes: Vec<_> = probes.iter().filter(|(media, _)| may_pay(*media)).collect();
    let lens: Vec<u64> =
        probes.par_iter().map(|(_, bytes)| compressed_len(bytes, level, dictionary)).collect();
    for ((media, bytes), compressed) in probes.into_iter().zip(lens) {
        let (raw, stored) = totals.entry(*media).or_default();
        *raw += bytes.len() as u64;
        *stored += compressed;
    }
    totals.into_iter().filter(|(_, (raw, stored))| pays(*raw, *stored)).map(|(media, _)| media).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_worth_it_by_what_they_save_together() {
        let flat = vec![7u8; 5000];
        let mut state = 1u32;
        let mut noise = vec![0u8; 5000];
        for byte in &mut noise {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        let probes = [(Media::Bmp, flat.clone()), (Media::Png, noise), (Media::Jpeg, flat)];
        assert_eq!(worth_it(&probes, 3, &[]), [Media::Bmp]);
    }

    #[test]
    fn a_dictionary_comes_from_small_records_that_resemble_each_other() {
        let header: Vec<u8> = (0..600u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let alike = |n: u32| (Media::Png, [&header[..], &n.to_le_bytes().repeat(5)].concat());
        let records: Vec<_> = (0..500).map(alike).collect();
        let dictionary = train(&records, 3);
        assert!(!dictionary.is_empty() && dictionary.len() <= DICTIONARY_BYTES);
        let (_, first) = &records[0];
        assert!(compressed_len(first, 3, &dictionary) * 2 < compressed_len(first, 3, &[]));
        assert!(train(&records[..10], 3).is_empty());
        let few: Vec<_> = records.iter().map(|(_, bytes)| (Media::Jpeg, bytes.clone())).collect();
        assert!(train(&few, 3).is_empty());
    }
}
