//! The command line.

mod create;
mod dataset;

use std::io::IsTerminal;
use std::num::NonZeroUsize;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use create::{CreateArgs, FormatArg, ImageArgs, LayoutArgs, SourceArgs};
pub use dataset::{
    AppendArgs, DiffArgs, ExtractArgs, InfoArgs, LsArgs, MergeArgs, NewLayoutArgs, VerifyArgs,
};

use crate::append::append;
use crate::config::Effort;
use crate::create::create;
use crate::diff::diff;
use crate::error::Error;
use crate::extract::extract;
use crate::info::info;
use crate::interrupt::Stop;
use crate::ls::ls;
use crate::merge::merge;
use crate::progress::Shown;
use crate::report::Report;
use crate::verify::verify;

/// Packs images into a shade dataset: tar shards and one index, which shade-load reads.
///
/// A dataset appears whole or not at all. Labels and sample ids are those of torchvision's ImageFolder.
///
/// Exit codes: 0 done, 1 failed (diff: they differ; verify: some of it could not be read), 2 usage
/// (or another command is making or changing the dataset, or OUT is another dataset), 3 the dataset is
/// damaged, 4 done, but samples were left out, 5 done, but files of the source were written to since
/// they were packed, at equal length (diff says whether their bytes differ, unless images were
/// transformed; 5 goes before 4 if both hold), 130 interrupted.
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
    /// Make a dataset from images.
    Create(Box<CreateArgs>),
    /// Tell what a dataset holds; reads its index only.
    Info(InfoArgs),
    /// List samples, one a line; reads the index only.
    Ls(LsArgs),
    /// Re-read a dataset and name every damaged sample; exit code 3 if there is one. Repair it if asked to.
    ///
    /// A shard that the system does not let you read is not called damaged: exit code 1 then.
    Verify(VerifyArgs),
    /// Give the ImageFolder back, byte for byte.
    Extract(ExtractArgs),
    /// Tell what a source and a dataset do not have in common; exit code 1 if there is something.
    Diff(DiffArgs),
    /// Make one dataset of several.
    Merge(MergeArgs),
    /// Add the samples of a source that a dataset does not have yet.
    Append(Box<AppendArgs>),
    /// Print a shell's completion script, for it to load.
    Completions(CompletionsArgs),
}

/// Of `completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// How many threads.
#[derive(Clone, Copy, Debug, Args)]
pub struct JobsArgs {
    /// Compute on this many threads; the result does not depend on it. By default as many as there are CPUs.
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// How much of the machine packing may use.
#[derive(Clone, Copy, Debug, Args)]
pub struct EffortArgs {
    /// Threads.
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Read so many source files at a time, 1 to 1024; the result does not depend on it.
    ///
    /// Distant storage answers slowly but many questions at once. Fewer spare a busy server.
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub in_flight: u16,
    /// Do not wait until the disk confirms what was written.
    ///
    /// Faster, and as safe against a killed process; after a power cut the dataset may be damaged, which verify finds.
    #[arg(long)]
    pub no_sync: bool,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// How progress is shown on standard error.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub progress: ProgressArg,
    /// Show no progress: --progress none. Errors and the result are still printed.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the result as one JSON object on standard output instead of text.
    #[arg(long)]
    pub json: bool,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgressArg {
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

impl JobsArgs {
    fn count(self) -> NonZeroUsize {
        let cpus = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.jobs.unwrap_or_else(cpus)
    }
}

impl EffortArgs {
    fn effort(self) -> Effort {
        let jobs = self.jobs.count();
        let in_flight = NonZeroUsize::new(self.in_flight.into()).unwrap_or(NonZeroUsize::MIN);
        // Fewer readers than computing threads would leave CPUs idle.
        Effort { jobs, in_flight: in_flight.max(jobs), sync: !self.no_sync }
    }
}

impl OutputArgs {
    fn shown(self) -> Shown {
        match (self.quiet, self.progress) {
            (true, _) | (_, ProgressArg::None) => Shown::Quiet,
            (_, ProgressArg::Plain) => Shown::Lines,
            (_, ProgressArg::Json) => Shown::Json,
            (_, ProgressArg::Auto) if std::io::stderr().is_terminal() => Shown::Bar,
            (_, ProgressArg::Auto) => Shown::Lines,
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
            Command::Diff(args) => args.output.json,
            Command::Merge(args) => args.output.json,
            Command::Append(args) => args.output.json,
            Command::Ls(_) => false,
            Command::Completions(_) => false,
        }
    }

    /// Does what was asked.
    ///
    /// # Errors
    /// See the commands' modules.
    pub fn run(self, stop: &Stop) -> Result<Report, Error> {
        match self.command {
            Command::Create(args) => {
                let shown = args.output.shown();
                create(&args.config()?, shown, stop).map(Report::Created)
            }
            Command::Info(args) => info(&args.dataset).map(Box::new).map(Report::Info),
            Command::Ls(args) => ls(&args.dataset, args.config()).map(Report::Listing),
            Command::Verify(args) => {
                verify(&args.dataset, &args.config(), args.output.shown(), stop).map(Report::Verified)
            }
            Command::Diff(args) => {
                let shown = args.output.shown();
                diff(&args.config()?, shown, stop).map(Report::Compared)
            }
            Command::Merge(args) => {
                let shown = args.output.shown();
                merge(&args.config(), shown, stop).map(Report::Merged)
            }
            Command::Append(args) => {
                let shown = args.output.shown();
                append(&args.config()?, shown, stop).map(Report::Appended)
            }
            Command::Extract(args) => {
                let (jobs, shown) = (args.jobs.count(), args.output.shown());
                extract(&args.dataset, &args.out, jobs, shown, stop).map(Report::Extracted)
            }
            Command::Completions(args) => {
                let mut script = Vec::new();
                clap_complete::generate(args.shell, &mut Self::command(), "shade-pack", &mut script);
                Ok(Report::Text(String::from_utf8_lossy(&script).trim_end().to_owned()))
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
