//! The command line.

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{Compression, CreateConfig, parse_shard_size};
use crate::create::create;
use crate::error::Error;
use crate::extract::extract;
use crate::info::info;
use crate::interrupt::Stop;
use crate::progress::Shown;
use crate::report::Report;
use crate::verify::verify;

/// Packs an ImageFolder into a shade dataset: tar shards and one index, which shade-load reads.
///
/// A dataset appears whole or not at all. Labels and sample ids are those of torchvision's ImageFolder.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 3 the dataset is damaged, 4 done in part, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "shade-pack", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a dataset from an ImageFolder.
    Create(CreateArgs),
    /// Tell what a dataset holds; reads its index only.
    Info(InfoArgs),
    /// Re-read a dataset and name every damaged sample; exit code 3 if there is one.
    Verify(VerifyArgs),
    /// Give the ImageFolder back, byte for byte.
    Extract(ExtractArgs),
}

/// Of `create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The ImageFolder: one directory per class, images below. It is only read.
    pub source: PathBuf,
    /// The dataset's directory. It must not exist and must not lie inside SOURCE.
    pub out: PathBuf,
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
    /// Takes IEC and SI units: 512MiB, 1GiB, 2GB; from 4KiB to 2TiB. Make it smaller when the dataset has fewer shards
    /// than the machine that packs or verifies has cores; larger when the file system dislikes many files.
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_shard_size)]
    pub shard_size: u64,
    /// Compress records: none, zstd, or zstd:LEVEL with a level from 1 to 22.
    ///
    /// A record is stored compressed only if that saves 5 % of it; JPEG and WebP never are. Plain zstd means level 3.
    /// Worth it for BMP, PPM and uncompressed TIFF; PNG and JPEG gain nothing. Trainers pay with time to decompress.
    #[arg(long, value_name = "HOW", default_value = "none")]
    pub compress: Compression,
    /// Threads.
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Of `info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The dataset's directory.
    pub dataset: PathBuf,
    /// Print one JSON object instead of text, with all classes.
    #[arg(long)]
    pub json: bool,
}

/// Of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The dataset's directory.
    pub dataset: PathBuf,
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
    /// The ImageFolder's directory. It must not exist.
    pub out: PathBuf,
    /// Threads.
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How many threads.
#[derive(Clone, Copy, Debug, Args)]
pub struct JobsArgs {
    /// Work on this many shards at a time; the result does not depend on it.
    ///
    /// By default as many as there are CPUs. More can help when files lie on a slow network file system; fewer leaves
    /// CPUs to others. Each takes about twice the largest image in memory.
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// Show no progress. Errors and the result are still printed.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the result as one JSON object on standard output instead of text.
    #[arg(long)]
    pub json: bool,
}

impl JobsArgs {
    fn count(self) -> NonZeroUsize {
        let cpus = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.jobs.unwrap_or_else(cpus)
    }
}

impl OutputArgs {
    fn shown(self) -> Shown {
        match (self.quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Quiet,
            (false, true) => Shown::Bar,
            (false, false) => Shown::Lines,
        }
    }
}

impl Cli {
    /// Whether the result is wanted as JSON.
    #[must_use]
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Create(args) => args.output.json,
            Command::Info(args) => args.json,
            Command::Verify(args) => args.output.json,
            Command::Extract(args) => args.output.json,
        }
    }

    /// Does what was asked.
    ///
    /// # Errors
    /// See the commands' modules.
    pub fn run(self, stop: &Stop) -> Result<Report, Error> {
        match self.command {
            Command::Create(args) => {
                let config = CreateConfig {
                    source: args.source,
                    out: args.out,
                    shard_bytes: args.shard_size,
                    shuffle: (!args.no_shuffle).then_some(args.seed),
                    compression: args.compress,
                    jobs: args.jobs.count(),
                };
                create(&config, args.output.shown(), stop).map(Report::Created)
            }
            Command::Info(args) => info(&args.dataset).map(Box::new).map(Report::Info),
            Command::Verify(args) => {
                verify(&args.dataset, args.jobs.count(), args.output.shown(), stop).map(Report::Verified)
            }
            Command::Extract(args) => {
                let (jobs, shown) = (args.jobs.count(), args.output.shown());
                extract(&args.dataset, &args.out, jobs, shown, stop).map(Report::Extracted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
