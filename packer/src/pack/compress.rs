//! Decides which kinds of images are worth compressing, and trains a dictionary for small records,
//! by a sample of the records.

use std::collections::BTreeMap;

use rayon::prelude::*;
use shade_formats::SampleId;
use shade_formats::index::Media;
use shade_images::caught;
use zstd::bulk::compress;

use super::packing::memory_gate;
use super::read::SourceReader;
use super::recipe::{Recipe, RecordEncoder, Zstd, pays, saves};
use super::transform::Format;
use crate::catalogue::{Catalogue, Sample};
use crate::config::{Compression, Layout, RAW_RECORD_BYTES_MIN, RAW_SAVING_MIN_PERCENT, ZSTD_LEVEL};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::workers::Workers;

/// Samples looked at, evenly spaced over the catalogue.
const PROBES: u32 = 256;

/// Samples that a dictionary is trained on, evenly spaced. zstd asks for a hundred times the
/// dictionary's size; small records give less, and this many are read in moments.
const DICTIONARY_PROBES: u32 = 4096;

/// A dictionary helps records below this median size. Larger ones compress well by themselves.
const DICTIONARY_RECORD_BYTES: u64 = 16 * 1024;

/// zstd's own default for dictionaries.
const DICTIONARY_BYTES: usize = 112_640;

/// With fewer records no dictionary is trained.
const DICTIONARY_RECORDS_MIN: usize = 32;

/// Decides how records of `catalogue` are made. Also gives what zstd would have saved of raw pixels
/// that are stored as they are, in percent.
///
/// # Errors
/// [`Error::Interrupted`], or zstd cannot be set up.
pub(crate) fn choose_recipe(
    catalogue: &Catalogue,
    layout: &Layout,
    readers: &Workers,
    stop: &Stop,
) -> Result<(Recipe, Option<u64>), Error> {
    let mut recipe = Recipe { transform: layout.transform, cls: layout.cls, ..Recipe::default() };
    let choice = readers.install(|| choose_zstd(catalogue, &recipe, layout.compression, stop))?;
    recipe.zstd = choice.zstd;
    Ok((recipe, choice.forgone_percent))
}

/// Decides how `compression` applies to records once `recipe` has transformed them. Reads some
/// samples, as many at a time as the current rayon pool has threads. Packing complains about those
/// that cannot be read.
fn choose_zstd(
    catalogue: &Catalogue,
    recipe: &Recipe,
    compression: Compression,
    stop: &Stop,
) -> Result<ZstdChoice, Error> {
    let (level, probing) = match compression {
        Compression::None => return Ok(ZstdChoice::default()),
        Compression::Auto => (ZSTD_LEVEL, true),
        Compression::Zstd { level } => (level, false),
    };
    let mut probes = probe(catalogue, recipe, PROBES, level, stop)?;
    let mut sizes: Vec<u64> = probes.iter().map(|probe| probe.raw).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(u64::MAX);
    if probing && recipe.transform.is_some_and(|transform| transform.format == Format::Raw) {
        return Ok(choose_for_pixels(&probes, median, level));
    }
    let mut dictionary = Vec::new();
    if median < DICTIONARY_RECORD_BYTES {
        let more = probe(catalogue, recipe, DICTIONARY_PROBES, level, stop)?;
        dictionary = train(&more, level);
        probes = more;
    }
    let media = if probing { worth_it(&probes, level, &dictionary) } else { COMPRESSIBLE.to_vec() };
    let zstd = Zstd { level, media, dictionary };
    Ok(ZstdChoice { zstd: (!zstd.media.is_empty()).then_some(zstd), forgone_percent: None })
}

#[derive(Debug, Default)]
struct ZstdChoice {
    /// `None` stores them as they are.
    zstd: Option<Zstd>,
    /// What zstd would have saved of raw pixels that are stored as they are, in percent.
    forgone_percent: Option<u64>,
}

