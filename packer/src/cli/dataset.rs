//! Arguments of the commands that look at datasets, put them together, or add to them.

use std::path::PathBuf;

use clap::Args;

use super::{EffortArgs, FormatArg, ImageArgs, JobsArgs, OutputArgs, SourceArgs};
use crate::append::{AppendConfig, layout_of};
use crate::config::{Compression, Layout, OnBad, parse_shard_size};
use crate::diff::DiffConfig;
use crate::error::Error;
use crate::ls::LsConfig;
use crate::merge::MergeConfig;
use crate::pack::Interpolation;
use crate::verify::{RepairSource, VerifyConfig};

/// create's own `--shard-size`, for datasets that do not say theirs.
const SHARD_BYTES: u64 = 1 << 30;
/// create's own `--quality`.
const QUALITY: u8 = 90;

/// Of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// Print one JSON object instead of text, with all classes.
    #[arg(long)]
    pub json: bool,
}

/// Of `ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// List samples of the class with this name only.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
    /// List samples in this shard only, counted from 0.
    #[arg(long, value_name = "N")]
    pub shard: Option<u32>,
    /// Tell more than id, label and path: class, shard's name, offset, bytes stored, bytes raw, codec, kind of image, width x
    /// height (0 where unknown), key, bytes of fields.
    ///
    /// Columns are separated by tabs; control characters in names are spelled as in "\n".
    #[arg(short, long)]
    pub long: bool,
    /// Print a JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// Of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// Decode every record as well. One that is no image counts as damaged, one of a kind without decoder is named.
    #[arg(long)]
    pub decode: bool,
    /// Write damaged shards again: what is intact is copied, the rest is made anew from SRC, which DATASET was packed from.
    ///
    /// A shard is replaced only by the very bytes that it had; if SRC has changed, it is left as it is. Exit code 0 if all
    /// is whole then.
    #[arg(long, value_name = "SRC")]
    pub repair: Option<PathBuf>,
    /// With --repair: the file of labels that create was given.
    #[arg(long, value_name = "FILE", requires = "repair")]
    pub labels: Option<PathBuf>,
    /// Threads.
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Of `extract`.
#[derive(Debug, Args)]
pub struct ExtractArgs {
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// The ImageFolder's directory. It must not exist. A sample's fields are written beside its image.
    pub out: PathBuf,
    /// Threads.
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// What DATASET may have been packed from. It is only read.
    pub source: PathBuf,
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// How SOURCE is read.
    #[command(flatten)]
    pub source_args: SourceArgs,
    /// Compare paths and classes only, not lengths and contents: lists SOURCE, but reads none of its images.
    #[arg(long)]
    pub names_only: bool,
    /// Threads.
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Read so many source files at a time, 1 to 1024.
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub in_flight: u16,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Of `merge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The new dataset's directory. It must not exist.
    pub out: PathBuf,
    /// What is merged. Ids follow one another in this order; classes are those of all, by name.
    #[arg(required = true)]
    pub datasets: Vec<PathBuf>,
    /// Link shards instead of copying them: takes no room, but needs one file system. Shards are never changed in place.
    #[arg(long)]
    pub link: bool,
    /// Threads.
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Of `append`.
#[derive(Debug, Args)]
pub struct AppendArgs {
    /// What is added: samples whose path DATASET does not have. It is only read.
    pub source: PathBuf,
    /// The dataset's directory. What it has keeps its ids, its labels and its shards.
    pub dataset: PathBuf,
    /// How SOURCE is read.
    #[command(flatten)]
    pub source_args: SourceArgs,
    /// How new records are made and laid out.
    #[command(flatten)]
    pub layout: NewLayoutArgs,
    /// What happens at a sample that cannot be packed: unreadable, empty, changed meanwhile, not to be decoded.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub on_bad: OnBad,
    /// Throw away what earlier runs left unfinished, and begin anew. By default the same command goes on.
    #[arg(long)]
    pub restart: bool,
    /// Threads and durability.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How new records are made and laid out: what is not given is as the dataset's own options say. See `create --help`.
#[derive(Debug, Args)]
pub struct NewLayoutArgs {
    /// Seed of the order in which the new samples lie on disk. By default the dataset's.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Keep the new samples on disk in the order of their ids.
    #[arg(long, conflicts_with = "seed")]
    pub no_shuffle: bool,
    /// Cut shards before they exceed this many bytes. By default as the dataset's.
    #[arg(long, value_name = "BYTES", value_parser = parse_shard_size)]
    pub shard_size: Option<u64>,
    /// Compress records: none, auto, zstd, or zstd:LEVEL. By default as the dataset's.
    #[arg(long, value_name = "HOW")]
    pub compress: Option<Compression>,
    /// Put each new sample's label beside it as a .cls member. By default as the dataset's.
    #[arg(long)]
    pub cls: bool,
    /// What is stored. By default as the dataset's, resizing included.
    #[arg(long, value_name = "HOW", value_enum)]
    pub format: Option<FormatArg>,
    /// With --format: shrink images whose short side is longer to this many pixels.
    #[arg(long, value_name = "PIXELS", requires = "format", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub resize_short: Option<u32>,
    /// With --format: shrink images of which a side is longer than this many pixels.
    #[arg(long, value_name = "PIXELS", requires = "format", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub max_side: Option<u32>,
    /// With --format: how pixels are interpolated. By default bilinear.
    #[arg(long, value_name = "HOW", requires = "format", value_enum)]
    pub filter: Option<Interpolation>,
    /// With --format jpeg: its quality, 1 to 100. By default 90.
    #[arg(long, value_name = "Q", requires = "format", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub quality: Option<u8>,
    /// With --format keep or jpeg: code JPEGs again without loss, with restart markers, as create does.
    #[arg(long, requires = "format")]
    pub restart_markers: bool,
}

impl LsArgs {
    pub(super) fn config(&self) -> LsConfig {
        let Self { class, shard, long, json, .. } = self;
        LsConfig { class: class.clone(), shard: *shard, long: *long, json: *json }
    }
}

impl VerifyArgs {
    pub(super) fn config(&self) -> VerifyConfig {
        let source = |path: &PathBuf| RepairSource { path: path.clone(), labels: self.labels.clone() };
        VerifyConfig {
            decode: self.decode,
            repair: self.repair.as_ref().map(source),
            jobs: self.jobs.count(),
        }
    }
}

impl DiffArgs {
    pub(super) fn config(self) -> Result<DiffConfig, Error> {
        let effort = EffortArgs { jobs: self.jobs, in_flight: self.in_flight, no_sync: true };
        Ok(DiffConfig {
            source: self.source_args.source(self.source)?,
            dataset: self.dataset,
            names_only: self.names_only,
            effort: effort.effort(),
        })
    }
}

impl MergeArgs {
    pub(super) fn config(self) -> MergeConfig {
        let Self { out, datasets, link, jobs, .. } = self;
        MergeConfig { out, datasets, link, jobs: jobs.count() }
    }
}

impl NewLayoutArgs {
    /// `own` is the dataset's layout.
    fn layout(self, own: Option<Layout>) -> Result<Layout, Error> {
        let mut layout = own.unwrap_or(Layout {
            shard_bytes: SHARD_BYTES,
            shuffle: Some(0),
            transform: None,
            compression: Compression::None,
            cls: false,
        });
        if let Some(format) = self.format {
            let Self { resize_short, max_side, filter, quality, restart_markers, .. } = self;
            let filter = filter.unwrap_or_default();
            let quality = quality.unwrap_or(QUALITY);
            let images = ImageArgs { format, resize_short, max_side, filter, quality, restart_markers };
            layout.transform = images.transform()?;
        }
        layout.shard_bytes = self.shard_size.unwrap_or(layout.shard_bytes);
        layout.compression = self.compress.unwrap_or(layout.compression);
        layout.cls |= self.cls;
        layout.shuffle = if self.no_shuffle { None } else { self.seed.or(layout.shuffle) };
        Ok(layout)
    }
}

impl AppendArgs {
    pub(super) fn config(self) -> Result<AppendConfig, Error> {
        let own = layout_of(&self.dataset, self.layout.format.is_some())?;
        Ok(AppendConfig {
            source: self.source_args.source(self.source)?,
            dataset: self.dataset,
            layout: self.layout.layout(own)?,
            on_bad: self.on_bad,
            effort: self.effort.effort(),
            restart: self.restart,
        })
    }
}
