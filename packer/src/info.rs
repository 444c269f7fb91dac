//! `info`: what a dataset holds, from its index alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use shade_formats::index::PlacesKind;
use shade_formats::printable::OneLine;

use crate::dataset::Dataset;
use crate::error::Error;
use crate::options::PackOptions;
use crate::report::{Printed, human_bytes, path_as_text};
use crate::times::Times;

/// Classes listed to people; programs get all.
const CLASSES_SHOWN: usize = 20;

/// What a dataset has.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Info {
    /// Its directory.
    #[serde(serialize_with = "path_as_text")]
    dataset: PathBuf,
    /// What identifies its content, in hexadecimal.
    content_id: String,
    /// Its samples.
    samples: u32,
    /// Where its images lie, if they were not packed.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_place: Option<InPlace>,
    /// Its shards.
    shards: u32,
    /// Bytes of all shards.
    shard_bytes: u64,
    /// Bytes of all records as stored, without tar's headers and padding.
    stored_bytes: u64,
    /// Bytes of all records before compression.
    raw_bytes: u64,
    /// Records that are compressed.
    compressed: u64,
    /// zstd dictionaries that compressed records need.
    dictionaries: usize,
    /// Bytes of these dictionaries.
    dictionary_bytes: usize,
    /// Samples with extra fields.
    with_fields: u64,
    /// Bytes of extra fields, with tar's headers and padding.
    fields_bytes: u64,
    /// Samples whose members are named by another number than their id, as merging, appending and
    /// skipping leave them.
    own_keys: u64,
    /// Samples whose source files' lengths and times are known, so that create and append notice
    /// when they change.
    times_known: u64,
    /// How large records are.
    record_bytes: RecordBytes,
    /// Number of samples of each kind of image.
    media: BTreeMap<&'static str, u64>,
    /// Classes in order of their labels.
    classes: Vec<ClassCount>,
    /// The options that it was packed with.
    options: serde_json::Value,
}

/// The files that an index points at.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InPlace {
    /// `tars`, `files` or `shards`.
    kind: &'static str,
    /// The folder that they lie in.
    base: String,
    /// Samples whose checksum is not known.
    without_checksum: u64,
}

/// How large records are, in bytes. Percentiles are nearest ranks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RecordBytes {
    /// Their mean.
    mean: f64,
    /// The smallest.
    min: u32,
    /// The median.
    p50: u32,
    /// The 90th percentile.
    p90: u32,
    /// The 99th percentile.
    p99: u32,
    /// The largest.
    max: u32,
}

/// A class.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ClassCount {
    /// Its name.
    name: String,
    /// Its samples.
    samples: u32,
}

/// Describes the dataset in `dir`.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn info(dir: &Path) -> Result<Info, Error> {
    let dataset = Dataset::open(dir)?;
    let index = &dataset.index;
    let class = |label| ClassCount { name: dataset.class_text(label), samples: 0 };
    let mut info = Info {
        dataset: dir.to_owned(),
        content_id: index.content_id().to_string(),
        samples: index.len(),
        in_place: InPlace::of(&dataset),
        shards: index.shard_count(),
        shard_bytes: dataset.shard_rows().map(|shard| shard.bytes).sum(),
        dictionaries: index.dictionaries().count(),
        dictionary_bytes: index.dictionaries().map(<[u8]>::len).sum(),
        times_known: Times::read(dir)?.known(index),
        classes: (0..index.class_count()).map(class).collect(),
        options: dataset.options(),
        ..Info::default()
    };
    let mut sizes = Vec::with_capacity(index.len() as usize);
    for sample in dataset.ids() {
        let Some(entry) = index.entry(sample) else { continue };
        info.own_keys += u64::from(index.key(sample) != sample.0);
        if let Some(fields) = index.fields(sample) {
            info.with_fields += 1;
            info.fields_bytes += fields.len;
        }
        if let Some(class) = info.classes.get_mut(entry.label as usize) {
            class.samples += 1;
        }
        *info.media.entry(entry.media.name()).or_insert(0) += 1;
        sizes.push(entry.stored_len);
        info.stored_bytes += u64::from(entry.stored_len);
        info.raw_bytes += u64::from(entry.raw_len);
        info.compressed += u64::from(entry.codec.is_compressed());
    }
    info.record_bytes = RecordBytes::of(sizes, info.stored_bytes);
    Ok(info)
}

impl InPlace {
    fn of(dataset: &Dataset) -> Option<Self> {
        let places = dataset.index.places()?;
        let kind = match places.kind {
            PlacesKind::Tars => "tars",
            PlacesKind::Files => "files",
            PlacesKind::Shards => "shards",
        };
        let base = String::from_utf8_lossy(places.base).into_owned();
        Some(Self { kind, base, without_checksum: dataset.without_checksum() })
    }
}

