//! Options that several commands share.

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use shade_dataset::Address;

use crate::config::{Accept, Compression, Effort, Layout, OnBad, parse_shard_size};
use crate::error::Error;
use crate::pack::{Format, Interpolation, Transform};
use crate::pair::Pair;
use crate::progress::Shown;
use crate::source::{Labels, Selection, Source, SourceKind, coco};
use crate::source_bucket::SourceBucket;

/// The SOURCE that stands for standard input.
const STDIN: &str = "-";

const QUALITY: u8 = 90;

/// A path on a file system, for what cannot be read from, or written to, an object store.
pub(crate) fn local() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        match Address::of_path(&path) {
            Ok(Address::Path(path)) => Ok(path),
            Ok(Address::Url(url)) => {
                Err(format!("{url} is no file system's path, and this works with folders only"))
            }
            Err(error) => Err(error.to_string()),
        }
    })
}

/// A path on a file system, or an address.
fn place() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| match Address::of_path(Path::new(&text)) {
        Ok(Address::Path(path)) => Ok(path),
        Ok(Address::Url(url)) => Ok(url.as_str().into()),
        Err(error) => Err(error.to_string()),
    })
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArgs {
    /// An ImageFolder, a folder of WebDataset tars, or a CSV file of paths and labels. It is only
    /// read. The folder may be a prefix in a bucket: s3://bucket/photos. With `create`, '-' is a
    /// tar from standard input.
    #[arg(value_name = "SOURCE", value_parser = place())]
    pub(crate) path: PathBuf,
    /// What SOURCE is. By default a file is a list, a folder with tars and no folders is a
    /// WebDataset, and every other folder is an ImageFolder.
    #[arg(long, value_name = "KIND", value_enum)]
    from: Option<SourceKind>,
    /// 'none', 'folders', 'txt', or a JSON file with the class of each label, for lists and
    /// WebDataset tars: {"LABEL": "CLASS NAME"}, {"CLASS NAME": INDEX}, or ["CLASS 0", "CLASS 1"].
    ///
    /// 'none' is for images without labels, of any kind of source: all get label 0, of one class
    /// called 'none'. A folder may then be flat, and a list needs no column 'label'. 'folders': the
    /// class folders of an ImageFolder, as it has them by default, also with --pair. 'txt': the
    /// .txt members of WebDataset tars, which are captions by default. Files of these names are
    /// './none', './folders' and './txt'.
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Keep a file of another folder beside each image, as the field NAME; may be given again.
    ///
    /// For masks, boxes or captions in files of their own: with --pair masks=data/masks the image
    /// SOURCE/a/1.jpg gets data/masks/a/1.png, with any extension that is the same for all. For
    /// other names, '*' stands for the image's: --pair 'masks=data/masks/*_mask.gif'. An image
    /// without its file is bad (--on-bad). SOURCE is a folder, flat or not, and its images have no
    /// labels; --labels folders takes its folders as classes.
    #[arg(long, value_name = "NAME=FOLDER")]
    pub(crate) pair: Vec<Pair>,
    /// Keep beside each image what a file of annotations in COCO's JSON says of its objects.
    ///
    /// The fields are arrays of NumPy with a row for each object: boxes.npy (float32, left, top,
    /// width, height), classes.npy (int64, the category_id) and crowds.npy (uint8, iscrowd). An
    /// annotation without bbox is left out. An image is found by its file_name, a path below
    /// SOURCE; one that FILE does not name is bad (--on-bad). SOURCE is a folder, flat or not, and
    /// its images have no labels; --labels folders takes its folders as classes. FILE is of one
    /// folder: splits are packed each by itself.
    #[arg(long, value_name = "FILE", value_parser = local())]
    pub(crate) coco: Option<PathBuf>,
    /// Leave out files and folders that match; may be given again.
    ///
    /// A pattern without '/' matches a name at any depth, one with '/' a path below SOURCE or below
    /// the folder of a split. '*' and '?' stay within a name, '**' crosses folders: '*.tmp',
    /// '.ipynb_checkpoints', 'cat/**/thumbs'.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
}

