//! Arguments of the commands that pack: `create` and `append`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{EffortArgs, OutputArgs};
use crate::config::{Compression, CreateConfig, Layout, OnBad, parse_shard_size};
use crate::error::Error;
use crate::pack::{Format, Interpolation, Transform};
use crate::source::{Kind, Selection, Source};

/// Of `create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// What to pack: an ImageFolder, a folder of WebDataset tars, or a CSV file of paths and labels. It is only read.
    pub source: PathBuf,
    /// The dataset's directory. It must not exist and must not lie inside SOURCE.
    pub out: PathBuf,
    /// How SOURCE is read.
    #[command(flatten)]
    pub source_args: SourceArgs,
    /// Make a dataset of each of these folders of SOURCE: OUT/train, OUT/val.
    ///
    /// The datasets' classes are those of all splits together, so that equal labels mean equal classes. OUT appears when
    /// all are complete.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub splits: Vec<String>,
    /// How records are laid out.
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// What becomes of images.
    #[command(flatten)]
    pub images: ImageArgs,
    /// What happens at a sample that cannot be packed: unreadable, empty, changed meanwhile, not to be decoded.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub on_bad: OnBad,
    /// Go on where an earlier run of the same command was interrupted. This is the default.
    #[arg(long, overrides_with = "restart")]
    pub resume: bool,
    /// Throw away what earlier runs left unfinished for OUT, and begin anew.
    #[arg(long, overrides_with = "resume")]
    pub restart: bool,
    /// List and plan only: tell what would be packed, write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Threads and durability.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How a source is read.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// What SOURCE is. By default a file is a list, a folder with tars and no folders is a WebDataset, and every other
    /// folder is an ImageFolder.
    #[arg(long, value_name = "KIND", value_enum)]
    pub from: Option<Kind>,
    /// A JSON file with the class of each label, for lists and WebDataset tars: {"LABEL": "CLASS NAME"},
    /// {"CLASS NAME": INDEX}, or ["CLASS 0", "CLASS 1"].
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// Leave out files and folders that match; may be given again.
    ///
    /// A pattern without '/' matches a name at any depth, one with '/' a path below SOURCE. '*' and '?' stay within a
    /// name, '**' crosses folders: '*.tmp', '.ipynb_checkpoints', 'cat/**/thumbs'.
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
}

/// How records are laid out on disk.
#[derive(Debug, Args)]
pub struct LayoutArgs {
    /// Seed of the order in which samples lie on disk (sample ids do not depend on it).
    ///
    /// Any number from 0 to 2^64 - 1. Change it only to get another order.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Keep samples on disk in the order of their ids, class by class.
    ///
    /// By default they are shuffled, so that readers of whole shards meet mixed classes. Use this for data in which
    /// neighbours belong together, such as frames of a video.
    #[arg(long, conflicts_with = "seed")]
    pub no_shuffle: bool,
    /// Cut shards before they exceed this many bytes; a larger record gets its own shard.
    ///
    /// Takes IEC and SI units: 512MiB, 1GiB, 2GB; from 4KiB to 2TiB. Make it smaller to lose less when a pack is
    /// interrupted; larger when the file system dislikes many files.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_shard_size)]
    pub shard_size: u64,
    /// Compress records: none, auto, zstd, or zstd:LEVEL with a level from 1 to 22.
    ///
    /// A record is stored compressed only if that saves 5 % of it; JPEG and WebP never are. auto tries a few records of
    /// each kind of image first and leaves kinds alone that gain nothing. Small records (median below 16 KiB) share a
    /// trained dictionary if that pays, too. Plain zstd means level 3. Worth it for BMP, PPM and uncompressed TIFF; PNG
    /// and JPEG gain nothing.
    ///
    /// Trainers pay: each record is decompressed whenever it is delivered. Pixels of 32x32 then train at a quarter of the
    /// speed. So of --format raw, auto compresses only if that halves the records or better and half of them have 64 KiB
    /// or more; if not, the result says what zstd would save, and zstd has it used anyway. Default: none, and auto for
    /// --format raw.
    #[arg(long, value_name = "HOW")]
    pub compress: Option<Compression>,
    /// Put each sample's label beside it as a .cls member, for readers of WebDataset. 1 KiB a sample.
    #[arg(long)]
    pub cls: bool,
}

