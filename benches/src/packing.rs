//! `shade-pack create`, which flushes to disk, beside `tar cf` of the same tree, flushed and not.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::Result;
use crate::dataset::{Dataset, Datasets};
use crate::figure::{Figure, Unit};
use crate::programs::{Programs, run as run_program};

const RUNS: usize = 3;

/// Files a second.
pub(crate) fn run(datasets: &Datasets) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for dataset in &datasets.all {
        figures.extend(compare(&datasets.programs, dataset, datasets.folder.path())?);
    }
    Ok(figures)
}

fn compare(programs: &Programs, dataset: &Dataset, folder: &Path) -> Result<[Figure; 3]> {
    let (out, archive) = (folder.join("packed-again"), folder.join("tree.tar"));
    let (mut packed, mut flushed, mut unflushed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        packed.push(rate(dataset, || programs.pack(&dataset.source, &out))?);
        fs::remove_dir_all(&out)?;
        for (rates, flush) in [(&mut flushed, true), (&mut unflushed, false)] {
            rates.push(rate(dataset, || tar(&dataset.source, &archive, flush))?);
            fs::remove_file(&archive)?;
        }
    }
    let figure = |name: &str, rates| {
        let name = format!("{name}, {}", dataset.name);
        Figure::new(name, Unit::FilesPerSecond, rates).of_bytes(dataset.mean_bytes())
    };
    let flushed = figure("tar cf and fsync", flushed);
    Ok([figure("shade-pack create", packed).beside(&flushed), flushed, figure("tar cf", unflushed)])
}

/// Files a second, with nothing of what went before still on its way to the disk.
fn rate(dataset: &Dataset, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    rustix::fs::sync();
    let started = Instant::now();
    work()?;
    Ok(f64::from(dataset.files) / started.elapsed().as_secs_f64())
}

fn tar(source: &Path, archive: &Path, flush: bool) -> Result<()> {
    run_program(Command::new("tar").arg("cf").arg(archive).arg("-C").arg(source).arg("."))?;
    if flush {
        File::open(archive)?.sync_all()?;
    }
    Ok(())
}
