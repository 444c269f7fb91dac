//! `ls`: one line for each sample, written one by one: only the index is in memory.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use shade_formats::index::{Codec, Entry};
use shade_formats::printable::OneLine;
use shade_formats::{SampleId, ShardId};

use crate::dataset::Dataset;
use crate::error::Error;
use crate::report::{Outcome, write_json};

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// The dataset's directory, or its address: s3://bucket/prefix.
    dataset: PathBuf,
    /// List samples of the class with this name only.
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// List samples in this shard only, counted from 0.
    #[arg(long, value_name = "N")]
    shard: Option<u32>,
    /// Tell more than id, label and path: class, shard's name, offset, bytes stored, bytes raw,
    /// codec, kind of image, width x height (0 where unknown), key, bytes of fields.
    ///
    /// Columns are separated by tabs; control characters in names are spelled as in "\n".
    #[arg(short, long)]
    long: bool,
    /// Print a JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A listing, written line by line.
#[derive(Debug)]
pub(crate) struct Listing {
    dataset: Dataset,
    args: LsArgs,
    /// The labels of `--class`: several classes may have one name.
    labels: Option<Vec<u32>>,
}

/// A sample. `class` and others come with `--long` only.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SampleLine<'a> {
    /// Its id.
    id: u32,
    /// Its label.
    label: u32,
    /// Its path in the source.
    path: &'a str,
    #[serde(flatten)]
    more: Option<More<'a>>,
}

/// What `--long` adds.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct More<'a> {
    /// Name of its class.
    class: &'a str,
    /// The shard's path in the dataset.
    shard: &'a str,
    /// Where its record begins in the shard, in bytes.
    offset: u64,
    /// Bytes of its record as stored.
    stored_bytes: u32,
    /// Bytes of its record before compression.
    raw_bytes: u32,
    /// How it is compressed: `none`, `zstd`, `zstd-dictionary`.
    codec: &'static str,
    /// Kind of image.
    media: &'static str,
    /// Pixels; 0 where unknown.
    width: u16,
    /// Pixels; 0 where unknown.
    height: u16,
    /// Number that its members in the tar are named by.
    key: u32,
    /// Bytes of its extra fields.
    fields_bytes: u64,
}

/// Prepares to list a dataset.
///
/// # Errors
/// It cannot be opened; or there is no such class or shard: usage.
pub(crate) fn ls(args: LsArgs) -> Result<Listing, Error> {
    let dataset = Dataset::open(&args.dataset)?;
    let dir = args.dataset.display();
    let labels = args.class.as_ref().map(|class| {
        let named = (0..).zip(dataset.class_names()).filter(|(_, name)| *name == class.as_bytes());
        named.map(|(label, _)| label).collect::<Vec<u32>>()
    });
    if let (Some(class), Some([])) = (&args.class, labels.as_deref()) {
        return Err(Error::Usage(format!("{dir} has no class '{class}'")));
    }
    let shards = dataset.index.shard_count();
    if let Some(shard) = args.shard.filter(|&shard| shard >= shards) {
        return Err(Error::Usage(format!("{dir} has no shard {shard}: it has {shards}, from 0 on")));
    }
    Ok(Listing { dataset, args, labels })
}

impl Outcome for Listing {
    fn is_listing(&self) -> bool {
        true
    }

    fn write(&self, _: bool, out: &mut dyn Write) -> io::Result<()> {
        for sample in self.dataset.ids() {
            let Some(entry) = self.dataset.index.entry(sample) else { continue };
            let is_listed = self.labels.as_ref().is_none_or(|labels| labels.contains(&entry.label))
                && self.args.shard.is_none_or(|shard| entry.shard == ShardId(shard));
            if is_listed {
                self.line(sample, &entry, out)?;
            }
        }
        out.flush()
    }
}

impl Listing {
    fn line(&self, sample: SampleId, entry: &Entry, out: &mut dyn Write) -> io::Result<()> {
        let (index, long) = (&self.dataset.index, self.args.long);
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
        let line = SampleLine { id: sample.0, label: entry.label, path: &path, more };
        if self.args.json {
            write_json(out, &line)?;
            return out.write_all(b"\n");
        }
        write!(out, "{}\t{}\t{}", line.id, line.label, OneLine(line.path))?;
        if let Some(more) = line.more {
            let More { class, shard, offset, stored_bytes, raw_bytes, codec, media, width, height, .. } =
                more;
            let (class, shard) = (OneLine(class), OneLine(shard));
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
