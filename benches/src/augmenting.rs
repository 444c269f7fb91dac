//! CPU time of one thread for operations on a row's pixels, each beside the row without it.

use serde_json::{Value, json};
use shade_formats::index::Media;
use shade_job::{ImageSpec, InTurn, Transform};

use crate::decoding::{Bench, cropped};
use crate::figure::{Figure, Unit};
use crate::images::{IMAGENET, photos};
use crate::result::Result;

const PHOTOS: u64 = 200;
const RUNS: u32 = 5;
const SIDE: u32 = 224;

/// Single operations on rows that are only copied, and a recipe after a crop.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let photos = photos(PHOTOS, &IMAGENET)?;
    // The middle of each photograph as raw pixels, so that nothing is decoded or resized.
    let rows: Vec<Vec<u8>> = photos.iter().map(|photo| raw(photo)).collect::<Result<_>>()?;
    let plain = ImageSpec::cover(SIDE, SIDE);
    let crop = cropped();
    let mut specs = vec![("row, 224 x 224, raw pixels".to_owned(), Media::Ppm, plain.clone())];
    for (name, operation) in operations() {
        let pixels = steps(json!([operation]))?;
        specs.push((format!("the same, {name}"), Media::Ppm, ImageSpec { pixels, ..plain.clone() }));
    }
    specs.push(("row, RandomResizedCrop(224), JPEG 110 KB".to_owned(), Media::Jpeg, crop.clone()));
    let recipe = ImageSpec { pixels: steps(contrastive())?, ..crop };
    specs.push(("the same, contrastive recipe".to_owned(), Media::Jpeg, recipe));
    let mut bench = Bench::new();
    let mut times = vec![Vec::new(); specs.len()];
    for epoch in 0..RUNS {
        for ((_, media, spec), times) in specs.iter().zip(&mut times) {
            let files = if *media == Media::Jpeg { &photos } else { &rows };
            times.push(bench.rows(*media, files, spec, epoch)?);
        }
    }
    Ok(specs.iter().zip(times).map(|((name, ..), runs)| Figure::new(name, Unit::UsPerRecord, runs)).collect())
}

/// One of each kind, in the words of torchvision.
fn operations() -> [(&'static str, Value); 15] {
    let moved = |interpolation: &str| json!({"RandAugment": {"interpolation": interpolation}});
    [
        ("brightness", json!({"ColorJitter": {"brightness": [1.3, 1.3]}})),
        ("contrast", json!({"ColorJitter": {"contrast": [1.3, 1.3]}})),
        ("saturation", json!({"ColorJitter": {"saturation": [1.3, 1.3]}})),
        ("hue", json!({"ColorJitter": {"hue": [0.1, 0.1]}})),
        ("grey", json!({"RandomGrayscale": {"p": 1}})),
        ("blur, 23 taps, sigma 2", json!({"GaussianBlur": {"kernel_size": 23, "sigma": 2}})),
        ("blur, 23 taps, sigma 0.1 to 2", json!({"GaussianBlur": {"kernel_size": 23}})),
        ("Pillow's blur, radius 2", json!({"PillowGaussianBlur": {"radius": 2, "p": 1}})),
        ("solarize", json!({"RandomSolarize": {"threshold": 128, "p": 1}})),
        ("autocontrast", json!({"RandomAutocontrast": {"p": 1}})),
        ("equalize", json!({"RandomEqualize": {"p": 1}})),
        ("sharpness", json!({"RandomAdjustSharpness": {"sharpness_factor": 2, "p": 1}})),
        ("RandAugment, nearest", moved("nearest")),
        ("RandAugment, bilinear", moved("bilinear")),
        ("TrivialAugmentWide", json!({"TrivialAugmentWide": {}})),
    ]
}

/// The recipe of `benches/rivals/kinds.py`.
fn contrastive() -> Value {
    let jitter = json!({"ColorJitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}});
    json!([
        {"RandomApply": {"transforms": [jitter], "p": 0.8}},
        {"RandomGrayscale": {"p": 0.2}},
        {"RandomApply": {"transforms": [{"GaussianBlur": {"kernel_size": 23}}], "p": 0.5}},
        {"RandomSolarize": {"threshold": 128, "p": 0.2}}
    ])
}

fn steps(list: Value) -> Result<Vec<Transform>> {
    let InTurn(transforms) = serde_json::from_value(list)?;
    Ok(transforms)
}

/// The middle of a photograph as a PPM.
fn raw(photo: &[u8]) -> Result<Vec<u8>> {
    let mut ppm = format!("P6\n{SIDE} {SIDE}\n255\n").into_bytes();
    let header = ppm.len();
    ppm.resize(header + 3 * (SIDE * SIDE) as usize, 0);
    let spec = ImageSpec { channels_last: true, ..ImageSpec::cover(SIDE, SIDE) };
    Bench::row(photo, &spec, |at, bytes| {
        let at = header + usize::try_from(at).unwrap_or_default();
        ppm.get_mut(at..).into_iter().flatten().zip(bytes).for_each(|(to, from)| *to = *from);
    })?;
    Ok(ppm)
}