impl RecordBytes {
    fn of(mut sizes: Vec<u32>, total: u64) -> Self {
        sizes.sort_unstable();
        // The smallest size that `percent` of the records do not exceed.
        let at = |percent: usize| {
            let rank = (sizes.len() * percent).div_ceil(100);
            sizes.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        #[expect(clippy::cast_precision_loss, reason = "a mean for people; 53 bits are plenty")]
        let mean = if sizes.is_empty() { 0.0 } else { total as f64 / sizes.len() as f64 };
        Self { mean, min: at(0), p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

impl Info {
    /// What compression saves and costs here, or would; `None` if there is nothing to say.
    fn compression_text(&self) -> Option<String> {
        let is_raw = PackOptions::all(&self.options.to_string()).iter().any(PackOptions::stores_pixels);
        let saved = self.raw_bytes.saturating_sub(self.stored_bytes).saturating_mul(100);
        match (self.compressed, saved.checked_div(self.raw_bytes)) {
            (0, _) if is_raw => Some(
                "not used: raw pixels train fastest as they are; create --compress zstd saves room"
                    .to_owned(),
            ),
            (0, _) | (_, None) => None,
            (_, Some(percent)) => {
                Some(format!("saves {percent} %; trainers decompress each such record whenever they take it"))
            }
        }
    }
}

impl Printed for Info {}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "dataset     {}", self.dataset.display())?;
        writeln!(f, "content id  {}", self.content_id)?;
        writeln!(f, "samples     {}", self.samples)?;
        if let Some(InPlace { kind, base, without_checksum }) = &self.in_place {
            let base = OneLine(base);
            writeln!(f, "in place    {kind} in {base}, {without_checksum} records without checksum")?;
        }
        writeln!(f, "shards      {} of {} in all", self.shards, human_bytes(self.shard_bytes))?;
        let (stored, raw) = (human_bytes(self.stored_bytes), human_bytes(self.raw_bytes));
        writeln!(f, "records     {stored} stored, {raw} raw, {} compressed", self.compressed)?;
        if let Some(text) = self.compression_text() {
            writeln!(f, "zstd        {text}")?;
        }
        if self.dictionaries > 0 {
            writeln!(f, "dictionary  {} of {} bytes in all", self.dictionaries, self.dictionary_bytes)?;
        }
        if self.with_fields > 0 {
            let bytes = human_bytes(self.fields_bytes);
            writeln!(f, "fields      of {} samples, {bytes}", self.with_fields)?;
        }
        let all = PackOptions::all(&self.options.to_string());
        let pairs: BTreeSet<(&String, &String)> = all.iter().flat_map(|options| &options.pairs).collect();
        for (name, files) in pairs {
            writeln!(f, "pair        {} from files called {}", OneLine(name), OneLine(files))?;
        }
        if self.own_keys > 0 {
            writeln!(f, "keys        of {} samples are not their ids", self.own_keys)?;
        }
        writeln!(f, "times       known of the source files of {} samples", self.times_known)?;
        for transform in all.iter().filter_map(PackOptions::transform_text) {
            writeln!(f, "transform   {transform}")?;
        }
        let RecordBytes { mean, min, p50, p90, p99, max } = self.record_bytes;
        writeln!(f, "bytes       mean {mean:.0}, min {min}, p50 {p50}, p90 {p90}, p99 {p99}, max {max}")?;
        let media: Vec<String> = self.media.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(f, "media       {}", media.join(", "))?;
        writeln!(f, "options     {}", self.options)?;
        write!(f, "classes     {}", self.classes.len())?;
        for (label, class) in self.classes.iter().enumerate().take(CLASSES_SHOWN) {
            write!(f, "\n  {label:>8}  {:>9}  {}", class.samples, OneLine(&class.name))?;
        }
        if self.classes.len() > CLASSES_SHOWN {
            write!(f, "\n  ... and {} more; --json lists all", self.classes.len() - CLASSES_SHOWN)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::RecordBytes;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let all = RecordBytes::of((1..=200).rev().collect(), 20_100);
        assert_eq!((all.min, all.p50, all.p90, all.p99, all.max), (1, 100, 180, 198, 200));
        assert!((all.mean - 100.5).abs() < 1e-9);
        let one = RecordBytes::of(vec![7], 7);
        assert_eq!((one.min, one.p50, one.p99, one.max), (7, 7, 7, 7));
        assert_eq!(RecordBytes::of(Vec::new(), 0).max, 0);
    }
}
