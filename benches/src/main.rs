//! Measures shade beside its alternatives in the same run. README.md says what each row means.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program whose output is a table")]

mod augmenting;
mod bucket_server;
mod buckets;
mod cache_policies;
mod cache_rivals;
mod coalesce;
mod core_step;
mod cpu_time;
mod daemon;
mod dataset;
mod decoding;
mod drawing;
mod end_to_end;
mod equal;
mod far_away;
mod figure;
mod floats;
mod gather;
mod images;
mod job;
mod local_reads;
mod machine;
mod packing;
mod programs;
mod report;
mod result;
mod ring;
mod rivals;
mod scores;
mod scratch;
mod silence;
mod stats;
mod synthetic;
mod tier;
mod tier_killed;
mod training;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::figure::Figure;
use crate::report::Report;
use crate::result::Result;
use crate::scratch::Scratch;

/// Runs the benches and prints a table.
///
/// Needs the release builds of shade-load and shade-pack beside it, which `make bench` makes.
#[derive(Debug, Parser)]
#[command(max_term_width = 110)]
struct Args {
    /// Write the results to this file, too, as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the JPEGs that `pack` packs below this folder, and end: for the rivals in Python.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["out", "names"])]
    images: Option<PathBuf>,
    /// How many of them.
    #[arg(long, value_name = "N", default_value_t = packing::PHOTOS, requires = "images")]
    files: u32,
    /// Photos that `serve` serves. Most of the default are in flight at a time, which makes many of
    /// them neighbours.
    #[arg(long, value_name = "N", default_value_t = dataset::PHOTOS)]
    photos: u32,
    /// Which benches to run. Default: all but plan-large and silence.
    #[arg(value_name = "NAME", value_enum)]
    names: Vec<Name>,
}

/// The benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Time inside the core per record, and of its figures.
    Core,
    /// Time per access to the cache under each policy, and beside other caches.
    Cache,
    /// Drawing the plan of an epoch, and telling other nodes of it.
    Plan,
    /// The same for 100 million samples, and the core's figures: three minutes, 8 GB of memory.
    PlanLarge,
    /// Reading neighbours together, simulated.
    Coalesce,
    /// Copying records from the cache into a ring.
    Gather,
    /// Decoding an image to a row of a batch, beside the decoder alone.
    Decode,
    /// Rows of floats, beside rows of bytes.
    Floats,
    /// Operations on a row's pixels, and a recipe of several beside its crop alone.
    Augment,
    /// From publishing a batch to the trainer's view of it.
    Ring,
    /// Packing beside tar.
    Pack,
    /// Packing beside tar, from a store where every operation takes 2 ms. Needs /dev/fuse.
    Far,
    /// Random records from the local disk, beside fio. Needs fio.
    Reads,
    /// Random records from a bucket whose requests take 30 ms, beside bare requests.
    Bucket,
    /// A whole epoch through a daemon, beside the bare decoder and bare reads.
    Serve,
    /// How long the daemon's main thread serves nobody, with 1.28 million samples: minutes.
    Silence,
    /// Records out of Valkey and Redis, beside a store of 2 ms. Needs one of them.
    Tier,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Some(folder) = &args.images {
        return packing::photo_tree(folder, args.files).map(drop);
    }
    let mut report = Report::start();
    if report.is_busy() {
        eprintln!("warning: {}", report.busy_text());
    }
    let all = Name::value_variants();
    let names: Vec<Name> = match args.names.as_slice() {
        [] => all.iter().copied().filter(|name| !matches!(name, Name::PlanLarge | Name::Silence)).collect(),
        names => names.to_vec(),
    };
    let needs_files = names.iter().any(|name| {
        use Name::{Bucket, Far, Pack, Reads, Serve, Silence, Tier};
        matches!(name, Pack | Far | Reads | Bucket | Serve | Silence | Tier)
    });
    let scratch = if needs_files { Some(Scratch::create()?) } else { None };
    for &name in all.iter().filter(|name| names.contains(name)) {
        eprintln!("{name:?} ...");
        report.rows.extend(bench(name, scratch.as_ref(), args.photos)?);
    }
    report.finish();
    print!("{}", report.table());
    if let Some(path) = &args.out {
        std::fs::write(path, report.json()?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn bench(name: Name, scratch: Option<&Scratch>, photos: u32) -> Result<Vec<Figure>> {
    match (name, scratch) {
        (Name::Core, _) => {
            Ok([core_step::run()?, stats::run(drawing::SAMPLES, 10 * drawing::SAMPLES)?].concat())
        }
        (Name::Cache, _) => Ok([cache_policies::run()?, cache_rivals::run()?].concat()),
        (Name::Plan, _) => Ok([drawing::run(), scores::run(drawing::SAMPLES, 5)?].concat()),
        (Name::PlanLarge, _) => {
            let stats = stats::run(drawing::SAMPLES, drawing::SAMPLES_LARGE)?;
            Ok([drawing::run_large(), scores::run(drawing::SAMPLES_LARGE, 2)?, stats].concat())
        }
        (Name::Coalesce, _) => coalesce::run(),
        (Name::Gather, _) => gather::run(),
        (Name::Decode, _) => decoding::run(),
        (Name::Floats, _) => floats::run(),
        (Name::Augment, _) => augmenting::run(),
        (Name::Ring, _) => ring::run(),
        (Name::Pack, Some(scratch)) => packing::run(scratch),
        (Name::Far, Some(scratch)) => far_away::run(scratch),
        (Name::Reads, Some(scratch)) => local_reads::run(scratch),
        (Name::Bucket, Some(scratch)) => buckets::run(scratch),
        (Name::Serve, Some(scratch)) => end_to_end::run(scratch, photos),
        (Name::Silence, Some(scratch)) => silence::run(scratch, silence::SAMPLES),
        (Name::Tier, Some(scratch)) => {
            // What is made for the tests of a tier goes there, too, and is removed on Ctrl-C.
            let _ = tempfile::env::override_temp_dir(scratch.folder());
            tier::run(&tier::FULL)
        }
        (
            Name::Pack | Name::Far | Name::Reads | Name::Bucket | Name::Serve | Name::Silence | Name::Tier,
            None,
        ) => Ok(Vec::new()),
    }
}
