//! `shade-pack create` beside `tar cf` of a tree in the page cache, with and without fsync.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use crate::figure::{Figure, Unit};
use crate::images::{IMAGENET, photos, thumbnail};
use crate::programs::{Programs, run as run_program, tar};
use crate::result::Result;
use crate::scratch::Scratch;
use crate::tree::Tree;

const RUNS: usize = 5;
pub(crate) const PHOTOS: u32 = 4_000;
/// Each occurs eight times among the files, which neither program looks for.
const DIFFERENT_PHOTOS: u64 = 500;
const THUMBNAILS: u32 = 50_000;
/// Threads of `shade-pack`, the same on every machine, so that runs can be compared.
const JOBS: &str = "2";

/// Files a second.
pub(crate) fn run(scratch: &Scratch) -> Result<Vec<Figure>> {
    let mut figures = compare(scratch, &photo_tree(scratch.folder(), PHOTOS)?)?;
    let thumbnails =
        Tree::write("PNG 2 KB", scratch.folder(), THUMBNAILS, |number| thumbnail(number.into()))?;
    figures.extend(compare(scratch, &thumbnails)?);
    Ok(figures)
}

/// A small ImageNet.
pub(crate) fn photo_tree(folder: &Path, files: u32) -> Result<Tree> {
    Tree::repeat("JPEG 110 KB", folder, files, &photos(DIFFERENT_PHOTOS, &IMAGENET)?)
}

/// One program, with or without waiting for the disk.
#[derive(Clone, Copy, Debug)]
enum Packer {
    Shade { flush: bool },
    Tar { flush: bool },
}

impl Packer {
    fn name(self) -> &'static str {
        match self {
            Self::Shade { flush: true } => "shade-pack create",
            Self::Shade { flush: false } => "shade-pack create --no-sync",
            Self::Tar { flush: true } => "tar cf and fsync",
            Self::Tar { flush: false } => "tar cf",
        }
    }

    fn pack(self, programs: &Programs, source: &Path, out: &Path) -> Result<()> {
        match self {
            Self::Shade { flush } => {
                let mut command = programs.create(source, out);
                command.args(["--jobs", JOBS]).args((!flush).then_some("--no-sync"));
                run_program(&mut command)
            }
            Self::Tar { flush } => {
                run_program(&mut tar(source, out))?;
                if flush {
                    File::open(out)?.sync_all()?;
                }
                Ok(())
            }
        }
    }
}

fn compare(scratch: &Scratch, tree: &Tree) -> Result<Vec<Figure>> {
    let programs = &scratch.programs;
    let packers = [false, true].map(|flush| [Packer::Shade { flush }, Packer::Tar { flush }]).concat();
    let mut rates = vec![Vec::new(); packers.len()];
    for _ in 0..RUNS {
        for (packer, rates) in packers.iter().zip(&mut rates) {
            rates.push(rate(*packer, programs, tree, scratch.folder())?);
        }
    }
    let figure = |(packer, rates): (&Packer, _)| {
        let name = format!("{}, {}", packer.name(), tree.name);
        Figure::new(name, Unit::FilesPerSecond, rates).of_bytes(tree.mean_bytes())
    };
    let figures: Vec<Figure> = packers.iter().zip(rates).map(figure).collect();
    // Each of ours comes before the tar that does the same.
    let beside = |(at, figure): (usize, &Figure)| match figures.get(at + 1) {
        Some(rival) if at % 2 == 0 => figure.clone().beside(rival),
        _ => figure.clone(),
    };
    Ok(figures.iter().enumerate().map(beside).collect())
}

/// Files a second. Earlier writes have reached the disk before.
fn rate(packer: Packer, programs: &Programs, tree: &Tree, folder: &Path) -> Result<f64> {
    let out = folder.join("out");
    rustix::fs::sync();
    let started = Instant::now();
    packer.pack(programs, &tree.source, &out)?;
    let rate = f64::from(tree.files) / started.elapsed().as_secs_f64();
    match packer {
        Packer::Shade { .. } => fs::remove_dir_all(&out)?,
        Packer::Tar { .. } => fs::remove_file(&out)?,
    }
    Ok(rate)
}
