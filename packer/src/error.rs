//! What can go wrong, with the path where it did, and the exit code that tells a script which kind
//! it was.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use shade_dataset::{DatasetError, ReadFault, StoreFault};
use shade_formats::FormatError;
use shade_formats::printable::OneLine;

use crate::catalogue::Bad;
use crate::part::Part;

/// Bad samples that an error names.
const NAMED_MAX: usize = 20;

/// Something went wrong while running a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something impossible; nothing was touched.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", OneLine(path.display()))]
    Io {
        /// What was tried: "read", "create", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
    /// An object store refused.
    #[error("cannot {action} {}: {}", OneLine(url), OneLine(fault))]
    Store {
        /// What was tried: "read", "write", ...
        action: &'static str,
        /// The object, or the prefix.
        url: String,
        /// The refusal.
        fault: StoreFault,
    },
    /// A folder or file of the source cannot be packed.
    #[error("{}: {}", OneLine(path.display()), OneLine(fault))]
    Source {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// A sample cannot be packed, and the command does not leave such samples out.
    #[error("{first}{}\n--on-bad skip leaves such samples out, --on-bad list names all", and_more(*more))]
    Bad {
        /// The first one.
        first: Bad,
        /// How many more are known.
        more: usize,
    },
    /// A sample of a plan cannot be packed.
    #[error(
        "{first}{}\nthe plan is of SOURCE as it was listed: `shade-pack plan SOURCE OUT --restart` plans what is there \
         now, with --on-bad skip or list if such samples stay",
        and_more(*more)
    )]
    BadInPart {
        /// The first one.
        first: Bad,
        /// How many more are known.
        more: usize,
    },
    /// `--on-bad list` found samples that cannot be packed.
    #[error("{}\n{} samples cannot be packed; no dataset was made", lines(bad), bad.len())]
    AllBad {
        /// All of them.
        bad: Vec<Bad>,
    },
    /// Labels would change their numbers.
    #[error("{relabelled}\n{remedy}")]
    Relabels {
        /// Which ones, of each dataset or source in a line.
        relabelled: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Shards that a dataset has lost would become others.
    #[error("{}\n{} missing shards cannot be made again from this source, {made} were", lines(shards), shards.len())]
    NotMadeAgain {
        /// Their files, and why.
        shards: Vec<Bad>,
        /// How many others were made again.
        made: usize,
    },
    /// Too little is left once bad samples are left out.
    #[error("{}{fault}", first_lines(bad))]
    NothingLeft {
        /// What was left out.
        bad: Vec<Bad>,
        /// How many samples are left.
        samples: u32,
        /// What is missing now.
        fault: String,
    },
    /// The dataset cannot be opened.
    #[error("{}", OneLine(.0))]
    Dataset(#[from] DatasetError),
    /// A shard cannot be opened, or not be read for now.
    #[error("{}", OneLine(.0))]
    Shard(#[from] ReadFault),
    /// The dataset is not what was once written.
    #[error("{} is damaged: {}", OneLine(path.display()), OneLine(fault))]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong, and where.
        fault: String,
    },
    /// The dataset's parts do not fit the format's limits.
    #[error("cannot index {}: {source}", OneLine(path.display()))]
    Index {
        /// The dataset.
        path: PathBuf,
        /// The limit.
        source: FormatError,
    },
    /// The worker threads cannot be started.
    #[error("cannot start {threads} worker threads: {source}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why not.
        source: rayon::ThreadPoolBuildError,
    },
    /// The compressor cannot be set up.
    #[error("cannot prepare zstd: {source}")]
    Zstd {
        /// Why not.
        source: io::Error,
    },
    /// A panic of this program.
    #[error("a defect of shade-pack, please report it: {0}")]
    Defect(String),
    /// Parts that others make are not there yet.
    #[error("{0}")]
    MissingParts(String),
    /// Ctrl-C, or a signal to terminate.
    #[error("interrupted")]
    Interrupted,
    /// A part ended early, and what it has finished stays.
    #[error(
        "{source}\n{done} of {shards} shards of part {part} are complete: the same command goes on from there"
    )]
    PartUnfinished {
        /// Why it ended.
        source: Box<Error>,
        /// Which one.
        part: Part,
        /// Number of its complete shards.
        done: usize,
        /// Number of all its shards.
        shards: usize,
    },
    /// A pack ended early, and what it has finished is kept.
    #[error(
        "{source}\n{shards} complete shards are kept in {}: the same command goes on from there, --restart begins anew",
        partial.display()
    )]
    Unfinished {
        /// Why it ended.
        source: Box<Error>,
        /// The folder with what is complete, or the address.
        partial: PathBuf,
        /// Number of complete shards.
        shards: usize,
    },
}

impl Error {
    /// 1 the run failed, 2 usage, 3 the dataset is damaged, 5 parts are missing, 130 interrupted.
    /// (0 is success, 4 and 5 success in part.)
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Dataset(error) if error.is_damage() => 3,
            Self::Io { .. }
            | Self::Store { .. }
            | Self::Source { .. }
            | Self::Dataset(_)
            | Self::Shard(_)
            | Self::Bad { .. }
            | Self::BadInPart { .. }
            | Self::AllBad { .. }
            | Self::Relabels { .. }
            | Self::NothingLeft { .. }
            | Self::Index { .. }
            | Self::Threads { .. }
            | Self::Defect(_)
            | Self::Zstd { .. } => 1,
            Self::Usage(_) => 2,
            Self::Damaged { .. } | Self::NotMadeAgain { .. } => 3,
            Self::Interrupted => 130,
            Self::MissingParts(_) => 5,
            Self::PartUnfinished { source, .. } | Self::Unfinished { source, .. } => source.exit_code(),
        }
    }

    /// The source, or a part of it, at `path` cannot be packed.
    pub(crate) fn source(path: &Path, fault: impl Display) -> Self {
        Self::Source { path: path.to_owned(), fault: fault.to_string() }
    }

    /// For `map_err` behind a system call: "cannot `action` `path`".
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!("\n... and {more} more") }
}

fn lines(bad: &[Bad]) -> String {
    bad.iter().map(Bad::to_string).collect::<Vec<_>>().join("\n")
}

/// The first ones, a line each.
fn first_lines(bad: &[Bad]) -> String {
    let mut text: String = bad.iter().take(NAMED_MAX).map(|bad| format!("left out {bad}\n")).collect();
    if bad.len() > NAMED_MAX {
        text += &format!("... and {} more\n", bad.len() - NAMED_MAX);
    }
    text
}
