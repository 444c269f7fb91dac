//! The command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::append::{AppendArgs, append};
use crate::create::{CreateArgs, create, create_from_stream};
use crate::diff::{DiffArgs, diff};
use crate::error::Error;
use crate::extract::{ExtractArgs, extract};
use crate::index::{IndexArgs, index};
use crate::info::info;
use crate::interrupt::Stop;
use crate::ls::{LsArgs, ls};
use crate::merge::{MergeArgs, merge};
use crate::parts::{FinishArgs, ListArgs, PlanArgs, create_part, finish, list, plan};
use crate::report::Outcome;
use crate::subset::{RelabelArgs, SubsetArgs, relabel, subset};
use crate::verify::{VerifyArgs, verify};

/// Packs images into a shade dataset: tar shards and one index, which shade-load reads.
///
/// A dataset appears whole or not at all. Labels and sample ids are those of torchvision's
/// ImageFolder.
///
/// Exit codes: 0 done, 1 failed (diff: they differ; verify: some of it could not be read), 2 usage
/// (or another command is making or changing the dataset, or OUT is another dataset), 3 the dataset
/// is damaged, 4 done, but samples were left out, 5 done, but files of the source were written to
/// since they were packed, at equal length (diff says whether their bytes differ, unless images
/// were transformed; 5 goes before 4 if both hold), or finish and plan --listed: parts are missing,
/// 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "shade-pack", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

const SUBSET_EXAMPLES: &str = "Examples:
  shade-pack subset photos.shade tenth.shade --fraction 0.1 --per-class
  shade-pack subset photos.shade pets.shade --class cat --class dog
  shade-pack ls photos.shade | grep night | cut -f1 | shade-pack subset photos.shade night.shade --ids -";

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a dataset from images.
    ///
    /// Where OUT is a finished dataset, shards that are missing in it are made again, if SOURCE
    /// still gives the very bytes that they had.
    Create(Box<CreateArgs>),
    /// For many machines: list a part of an ImageFolder's classes. Optional, for sources whose
    /// listing takes long.
    List(ListArgs),
    /// For many machines: list SOURCE, decide what goes into which shard, and leave it in a file
    /// for `create --part`.
    Plan(Box<PlanArgs>),
    /// For many machines: make the dataset of the shards that all parts have packed.
    ///
    /// Exit code 5 if shards are missing: the report names them and their parts.
    Finish(FinishArgs),
    /// Make an index of images that stay where they are: nothing is packed.
    ///
    /// Everything reads it as it reads a dataset, from the files of an ImageFolder or out of
    /// WebDataset tars, on disk or in a bucket (s3://bucket/tars). A file that was written to since
    /// is refused when it is opened. Packed images train faster where opening files is slow: the
    /// result says what that is here, unless they are in a bucket.
    Index(Box<IndexArgs>),
    /// Tell what a dataset holds; reads its index only.
    Info(InfoArgs),
    /// List samples, one a line; reads the index only.
    Ls(LsArgs),
    /// Re-read a dataset and name every damaged sample; exit code 3 if there is one.
    ///
    /// A damaged shard is made again by `create`, once its file is removed. A shard that the system
    /// does not let you read is not called damaged: exit code 1 then.
    Verify(VerifyArgs),
    /// Give the ImageFolder back, byte for byte.
    Extract(ExtractArgs),
    /// Tell what a source and a dataset do not have in common; exit code 1 if there is something.
    Diff(DiffArgs),
    /// Make one dataset of several.
    Merge(MergeArgs),
    /// Make a dataset of some samples of another one, without copying a byte.
    ///
    /// Samples keep their order and their labels, and get new ids from 0 on; all classes stay. The
    /// new dataset is one like any other: train on it, list, verify, extract and merge it.
    ///
    /// To train on some samples without a second dataset, give Plan(indices=...) to the Loader.
    #[command(after_help = SUBSET_EXAMPLES)]
    Subset(Box<SubsetArgs>),
    /// Give a dataset's samples other labels, without copying a byte.
    ///
    /// The new dataset has the same shards, and an index of its own. Ids and paths stay.
    Relabel(Box<RelabelArgs>),
    /// Add the samples of a source that a dataset does not have yet.
    Append(Box<AppendArgs>),
    /// Print a shell's completion script, for it to load.
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
struct InfoArgs {
    /// The dataset's directory, or its address: s3://bucket/prefix.
    dataset: PathBuf,
    /// Print one JSON object instead of text, with all classes.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

impl Cli {
    /// Does what was asked. Says whether the result is wanted as JSON, and gives the result.
    ///
    /// # Errors
    /// See the commands' modules.
    pub fn run(self, stop: &Stop) -> Result<(bool, Box<dyn Outcome>), Error> {
        Ok(match self.command {
            Command::Create(args) => (args.new.pack.output.json, created(&args, stop)?),
            Command::List(args) => (args.output.json, Box::new(list(&args, stop)?)),
            Command::Plan(args) => (args.new.pack.output.json, Box::new(plan(&args, stop)?)),
            Command::Finish(args) => (args.output.json, Box::new(finish(&args, stop)?)),
            Command::Index(args) => (args.output.json, Box::new(index(&args, stop)?)),
            Command::Info(args) => (args.json, Box::new(info(&args.dataset)?)),
            Command::Ls(args) => (args.json, Box::new(ls(args)?)),
            Command::Verify(args) => (args.output.json, Box::new(verify(&args, stop)?)),
            Command::Extract(args) => (args.output.json, Box::new(extract(&args, stop)?)),
            Command::Diff(args) => (args.output.json, Box::new(diff(&args, stop)?)),
            Command::Merge(args) => (args.output.json, Box::new(merge(&args, stop)?)),
            Command::Subset(args) => (args.new.output.json, Box::new(subset(&args, stop)?)),
            Command::Relabel(args) => (args.new.output.json, Box::new(relabel(&args, stop)?)),
            Command::Append(args) => (args.pack.output.json, Box::new(append(&args, stop)?)),
            Command::Completions(args) => (false, Box::new(completions(args.shell))),
        })
    }
}

/// The whole dataset, or one part of it.
fn created(args: &CreateArgs, stop: &Stop) -> Result<Box<dyn Outcome>, Error> {
    if args.new.pack.source.is_stream() {
        return Ok(Box::new(create_from_stream(args, stop)?));
    }
    Ok(match args.part {
        None => Box::new(create(args, stop)?),
        Some(part) => Box::new(create_part(args, part, stop)?),
    })
}

struct Script(Vec<u8>);

fn completions(shell: Shell) -> Script {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "shade-pack", &mut script);
    Script(script)
}

impl Outcome for Script {
    fn write(&self, _: bool, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        out.write_all(&self.0)?;
        out.flush()
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
