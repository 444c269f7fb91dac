//! The command line of `index`.

use std::path::PathBuf;

use clap::Args;

use crate::args::{OutputArgs, SourceArgs, ThreadsArgs};
use crate::bucket::out;
use crate::config::{Accept, OnBad};

#[derive(Debug, Args)]
pub(crate) struct IndexArgs {
    /// Source.
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// The folder of the index, or an address for a SOURCE that has one, too.
    ///
    /// It must not lie inside SOURCE, nor exist without --update.
    #[arg(value_parser = out())]
    pub(crate) out: PathBuf,
    /// Read every file whole and keep its checksum.
    ///
    /// By default the beginnings of images are read: their kind and their size. Trainers then find
    /// a damaged byte only if the image cannot be decoded. A file that was written to is found by
    /// its length and its time in any case.
    #[arg(long)]
    pub(crate) checksums: bool,
    /// Where OUT is such an index already, make it again only if SOURCE has changed: one of its
    /// folders or tars was changed, anything below its address in a bucket, or the options are
    /// others.
    #[arg(long)]
    pub(crate) update: bool,
    /// What happens at a file that cannot be a sample: unreadable, empty, changed meanwhile.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    on_bad: OnBad,
    /// Accept classes without a sample; they keep their labels.
    #[arg(long)]
    allow_empty: bool,
    /// Do not measure what packing would gain on this store.
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Threads.
    #[command(flatten)]
    pub(crate) threads: ThreadsArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl IndexArgs {
    pub(crate) fn accept(&self) -> Accept {
        Accept { on_bad: self.on_bad, allow_empty: self.allow_empty }
    }
}
