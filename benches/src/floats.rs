//! CPU time of one thread for rows of floats, beside rows of bytes.

use shade_formats::Dtype;
use shade_formats::index::Media;
use shade_job::{Floats, ImageSpec};

use crate::decoding::{Bench, cropped};
use crate::figure::{Figure, Unit};
use crate::images::{IMAGENET, photos};
use crate::result::Result;

/// Photographs: a batch of them.
const PHOTOS: u64 = 256;
const PIXELS: u64 = 4096;
const PIXELS_SIDE: u32 = 32;
const RUNS: u32 = 15;
/// Budget of a row of floats in the time of the same row of bytes.
const TIMES_MAX: f64 = 1.1;

/// Photographs, and images so small that nothing but the row counts.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let photos = photos(PHOTOS, &IMAGENET)?;
    let pixels: Vec<Vec<u8>> = (0..PIXELS)
        .map(|seed| [b"P6\n32 32\n255\n", [seed.to_le_bytes(); 384].as_flattened()].concat())
        .collect();
    let crop = cropped();
    let last = ImageSpec { channels_last: true, ..cropped() };
    let small = ImageSpec::cover(PIXELS_SIDE, PIXELS_SIDE);
    let sets = [
        ("row, RandomResizedCrop(224), JPEG 110 KB", Media::Jpeg, &photos, crop),
        ("row, the same, channels last", Media::Jpeg, &photos, last),
        ("row, 32 x 32, PPM 3 KB", Media::Ppm, &pixels, small),
    ];
    let mut figures = Vec::new();
    for (name, media, files, spec) in sets {
        figures.extend(of_each_type(name, media, files, &spec)?);
    }
    Ok(figures)
}

/// The rows of each type, by turns, into the memory of a batch.
fn of_each_type(name: &str, media: Media, files: &[Vec<u8>], spec: &ImageSpec) -> Result<Vec<Figure>> {
    let specs = Dtype::ALL.map(|dtype| {
        let floats = Floats { dtype, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
        ImageSpec { floats: (dtype != Dtype::Uint8).then_some(floats), ..spec.clone() }
    });
    let largest = specs.iter().map(ImageSpec::bytes).max().unwrap_or_default();
    let mut bench = Bench::of_batches(files.len() as u64, largest);
    // The first time the memory is found and the buffers grow.
    for spec in &specs {
        bench.rows(media, files, spec, RUNS)?;
    }
    let mut times = [const { Vec::new() }; Dtype::ALL.len()];
    for epoch in 0..RUNS {
        for (times, spec) in times.iter_mut().zip(&specs) {
            times.push(bench.rows(media, files, spec, epoch)?);
        }
    }
    let figures = times
        .into_iter()
        .zip(Dtype::ALL)
        .map(|(times, dtype)| Figure::new(format!("{name}, {}", dtype.as_str()), Unit::UsPerRecord, times));
    let mut figures: Vec<_> = figures.collect();
    if let [bytes, floats @ ..] = figures.as_mut_slice() {
        floats.iter_mut().for_each(|floats| *floats = floats.clone().within(TIMES_MAX, bytes));
    }
    Ok(figures)
}