/// Whether raw pixels are compressed: see [`RAW_SAVING_MIN_PERCENT`] and [`RAW_RECORD_BYTES_MIN`].
fn choose_for_pixels(probes: &[RecordProbe], median: u64, level: i32) -> ZstdChoice {
    let raw: u64 = probes.iter().map(|probe| probe.raw).sum();
    let compressed = probes.iter().map(|probe| probe.compressed).sum();
    if median >= RAW_RECORD_BYTES_MIN && saves(raw, compressed, RAW_SAVING_MIN_PERCENT) {
        let zstd = Zstd { level, media: vec![Media::Ppm], dictionary: Vec::new() };
        return ZstdChoice { zstd: Some(zstd), forgone_percent: None };
    }
    let percent = raw.saturating_sub(compressed).saturating_mul(100).checked_div(raw);
    ZstdChoice { zstd: None, forgone_percent: percent.filter(|percent| *percent > 0) }
}

struct RecordProbe {
    media: Media,
    raw: u64,
    compressed: u64,
    /// Its bytes, if it is small enough for a dictionary.
    small: Vec<u8>,
}

/// JPEG and WebP end with an entropy coder: zstd saves nothing more.
fn may_pay(media: Media) -> bool {
    !matches!(media, Media::Jpeg | Media::Webp)
}

/// All kinds for which [`may_pay`] is true.
pub(crate) const COMPRESSIBLE: [Media; 6] =
    [Media::Other, Media::Png, Media::Ppm, Media::Bmp, Media::Gif, Media::Tiff];

/// Looks at some of the records that compression may help.
fn probe(
    catalogue: &Catalogue,
    recipe: &Recipe,
    probes: u32,
    level: i32,
    stop: &Stop,
) -> Result<Vec<RecordProbe>, Error> {
    let samples = catalogue.len();
    let count = probes.min(samples);
    let spaced = |number: u32| {
        let position = u64::from(number) * u64::from(samples) / u64::from(count.max(1));
        SampleId(u32::try_from(position).unwrap_or(u32::MAX))
    };
    let plain = Recipe { transform: recipe.transform, ..Recipe::default() };
    let memory = memory_gate();
    let look = |number| {
        let Some(sample) = catalogue.sample(spaced(number)) else { return Ok(None) };
        let _pass = memory.pass(u64::from(sample.bytes).saturating_mul(plain.weight()), stop)?;
        stop.check()?;
        Ok(look(&sample, &mut RecordEncoder::new(&plain)?, level, stop))
    };
    let looked: Result<Vec<Option<_>>, Error> = (0..count).into_par_iter().map(look).collect();
    Ok(looked?.into_iter().flatten().collect())
}

fn look(
    sample: &Sample<'_>,
    encoder: &mut RecordEncoder<'_>,
    level: i32,
    stop: &Stop,
) -> Option<RecordProbe> {
    let mut image = Vec::new();
    SourceReader::new(stop).image(sample, &mut image).ok()?;
    let record = caught(|| encoder.record(&image)).ok()?.ok()?;
    let (media, raw) = (record.facts.media, record.stored.len() as u64);
    if !may_pay(media) {
        return None;
    }
    let compressed = compressed_len(record.stored, level, &[]);
    let small = if raw <= DICTIONARY_RECORD_BYTES { record.stored.to_vec() } else { Vec::new() };
    Some(RecordProbe { media, raw, compressed, small })
}

/// A dictionary, if it makes records smaller by as much as compression itself must.
fn train(probes: &[RecordProbe], level: i32) -> Vec<u8> {
    let small: Vec<&RecordProbe> = probes.iter().filter(|probe| !probe.small.is_empty()).collect();
    if small.len() < DICTIONARY_RECORDS_MIN {
        return Vec::new();
    }
    let samples: Vec<&[u8]> = small.iter().map(|probe| probe.small.as_slice()).collect();
    // zstd gives an error where records have nothing in common.
    let Ok(dictionary) = zstd::dict::from_samples(&samples, DICTIONARY_BYTES) else { return Vec::new() };
    let without = small.iter().map(|probe| probe.compressed).sum();
    let with = samples.par_iter().map(|bytes| compressed_len(bytes, level, &dictionary)).sum();
    if pays(without, with) { dictionary } else { Vec::new() }
}

