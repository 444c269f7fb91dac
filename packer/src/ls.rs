//! `ls`: one line for each sample, written as they come: the index is all that is in memory.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use shade_formats::index::{Codec, Entry};
use shade_formats::{SampleId, ShardId};

use crate::dataset::Dataset;
use crate::error::Error;

/// Which samples are listed, and how.
#[derive(Clone, Debug, Default)]
pub struct LsConfig {
    /// Only samples of the class with this name.
    pub class: Option<String>,
    /// Only samples in this shard.
    pub shard: Option<u32>,
    /// Tell all that the index knows.
    pub long: bool,
    /// A JSON object a line.
    pub json: bool,
}

/// A listing that is ready to be written.
#[derive(Debug)]
pub struct Listing {
    dataset: Dataset,
    config: LsConfig,
    /// The labels of [`LsConfig::class`].
    labels: Option<Vec<u32>>,
}

/// A line.
#[derive(Serialize)]
struct Row<'a> {
    id: u32,
    label: u32,
    path: &'a str,
    #[serde(flatten)]
    more: Option<More<'a>>,
}

/// The rest of a long line.
#[derive(Serialize)]
struct More<'a> {
    class: &'a str,
    shard: &'a str,
    offset: u64,
    stored_bytes: u32,
    raw_bytes: u32,
    codec: &'static str,
    media: &'static str,
    width: u16,
    height: u16,
    key: u32,
    /// Their bytes in the shard.
    fields_bytes: u64,
}

/// Prepares to list the dataset in `dir`.
///
/// # Errors
/// See [`Dataset::open`]; or there is no such class or shard: usage.
pub fn ls(dir: &Path, config: LsConfig) -> Result<Listing, Error> {
    let dataset = Dataset::open(dir)?;
    let labels = config.class.as_ref().map(|class| {
        let is_it = |label: &u32| dataset.index.class_name(*label) == Some(class.as_bytes());
        (0..dataset.index.class_count()).filter(is_it).collect::<Vec<u32>>()
    });
    if let (Some(class), Some([])) = (&config.class, labels.as_deref()) {
        return Err(Error::Usage(format!("{} has no class '{class}'", dir.display())));
    }
    let shards = dataset.index.shard_count();
    if let Some(shard) = config.shard.filter(|&shard| shard >= shards) {
        let text = format!("{} has no shard {shard}: it has {shards}, from 0 on", dir.display());
        return Err(Error::Usage(text));
    }
    Ok(Listing { dataset, config, labels })
}

impl Listing {
    /// Writes all lines.
    ///
    /// # Errors
    /// `out` refuses.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let index = &self.dataset.index;
        for sample in (0..index.len()).map(SampleId) {
            let Some(entry) = index.entry(sample) else { continue };
            let is_wanted = self.labels.as_ref().is_none_or(|labels| labels.contains(&entry.label))
                && self.config.shard.is_none_or(|shard| entry.shard == ShardId(shard));
            if is_wanted {
                self.line(sample, &entry, out)?;
            }
        }
        out.flush()
    }

    fn line(&self, sample: SampleId, entry: &Entry, out: &mut dyn Write) -> io::Result<()> {
        let (index, long) = (&self.dataset.index, self.config.long);
        let path = String::from_utf8_lossy(index.path(sample).unwrap_or_default());
        let class = String::from_utf8_lossy(index.class_name(entry.label).unwrap_or_default());
        let more = long.then(|| More {
            class: &class,
            shard: index.shard(entry.shard).map_or("", |shard| shard.name),
            offset: entry.offset,
            stored_bytes: entry.stored_len,
            raw_bytes: entry.raw_len,
            codec: codec_name(entry.codec),
            media: entry.media.name(),
            width: entry.width,
            height: entry.height,
            key: index.key(sample),
            fields_bytes: index.fields(sample).map_or(0, |fields| fields.len),
        });
        let row = Row { id: sample.0, label: entry.label, path: &path, more };
        if self.config.json {
            serde_json::to_writer(&mut *out, &row)?;
            return out.write_all(b"\n");
        }
        write!(out, "{}\t{}\t{}", row.id, row.label, one_line(row.path))?;
        if let Some(more) = row.more {
            let More { class, shard, offset, stored_bytes, raw_bytes, codec, media, width, height, .. } =
                more;
            let (class, shard) = (one_line(class), one_line(shard));
            write!(out, "\t{class}\t{shard}\t{offset}\t{stored_bytes}\t{raw_bytes}\t{codec}\t{media}")?;
            write!(out, "\t{width}x{height}\t{}\t{}", more.key, more.fields_bytes)?;
        }
        out.write_all(b"\n")
    }
}

/// What `--json` calls a codec.
fn codec_name(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Zstd => "zstd",
        Codec::ZstdDictionary => "zstd-dictionary",
    }
}

/// The text with its tabs, line ends and other control characters spelled out, so that lines and columns stay what they are.
fn one_line(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let spelled = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(spelled).collect::<String>().into()
}
