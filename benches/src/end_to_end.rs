//! Epochs through a real daemon, all hits and all misses, beside the bare work in the same round.

use shade_client::Decode;

use crate::daemon::{Cache, Rank};
use crate::dataset::{Dataset, datasets};
use crate::figure::{Figure, Unit};
use crate::programs::Programs;
use crate::result::Result;
use crate::rivals::Rival;
use crate::scratch::Scratch;

const RUNS: usize = 3;

/// Samples a second for every kind of image, output and cache.
pub(crate) fn run(scratch: &Scratch, photos: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for dataset in &datasets(scratch, photos)? {
        for decode in [Decode::Raw, Decode::cover(dataset.side, dataset.side)] {
            figures.extend(compare(&scratch.programs, dataset, &decode)?);
        }
    }
    Ok(figures)
}

fn compare(programs: &Programs, dataset: &Dataset, decode: &Decode) -> Result<[Figure; 3]> {
    let mut resident = Rank::start(programs, dataset, decode.clone(), Cache::Whole)?;
    let mut uncached = Rank::start(programs, dataset, decode.clone(), Cache::None)?;
    let mut rival = Rival::new(dataset, decode)?;
    rival.run()?;
    let (mut hits, mut misses, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        hits.push(resident.epoch()?);
        misses.push(uncached.epoch()?);
        alone.push(rival.run()?);
    }
    let figure = |name: String, runs| {
        Figure::new(name, Unit::SamplesPerSecond, runs).of_bytes(dataset.tree.mean_bytes())
    };
    let side = dataset.side;
    let kind = if *decode == Decode::Raw { "raw".to_owned() } else { format!("decoded {side}x{side}") };
    let alone = figure(rival.name(dataset), alone);
    Ok([
        figure(format!("serve {kind}, hits, {}", dataset.tree.name), hits).beside(&alone),
        figure(format!("serve {kind}, misses, {}", dataset.tree.name), misses).beside(&alone),
        alone,
    ])
}