/// Bytes stored; the raw length where compression does not pay.
fn compressed_len(bytes: &[u8], level: i32, dictionary: &[u8]) -> u64 {
    let raw = bytes.len() as u64;
    let compressed = if dictionary.is_empty() {
        compress(bytes, level)
    } else {
        zstd::bulk::Compressor::with_dictionary(level, dictionary).and_then(|mut zstd| zstd.compress(bytes))
    };
    compressed.map_or(raw, |compressed| compressed.len() as u64).min(raw)
}

/// The kinds of images whose probes together become smaller by the least saving.
fn worth_it(probes: &[RecordProbe], level: i32, dictionary: &[u8]) -> Vec<Media> {
    let stored = |probe: &RecordProbe| {
        let helped = !dictionary.is_empty() && !probe.small.is_empty();
        if helped { compressed_len(&probe.small, level, dictionary) } else { probe.compressed }
    };
    let lens: Vec<u64> = probes.par_iter().map(stored).collect();
    let mut totals: BTreeMap<Media, (u64, u64)> = BTreeMap::new();
    for (probe, len) in probes.iter().zip(lens) {
        let (raw, stored) = totals.entry(probe.media).or_default();
        *raw += probe.raw;
        *stored += len;
    }
    totals.into_iter().filter(|(_, (raw, stored))| pays(*raw, *stored)).map(|(media, _)| media).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe_of(media: Media, bytes: &[u8]) -> RecordProbe {
        let compressed = compressed_len(bytes, 3, &[]);
        RecordProbe { media, raw: bytes.len() as u64, compressed, small: bytes.to_vec() }
    }

    #[test]
    fn kinds_are_worth_it_by_what_they_save_together() {
        let flat = vec![7u8; 5000];
        let mut state = 1u32;
        let mut noise = vec![0u8; 5000];
        for byte in &mut noise {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        let probes = [probe_of(Media::Bmp, &flat), probe_of(Media::Png, &noise)];
        assert_eq!(worth_it(&probes, 3, &[]), [Media::Bmp]);
    }

    #[test]
    fn pixels_are_compressed_only_if_large_and_halved() {
        let probe = |raw, compressed| RecordProbe { media: Media::Ppm, raw, compressed, small: Vec::new() };
        let large = RAW_RECORD_BYTES_MIN;
        for (raw, compressed, is_used, forgone) in [
            (large, large / 2, true, None),
            (large, large / 2 + large / 100, false, Some(49)),
            (large - 1, 1000, false, Some(98)),
            (3000, 2700, false, Some(10)),
            (3000, 3000, false, None),
        ] {
            let choice = choose_for_pixels(&[probe(raw, compressed)], raw, 3);
            assert_eq!(
                (choice.zstd.is_some(), choice.forgone_percent),
                (is_used, forgone),
                "{raw} {compressed}"
            );
        }
        assert!(choose_for_pixels(&[], u64::MAX, 3).zstd.is_none());
    }

    #[test]
    fn a_dictionary_comes_from_small_records_that_resemble_each_other() {
        let header: Vec<u8> = (0..600u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let alike = |n: u32| probe_of(Media::Png, &[&header[..], &n.to_le_bytes().repeat(5)].concat());
        let records: Vec<_> = (0..500).map(alike).collect();
        let dictionary = train(&records, 3);
        assert!(!dictionary.is_empty() && dictionary.len() <= DICTIONARY_BYTES);
        let first = &records[0].small;
        assert!(compressed_len(first, 3, &dictionary) * 2 < compressed_len(first, 3, &[]));
        assert!(train(&records[..10], 3).is_empty());
    }
}