impl SourceArgs {
    /// Whether it is standard input.
    pub(crate) fn is_stream(&self) -> bool {
        self.path == Path::new(STDIN)
    }

    /// What the user says that it is.
    pub(crate) fn kind(&self) -> Option<SourceKind> {
        self.from
    }

    /// A source that can be listed before it is read.
    pub(crate) fn source(&self) -> Result<Source, Error> {
        if self.is_stream() {
            let text = "'-': standard input can be read once, and this command lists SOURCE before it reads it. Only \
                        `shade-pack create - OUT` takes it; a file of this name is './-'";
            return Err(Error::Usage(text.to_owned()));
        }
        self.parsed(self.from)
    }

    /// Standard input.
    pub(crate) fn stream(&self) -> Result<Source, Error> {
        self.parsed(Some(SourceKind::Webdataset))
    }

    fn parsed(&self, kind: Option<SourceKind>) -> Result<Source, Error> {
        let selection = Selection::excluding(&self.exclude)?;
        let labels = self.labels.clone().map_or(Labels::Own, Labels::from);
        let mut pairs = self.pair.clone();
        // The order in which they are given makes no other dataset.
        pairs.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(twice) = pairs.windows(2).find_map(|two| match two {
            [a, b] if a.name == b.name => Some(&a.name),
            _ => None,
        }) {
            return Err(Error::Usage(format!("--pair: '{twice}' is given twice")));
        }
        let is_of_coco = |pair: &&Pair| self.coco.is_some() && coco::FIELDS.contains(&pair.name.as_str());
        if let Some(Pair { name, .. }) = pairs.iter().find(is_of_coco) {
            return Err(Error::Usage(format!("--pair {name}: --coco makes a field of this name")));
        }
        let address = |path: &Path| match Address::of_path(path) {
            Ok(Address::Url(url)) => Ok(Some(url)),
            Ok(Address::Path(_)) => Ok(None),
            Err(fault) => Err(Error::Usage(fault.to_string())),
        };
        for pair in &pairs {
            if let Some(url) = address(&pair.folder)? {
                let name = &pair.name;
                let text = format!(
                    "--pair {name}: {url} is in a bucket, and pairs must be on a file system: copy it"
                );
                return Err(Error::Usage(text));
            }
        }
        let bucket = address(&self.path)?.map(SourceBucket::new);
        let coco = self.coco.clone();
        Ok(Source { path: self.path.clone(), bucket, kind, labels, selection, pairs, coco })
    }
}