/// What becomes of images.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// What is stored.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub format: FormatArg,
    /// Shrink images whose short side is longer to this many pixels, as torchvision's Resize does. Never enlarges.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub resize_short: Option<u32>,
    /// Shrink images of which a side is longer than this many pixels. Comes after --resize-short.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub max_side: Option<u32>,
    /// How pixels are interpolated, always with antialiasing, as Pillow does it.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub filter: Interpolation,
    /// JPEG quality for --format jpeg, 1 to 100.
    #[arg(long, value_name = "Q", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub quality: u8,
    /// Code JPEGs again without loss, with restart markers, so that a crop is decoded without what lies around it.
    ///
    /// Pixels stay what they are; a random crop (RandomResizedCrop) is decoded in a quarter less time. Files of photographs keep their
    /// size to within some percent, as Huffman tables are made for each; small ones of low quality grow. Progressive JPEGs become sequential,
    /// EXIF and colour profiles stay. JPEGs of inks (CMYK) and of other rare kinds stay as they are, other images as --format says.
    #[arg(long)]
    pub restart_markers: bool,
}

/// What is stored of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// The file's bytes, untouched.
    #[default]
    Keep,
    /// Decode, turn upright by EXIF, resize, encode as JPEG.
    Jpeg,
    /// Decode, turn upright by EXIF, resize, store the pixels (PPM), as they are unless zstd halves large ones.
    Raw,
}

impl SourceArgs {
    /// Of the source at `path`.
    pub(super) fn source(self, path: PathBuf) -> Result<Source, Error> {
        let excluding = Selection::excluding(&self.exclude);
        let selection = excluding.map_err(|fault| Error::Usage(format!("--exclude {fault}")))?;
        Ok(Source { path, kind: self.from, labels: self.labels, selection })
    }
}

impl LayoutArgs {
    pub(super) fn layout(self, images: &ImageArgs) -> Result<Layout, Error> {
        let transform = images.transform()?;
        let raw = transform.is_some_and(|transform| transform.format == Format::Raw);
        let default = if raw { Compression::Auto } else { Compression::None };
        Ok(Layout {
            shard_bytes: self.shard_size,
            shuffle: (!self.no_shuffle).then_some(self.seed),
            transform,
            compression: self.compress.unwrap_or(default),
            cls: self.cls,
        })
    }
}

impl ImageArgs {
    pub(super) fn transform(&self) -> Result<Option<Transform>, Error> {
        let format = match self.format {
            FormatArg::Keep if self.resize_short.is_some() || self.max_side.is_some() => {
                let text = "resizing means encoding again: add --format jpeg or --format raw";
                return Err(Error::Usage(text.to_owned()));
            }
            FormatArg::Raw if self.restart_markers => {
                let text = "--restart-markers is for JPEGs: --format raw stores none";
                return Err(Error::Usage(text.to_owned()));
            }
            FormatArg::Keep if !self.restart_markers => return Ok(None),
            FormatArg::Keep => Format::Keep,
            FormatArg::Jpeg => Format::Jpeg,
            FormatArg::Raw => Format::Raw,
        };
        let Self { resize_short, max_side, filter, quality, restart_markers, .. } = *self;
        Ok(Some(Transform { format, resize_short, max_side, filter, quality, restart_markers }))
    }
}

impl CreateArgs {
    pub(super) fn config(self) -> Result<CreateConfig, Error> {
        let plain = |name: &String| !name.contains('/') && !matches!(name.as_str(), "" | "." | "..");
        if let Some(name) = self.splits.iter().find(|name| !plain(name)) {
            return Err(Error::Usage(format!("--splits: '{name}' is not a folder's name")));
        }
        Ok(CreateConfig {
            source: self.source_args.source(self.source)?,
            splits: self.splits,
            out: self.out,
            layout: self.layout.layout(&self.images)?,
            on_bad: self.on_bad,
            effort: self.effort.effort(),
            restart: self.restart,
            dry_run: self.dry_run,
        })
    }
}
