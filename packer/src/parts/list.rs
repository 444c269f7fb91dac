//! `list`: a part of the classes, for `plan --listed`.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::args::{InFlightArgs, OutputArgs, SourceArgs, SyncArgs, local};
use crate::catalogue::Bad;
use crate::create::{check_splits, refuse_inside, sources_of};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::part::Part;
use crate::plan_file::{ListedPart, ListedSplit, write_list};
use crate::publish::check_destination;
use crate::report::{Printed, path_as_text};
use crate::workers::Workers;

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The source.
    #[command(flatten)]
    source: SourceArgs,
    /// The dataset's directory, as for `plan`. Lists lie beside it, in OUT.lists.
    #[arg(value_parser = local())]
    out: PathBuf,
    /// List the classes I, I + N, I + 2 N and so on: 0/4 to 3/4 are all.
    #[arg(long, value_name = "I/N")]
    part: Part,
    /// List each of these folders of SOURCE, as for `plan`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    splits: Vec<String>,
    /// Threads that read.
    #[command(flatten)]
    in_flight: InFlightArgs,
    /// Whether the disk confirms.
    #[command(flatten)]
    sync: SyncArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `list` did.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Listing {
    /// The file of the list.
    #[serde(serialize_with = "path_as_text")]
    list: PathBuf,
    /// The part.
    part: Part,
    /// Classes of this part, of all splits.
    classes: usize,
    /// Samples of these classes.
    samples: u64,
    /// What was found and cannot be packed.
    bad: Vec<Bad>,
    /// Wall-clock time.
    seconds: f64,
}

/// Lists a part of the source's classes into a file.
///
/// # Errors
/// The arguments are wrong, the source is no ImageFolder, it cannot be listed, or the file cannot
/// be written. An earlier list of this part is then what it was.
pub(crate) fn list(args: &ListArgs, stop: &Stop) -> Result<Listing, Error> {
    let start = Instant::now();
    check_splits(&args.splits, &args.source)?;
    let source = args.source.source()?;
    source.refuse_bucket("list")?;
    refuse_inside(&args.out, &source.path)?;
    check_destination(&args.out)?;
    let workers = Workers::start(args.in_flight.in_flight())?;
    let mut catalogues = Vec::new();
    let mut listed =
        ListedPart { part: args.part, exclude: source.selection.patterns().to_vec(), splits: Vec::new() };
    for (split, source) in sources_of(&source, &args.splits) {
        let catalogue = source.list_part(args.part, &workers, args.output.shown(), stop)?;
        listed.splits.push(ListedSplit {
            split,
            classes: catalogue.classes.clone(),
            bad: catalogue.bad.clone(),
            lost: catalogue.lost.clone(),
            empty: catalogue.empty.clone(),
            notes: catalogue.notes.clone(),
        });
        catalogues.push(catalogue);
    }
    stop.check()?;
    let list = write_list(&args.out, &listed, &catalogues, args.sync.sync())?;
    let classes =
        |split: &ListedSplit| (0..split.classes.len()).filter(|label| args.part.has(*label)).count();
    Ok(Listing {
        list,
        part: args.part,
        classes: listed.splits.iter().map(classes).sum(),
        samples: catalogues.iter().map(|catalogue| u64::from(catalogue.len())).sum(),
        bad: listed.splits.into_iter().flat_map(|split| split.bad).collect(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

impl Printed for Listing {}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, part, classes, samples, bad, seconds } = self;
        for bad in bad {
            writeln!(f, "cannot be packed: {bad}")?;
        }
        write!(f, "{}: part {part}, {samples} samples of {classes} classes in {seconds:.1} s", list.display())
    }
}