/// How records are made and laid out. `append` takes what is not given from the dataset's own
/// options.
#[derive(Clone, Debug, Args)]
pub(crate) struct LayoutArgs {
    /// Seed of the order in which samples lie on disk. Default: 0; append: the dataset's.
    ///
    /// Any number from 0 to 2^64 - 1. Change it only to get another order. Sample ids do not depend
    /// on it.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Keep samples on disk in the order of their ids, class by class.
    ///
    /// By default they are shuffled, so that readers of whole shards meet mixed classes. Use this
    /// for data in which neighbours belong together, such as frames of a video.
    #[arg(long, conflicts_with = "seed")]
    no_shuffle: bool,
    /// Cut shards before they exceed this many bytes. Default: 1GiB; append: as the dataset's.
    ///
    /// Takes IEC and SI units: 512MiB, 1GiB, 2GB; from 4KiB to 2TiB. A larger record gets its own
    /// shard. Make it smaller to lose less when a pack is interrupted, larger when the file system
    /// dislikes many files.
    #[arg(long, value_name = "BYTES", value_parser = parse_shard_size)]
    shard_size: Option<u64>,
    /// Compress records: none, auto, zstd, or zstd:LEVEL with a level from 1 to 22. Default: none,
    /// and auto for --format raw; append: as the dataset's.
    ///
    /// A record is stored compressed only if that saves 5 % of it; JPEG and WebP never are. auto
    /// tries a few records of each kind of image first and leaves kinds alone that gain nothing.
    /// Small records (median below 16 KiB) share a trained dictionary if that pays, too. Plain zstd
    /// means level 3. Worth it for BMP, PPM and uncompressed TIFF; PNG and JPEG gain nothing.
    ///
    /// Trainers pay: each record is decompressed whenever it is delivered. Pixels of 32x32 then
    /// train at a quarter of the speed. So with --format raw, auto compresses only if that halves
    /// the records or better and half of them have 64 KiB or more. Otherwise the result says what
    /// zstd would save, and --compress zstd makes it use zstd.
    #[arg(long, value_name = "HOW")]
    compress: Option<Compression>,
    /// Put each sample's label beside it as a .cls member, for readers of WebDataset. 1 KiB a
    /// sample. append also does so where the dataset does.
    #[arg(long)]
    cls: bool,
    /// What is stored of an image. Default: keep; append: as the dataset's, resizing included.
    #[arg(long, value_name = "HOW", value_enum)]
    format: Option<Format>,
    /// Shrink images whose short side is longer to this many pixels, as torchvision's Resize does.
    /// Never enlarges.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    resize_short: Option<u32>,
    /// Shrink images with a side longer than this many pixels. Comes after --resize-short.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    max_side: Option<u32>,
    /// How pixels are interpolated, always with antialiasing, as Pillow does it. Default: bilinear.
    #[arg(long, value_name = "HOW", value_enum)]
    filter: Option<Interpolation>,
    /// JPEG quality for --format jpeg, 1 to 100. Default: 90.
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: Option<u8>,
    /// Code JPEGs again without loss, with restart markers, so that a crop is decoded without what
    /// lies around it.
    ///
    /// Pixels stay what they are; a random crop (RandomResizedCrop) is decoded in a quarter less
    /// time. Files of photographs keep their size to within some percent, as Huffman tables are
    /// made for each; small ones of low quality grow. Progressive JPEGs become sequential, EXIF and
    /// colour profiles stay. JPEGs of inks (CMYK) and of other rare kinds stay as they are, other
    /// images as --format says.
    #[arg(long)]
    restart_markers: bool,
}

impl LayoutArgs {
    pub(crate) fn for_new(&self) -> Result<Layout, Error> {
        let transform = self.transform()?;
        let is_raw = transform.is_some_and(|transform| transform.format == Format::Raw);
        let compression = if is_raw { Compression::Auto } else { Compression::None };
        Ok(self.over(Layout { transform, compression, ..Layout::default() }))
    }

    /// The layout of what is added to a dataset whose own layout is `own`.
    pub(crate) fn for_more(&self, own: Layout) -> Result<Layout, Error> {
        let transform = match self.format {
            Some(_) => self.transform()?,
            None if self.is_about_images() => {
                let text = "--resize-short, --max-side, --filter, --quality and --restart-markers need --format \
                            with append";
                return Err(Error::Usage(text.to_owned()));
            }
            None => own.transform,
        };
        Ok(self.over(Layout { transform, ..own }))
    }

    /// Whether the user says how images are transformed.
    pub(crate) fn has_format(&self) -> bool {
        self.format.is_some()
    }

    /// Whether the user says in which order samples lie on disk.
    pub(crate) fn has_seed(&self) -> bool {
        self.seed.is_some()
    }

    fn is_about_images(&self) -> bool {
        let has_size = self.resize_short.is_some() || self.max_side.is_some();
        has_size || self.filter.is_some() || self.quality.is_some() || self.restart_markers
    }

    fn over(&self, layout: Layout) -> Layout {
        Layout {
            shard_bytes: self.shard_size.unwrap_or(layout.shard_bytes),
            shuffle: if self.no_shuffle { None } else { self.seed.or(layout.shuffle) },
            compression: self.compress.unwrap_or(layout.compression),
            cls: self.cls || layout.cls,
            ..layout
        }
    }

