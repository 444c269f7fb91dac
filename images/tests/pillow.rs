//! Decoded, turned, resized and encoded pixels are Pillow's. `data/make.py` makes the references in
//! `data/`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it measured"
)]

use std::path::PathBuf;

use shade_formats::index::Media;
use shade_images::{Decoder, Filter, Image, ImageFault, Orientation, Size, orientation};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn file(name: &str) -> Vec<u8> {
    let path = data().join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decode(name: &str) -> Image {
    Decoder::new().decode(&file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Largest and mean difference of `found` and the reference.
fn difference(found: &[u8], reference: &str) -> (u8, f64) {
    let expected = file(reference);
    assert_eq!(found.len(), expected.len(), "{reference}");
    let differences: Vec<u8> = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).collect();
    let sum: f64 = differences.iter().map(|&d| f64::from(d)).sum();
    let (largest, mean) = (*differences.iter().max().unwrap(), sum / differences.len() as f64);
    println!("{reference}: at most {largest}, on average {mean:.4}");
    (largest, mean)
}

/// Compares every image of these kinds that has a reference, up to a largest difference.
fn all_decode(extensions: &[&str], allowed: impl Fn(&str) -> u8) {
    let mut names: Vec<String> =
        data().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut wrong = Vec::new();
    let mut count = 0;
    for reference in &names {
        let Some(name) = reference.strip_suffix(".rgb") else { continue };
        if !extensions.iter().any(|extension| name.ends_with(extension)) {
            continue;
        }
        count += 1;
        match Decoder::new().decode(&file(name)) {
            Ok(image) => {
                let found = difference(image.rgb(), reference);
                if found.0 > allowed(name) {
                    wrong.push(format!("{name}: {found:?}"));
                }
            }
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(count > 4, "{extensions:?}: {count} references");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn png_is_exactly_what_pillow_gives() {
    all_decode(&[".png"], |_| 0);
}

#[test]
fn netpbm_is_exactly_what_pillow_gives() {
    all_decode(&[".ppm", ".pgm"], |_| 0);
}

#[test]
fn tiff_is_exactly_what_pillow_gives() {
    all_decode(&[".tif"], |_| 0);
}

#[test]
fn bmp_is_exactly_what_pillow_gives() {
    all_decode(&[".bmp"], |_| 0);
}

#[test]
fn jpeg_is_what_pillow_gives_to_within_one_step() {
    all_decode(&[".jpg"], |_| 1);
}

#[test]
fn webp_is_what_pillow_gives_to_within_one_step_where_it_is_lossy() {
    all_decode(&[".webp"], |name| u8::from(name.starts_with("lossy")));
}

#[test]
fn what_cannot_be_decoded_says_so() {
    let found = Decoder::new().decode(&file("unsupported_palette.tif"));
    assert!(
        matches!(&found, Err(ImageFault::Unsupported { media: Media::Tiff, detail }) if detail.contains("palette")),
        "{found:?}"
    );
    let found = Decoder::new().decode(b"GIF89a\x01\0\x01\0");
    assert!(matches!(found, Err(ImageFault::NoDecoder { kind: "GIF" })), "{found:?}");
    let found = Decoder::new().decode(b"");
    assert!(matches!(found, Err(ImageFault::NoImage { .. })), "{found:?}");
}

#[test]
fn each_orientation_is_turned_as_exif_transpose_does() {
    for value in 1..=8_u32 {
        let name = format!("turned{value}.png");
        let found = orientation(&file(&name));
        assert_eq!(found as u32, value);
        let image = decode(&name).oriented(found);
        let size = if value < 5 { (13, 9) } else { (9, 13) };
        assert_eq!((image.size().width, image.size().height), size);
        assert_eq!(difference(image.rgb(), &format!("{name}.upright.rgb")).0, 0);
    }
}

#[test]
fn orientation_is_read_from_each_container() {
    for name in ["turned6.jpg", "turned6.webp", "turned6_prefix.webp"] {
        let found = orientation(&file(name));
        assert_eq!(found, Orientation::Rotate90, "{name}");
        let image = decode(name).oriented(found);
        assert!(difference(image.rgb(), &format!("{name}.upright.rgb")).0 <= 1);
    }
    // No such number; no EXIF; turned already while decoding; no EXIF possible.
    for name in ["turned9.jpg", "baseline.jpg", "baseline.png", "lossy.webp", "turned6.tif", "grey.pgm"] {
        assert_eq!(orientation(&file(name)), Orientation::Upright, "{name}");
    }
}

#[test]
fn resized_pixels_are_pillows() {
    let source = decode("resize.png");
    for (filter, name) in [(Filter::Bilinear, "bilinear"), (Filter::Bicubic, "bicubic")] {
        for (width, height) in [(31, 22), (30, 20), (20, 14), (13, 9), (7, 5), (61, 20), (17, 43), (70, 50)] {
            let image = source.resized(Size { width, height }, filter).unwrap();
            let (largest, mean) = difference(image.rgb(), &format!("resize.png.{name}.{width}x{height}.rgb"));
            assert!(
                largest <= 2 && mean <= 0.25,
                "{name} {width} x {height}: at most {largest}, on average {mean}"
            );
        }
    }
}

#[test]
fn resized_hard_edges_are_pillows_to_within_a_step() {
    let source = decode("edges.png");
    for (filter, name) in [(Filter::Bilinear, "bilinear"), (Filter::Bicubic, "bicubic")] {
        for (width, height) in
            [(31, 22), (20, 43), (61, 20), (17, 43), (90, 71), (7, 5), (50, 10), (58, 20), (90, 20)]
        {
            let image = source.resized(Size { width, height }, filter).unwrap();
            let (largest, _) = difference(image.rgb(), &format!("edges.png.{name}.{width}x{height}.rgb"));
            assert!(largest <= 1, "{name} {width} x {height}: at most {largest}");
        }
    }
}

#[test]
fn an_encoded_jpeg_looks_as_pillows_does() {
    let source = decode("baseline.png");
    for quality in [50, 95] {
        let jpeg = source.encode_jpeg(quality).unwrap();
        let image = Decoder::new().decode(&jpeg).unwrap();
        let (largest, mean) = difference(image.rgb(), &format!("encoded.q{quality}.rgb"));
        assert!(largest <= 2 && mean <= 0.25, "quality {quality}: at most {largest}, on average {mean}");
    }
    for quality in [0, 101] {
        assert!(matches!(source.encode_jpeg(quality), Err(ImageFault::Encode { media: Media::Jpeg, .. })));
    }
}

#[test]
fn an_encoded_ppm_is_the_pixels() {
    let source = decode("baseline.png");
    let ppm = source.encode_ppm();
    assert!(ppm.starts_with(b"P6\n13 9\n255\n"));
    assert_eq!(Decoder::new().decode(&ppm).unwrap(), source);
}

#[test]
fn a_decoder_forgets_the_image_before() {
    let mut decoder = Decoder::new();
    let names =
        ["resize.png", "cmyk.jpg", "lossy_alpha.webp", "grey16.png", "rgb24.bmp", "turned6.tif", "grey.pgm"];
    for name in names.iter().chain(names.iter().rev()) {
        assert_eq!(decoder.decode(&file(name)).unwrap(), decode(name), "{name}");
    }
}

#[test]
fn an_image_has_the_bytes_that_its_size_takes() {
    let size = Size { width: 2, height: 1 };
    assert!(Image::new(size, vec![0; 6]).is_ok());
    assert_eq!(Image::new(size, vec![0; 5]), Err(ImageFault::Pixels { got: 5, expected: 6 }));
    let none = Size { width: 0, height: 1 };
    assert_eq!(Image::new(none, vec![]), Err(ImageFault::Size { width: 0, height: 1 }));
    let image = Image::new(size, vec![0; 6]).unwrap();
    assert_eq!(image.resized(none, Filter::Bilinear), Err(ImageFault::Size { width: 0, height: 1 }));
    let huge = Size { width: 40_000, height: 40_000 };
    assert!(matches!(image.resized(huge, Filter::Bilinear), Err(ImageFault::Size { .. })));
}
