//! The command line of `create`, and of `plan`, which does its first half.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use shade_dataset::Address;

use crate::args::{PackArgs, SourceArgs};
use crate::bucket::{is_address, out};
use crate::config::Layout;
use crate::error::Error;
use crate::part::Part;
use crate::publish::check_destination;
use crate::source::Source;

/// What a new dataset is made of.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// What is packed, and how.
    #[command(flatten)]
    pub(crate) pack: PackArgs,
    /// The dataset's directory. It must not exist and must not lie inside SOURCE.
    ///
    /// An address (s3://bucket/prefix, gs://, az://) names a place in an object store where nothing
    /// is. Shards go there as soon as they are complete, the index last: four at a time lie in the
    /// user's cache ($XDG_CACHE_HOME/shade/packing or ~/.cache/shade/packing).
    #[arg(value_parser = out())]
    pub(crate) out: PathBuf,
    /// Make a dataset of each of these folders of SOURCE: OUT/train, OUT/val.
    ///
    /// The datasets' classes are those of all splits together, so that equal labels mean equal
    /// classes. OUT appears when all are complete.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) splits: Vec<String>,
    /// Throw away what earlier runs left unfinished for OUT, and begin anew.
    #[arg(long)]
    pub(crate) restart: bool,
}

/// What shapes the dataset, which `plan` has decided for all parts.
const DECIDED: [&str; 21] = [
    "from",
    "labels",
    "pair",
    "coco",
    "exclude",
    "seed",
    "no_shuffle",
    "shard_size",
    "compress",
    "cls",
    "format",
    "resize_short",
    "max_side",
    "filter",
    "quality",
    "restart_markers",
    "on_bad",
    "allow_empty",
    "splits",
    "restart",
    "dry_run",
];

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The new dataset.
    #[command(flatten)]
    pub(crate) new: NewArgs,
    /// Pack only the shards of part I of N, as `shade-pack plan` has cut them: part 0/4 has the
    /// shards 0, 4, 8 and so on.
    ///
    /// Any machine that sees SOURCE and the folder of OUT may pack any part, at any time, and again
    /// after a kill. The bytes are the same. `shade-pack finish OUT` then makes the dataset.
    /// Options that shape it are those of `plan`. Parts that have no shards are done at once.
    #[arg(long, value_name = "I/N", conflicts_with_all = DECIDED)]
    pub(crate) part: Option<Part>,
    /// Go on where an earlier run of the same command was interrupted. This is the default.
    #[arg(long, overrides_with = "restart")]
    resume: bool,
    /// List and plan only: tell what would be packed, write nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl CreateArgs {
    /// Whether the user says that it should go on.
    pub(super) fn has_resume(&self) -> bool {
        self.resume
    }
}

impl NewArgs {
    /// What is packed and how, if something can be made at OUT.
    pub(crate) fn checked(&self) -> Result<(Source, Layout), Error> {
        check_splits(&self.splits, &self.pack.source)?;
        let (source, layout) = (self.pack.source.source()?, self.pack.layout.for_new()?);
        refuse_inside(&self.out, &source.path)?;
        source.pairs.iter().try_for_each(|pair| refuse_inside(&self.out, &pair.folder))?;
        if !is_address(&self.out) {
            check_destination(&self.out)?;
        }
        Ok((source, layout))
    }
}

/// Refuses splits that are no names of folders, and splits of a source with a file that says what
/// is in one folder.
pub(crate) fn check_splits(splits: &[String], source: &SourceArgs) -> Result<(), Error> {
    let plain = |name: &String| !name.contains('/') && !matches!(name.as_str(), "" | "." | "..");
    match splits.iter().find(|name| !plain(name)) {
        Some(name) => Err(Error::Usage(format!("--splits: '{name}' is not a folder's name"))),
        None if source.coco.is_some() && !splits.is_empty() => {
            let text = "--coco: FILE is of one folder of images, so --splits does not go with it: pack each split by \
                        itself, SOURCE/SPLIT with the FILE of that split";
            Err(Error::Usage(text.to_owned()))
        }
        None => Ok(()),
    }
}

/// A dataset inside its source would be a class of it the next time.
pub(crate) fn refuse_inside(out: &Path, source: &Path) -> Result<(), Error> {
    let refuse = || {
        let text =
            format!("{} lies inside {}: choose a destination outside", out.display(), source.display());
        Err(Error::Usage(text))
    };
    if let (Ok(Address::Url(out)), Ok(Address::Url(source))) =
        (Address::of_path(out), Address::of_path(source))
    {
        let is_inside = out.as_str().strip_prefix(source.as_str()).is_some_and(|rest| rest.starts_with('/'));
        return if is_inside { refuse() } else { Ok(()) };
    }
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Ok(inside)) = (fs::canonicalize(parent), fs::canonicalize(source)) else {
        return Ok(());
    };
    if parent.starts_with(&inside) { refuse() } else { Ok(()) }
}