    fn transform(&self) -> Result<Option<Transform>, Error> {
        let Self { resize_short, max_side, restart_markers, .. } = *self;
        let format = self.format.unwrap_or_default();
        match format {
            Format::Keep if resize_short.is_some() || max_side.is_some() => {
                let text = "resizing means encoding again: add --format jpeg or --format raw";
                return Err(Error::Usage(text.to_owned()));
            }
            Format::Raw if restart_markers => {
                let text = "--restart-markers is for JPEGs: --format raw stores none";
                return Err(Error::Usage(text.to_owned()));
            }
            Format::Keep if !restart_markers => return Ok(None),
            Format::Keep | Format::Jpeg | Format::Raw => {}
        }
        let (filter, quality) = (self.filter.unwrap_or_default(), self.quality.unwrap_or(QUALITY));
        Ok(Some(Transform { format, resize_short, max_side, filter, quality, restart_markers }))
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct JobsArgs {
    /// Compute on this many threads; the result does not depend on it. By default as many as there
    /// are CPUs.
    #[arg(short, long, value_name = "N", default_value_t = cpus(), hide_default_value = true)]
    pub(crate) jobs: NonZeroUsize,
}

fn cpus() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct InFlightArgs {
    /// Read this many source files at a time, 1 to 1024; the result does not depend on it.
    ///
    /// Distant storage answers slowly but many questions at once. Fewer spare a busy server.
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: u16,
}

impl InFlightArgs {
    /// Threads that read.
    pub(crate) fn in_flight(self) -> NonZeroUsize {
        NonZeroUsize::new(self.in_flight.into()).unwrap_or(NonZeroUsize::MIN)
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ThreadsArgs {
    /// Threads that compute.
    #[command(flatten)]
    pub(crate) jobs: JobsArgs,
    /// Threads that read.
    #[command(flatten)]
    in_flight: InFlightArgs,
}

impl ThreadsArgs {
    /// Threads that read. Fewer than compute would leave CPUs idle.
    pub(crate) fn in_flight(self) -> NonZeroUsize {
        self.in_flight.in_flight().max(self.jobs.jobs)
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// How progress is shown on standard error.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    progress: ProgressArg,
    /// Show no progress: --progress none. Errors and the result are still printed.
    #[arg(short, long)]
    quiet: bool,
    /// Print the result as one JSON object on standard output instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ProgressArg {
    /// A bar on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// A line every few seconds.
    Plain,
    /// A JSON object a line, every second.
    Json,
    /// Nothing.
    None,
}

impl OutputArgs {
    pub(crate) fn shown(self) -> Shown {
        match (self.quiet, self.progress) {
            (true, _) | (_, ProgressArg::None) => Shown::Quiet,
            (_, ProgressArg::Plain) => Shown::Lines,
            (_, ProgressArg::Json) => Shown::Json,
            (_, ProgressArg::Auto) if std::io::stderr().is_terminal() => Shown::Bar,
            (_, ProgressArg::Auto) => Shown::Lines,
        }
    }
}

/// What `create` and `append` share.
#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// Source.
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Layout.
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
    /// What happens at a sample that cannot be packed: unreadable, empty, changed meanwhile, not
    /// decodable.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    on_bad: OnBad,
    /// Accept classes without a sample: folders of an ImageFolder without an image, as torchvision
    /// does with allow_empty=True, and with --on-bad skip classes whose samples are all bad.
    ///
    /// They keep their labels. By default such a class ends the run, as often a folder is no class.
    #[arg(long)]
    allow_empty: bool,
    /// Threads.
    #[command(flatten)]
    threads: ThreadsArgs,
    /// Whether the disk confirms.
    #[command(flatten)]
    sync: SyncArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SyncArgs {
    /// Do not wait until the disk confirms what was written.
    ///
    /// Faster, and as safe against a killed process; after a power cut the dataset may be damaged,
    /// which verify finds.
    #[arg(long)]
    no_sync: bool,
}

impl SyncArgs {
    pub(crate) fn sync(self) -> bool {
        !self.no_sync
    }
}

impl PackArgs {
    pub(crate) fn accept(&self) -> Accept {
        Accept { on_bad: self.on_bad, allow_empty: self.allow_empty }
    }

    pub(crate) fn effort(&self) -> Effort {
        let (jobs, in_flight) = (self.threads.jobs.jobs, self.threads.in_flight());
        Effort { jobs, in_flight, sync: self.sync.sync() }
    }
}
