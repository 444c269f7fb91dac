//! Records decode to the pixels that torchvision's `ImageFolder` passes to a transform; bad ones
//! are faults.
//!
//! The references beside the images in `data/` come from PIL by `data/make.py`.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;

use proptest::prelude::*;
use shade_formats::Geometry;
use shade_formats::index::Media;
use shade_images::{Draw, IMAGE_PIXELS_MAX, ImageFault, RowDecoder};
use shade_job::{
    AutoAugmentPolicy, Colour, Degrees, Factor, Framing, Hue, ImageSpec, Interpolation, Pair, Shear,
    Transform,
};

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn media(name: &str) -> Media {
    match name.rsplit('.').next() {
        Some("jpg") => Media::Jpeg,
        Some("png") => Media::Png,
        Some("ppm" | "pgm") => Media::Ppm,
        _ => Media::Other,
    }
}

/// Planes back to interleaved.
fn interleaved(planes: &[u8]) -> Vec<u8> {
    let plane = planes.len() / 3;
    (0..plane).flat_map(|i| [planes[i], planes[plane + i], planes[2 * plane + i]]).collect()
}

fn decode(media: Media, bytes: &[u8], height: u32, width: u32) -> Result<Vec<u8>, ImageFault> {
    let planes = row(&mut RowDecoder::default(), media, bytes, &ImageSpec::cover(height, width), 0)?;
    Ok(interleaved(&planes))
}

/// The row at `position` of the plan, every byte of it written once.
fn row(
    decoder: &mut RowDecoder,
    media: Media,
    bytes: &[u8],
    spec: &ImageSpec,
    position: u32,
) -> Result<Vec<u8>, ImageFault> {
    let mut out = vec![0xA5; usize::try_from(spec.bytes()).unwrap()];
    let draw = Draw::at(5, 1, position);
    decoder.decode(media, bytes, spec, draw, |at, piece| {
        let at = usize::try_from(at).unwrap();
        out[at..at + piece.len()].copy_from_slice(piece);
        Ok::<(), ImageFault>(())
    })?;
    Ok(out)
}

/// Largest and mean difference between `name` decoded and its reference.
fn difference(name: &str, height: u32, width: u32, reference: &str) -> (u8, f64) {
    let found = decode(media(name), &file(name), height, width).unwrap();
    let expected = file(reference);
    assert_eq!(found.len(), expected.len(), "{reference}");
    let differences: Vec<u8> = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).collect();
    let sum: f64 = differences.iter().map(|&d| f64::from(d)).sum();
    (*differences.iter().max().unwrap(), sum / differences.len() as f64)
}

#[test]
fn orientation_is_ignored_as_image_folder_ignores_it() {
    let (largest, _) = difference("turned6.jpg", 8, 16, "turned6.jpg.rgb");
    assert!(largest <= 1, "{largest}");
}

#[test]
fn resize_and_crop_are_torchvisions() {
    for name in ["resize.png", "tall.png", "rgb8.png", "baseline.jpg"] {
        let (largest, mean) = difference(name, 16, 16, &format!("{name}.16.rgb"));
        assert!(largest <= 1 && mean < 0.25, "{name}: at most {largest}, on average {mean}");
    }
}

#[test]
fn a_jpeg_reduced_while_decoding_looks_the_same() {
    // 301 x 203 to 16 x 16 is reduced to a quarter first. The filter is not bilinear alone, so
    // pixels differ, but are not shifted: a shift by one pixel would differ by about 8 on average.
    let (largest, mean) = difference("reduced.jpg", 16, 16, "reduced.jpg.16.rgb");
    assert!(largest <= 3 && mean < 0.5, "at most {largest}, on average {mean}");
}

#[test]
fn a_target_that_is_not_square_is_covered_from_the_middle() {
    // 7 x 5 to 5 x 5 is a crop without resizing: columns 1 to 5.
    let whole = file("rgb8.png.rgb");
    let expected: Vec<u8> = whole.chunks(21).flat_map(|row| row[3..18].to_vec()).collect();
    assert_eq!(decode(Media::Png, &file("rgb8.png"), 5, 5).unwrap(), expected);
    // To 3 x 7: rows 1 to 3.
    assert_eq!(decode(Media::Png, &file("rgb8.png"), 3, 7).unwrap(), whole[21..84]);
}

#[test]
fn planes_follow_each_other_red_green_blue() {
    let ppm = b"P6 2 2 255\nrgbRGBxyzXYZ";
    let deliver = |spec| row(&mut RowDecoder::default(), Media::Ppm, ppm, &spec, 0).unwrap();
    let planar = ImageSpec::cover(2, 2);
    assert_eq!(deliver(planar.clone()), b"rRxXgGyYbBzZ");
    assert_eq!(deliver(ImageSpec { channels_last: true, ..planar.clone() }), b"rgbRGBxyzXYZ");
    assert_eq!(deliver(ImageSpec { flip: 1.0, ..planar.clone() }), b"RrXxGgYyBbZz");
    assert_eq!(deliver(ImageSpec { flip: 1.0, channels_last: true, ..planar }), b"RGBrgbXYZxyz");
}

/// The rows of several views, every byte of them written once, and what they show.
fn rows(
    decoder: &mut RowDecoder,
    media: Media,
    bytes: &[u8],
    views: &[ImageSpec],
    position: u32,
) -> Result<Vec<(Vec<u8>, Geometry)>, ImageFault> {
    let mut out: Vec<_> =
        views.iter().map(|view| vec![None; usize::try_from(view.bytes()).unwrap()]).collect();
    let mut geometry = vec![Geometry::default(); views.len()];
    let draw = Draw::at(5, 1, position);
    decoder.decode_views(media, bytes, views, draw, &mut geometry, |view, at, piece| {
        let at = usize::try_from(at).unwrap();
        out[view][at..at + piece.len()].iter_mut().zip(piece).for_each(|(to, &value)| *to = Some(value));
        Ok::<(), ImageFault>(())
    })?;
    let whole = out.into_iter().map(|row| row.into_iter().map(Option::unwrap).collect());
    Ok(whole.zip(geometry).collect())
}

#[test]
fn views_of_one_pass_are_those_of_several() {
    let framing = Framing::RandomResized { scale: [0.05, 1.0], ratio: [0.75, 1.5] };
    let large = ImageSpec { framing, flip: 0.5, exact: true, ..ImageSpec::cover(32, 40) };
    let small = ImageSpec { grey: true, ..ImageSpec { height: 9, width: 7, ..large.clone() } };
    let padded = ImageSpec { framing: Framing::Random { short: 20, padding: 8, before: 0 }, ..large.clone() };
    let mut decoder = RowDecoder::default();
    let mut found_of = |name: &str, views: &[ImageSpec], position| {
        rows(&mut decoder, media(name), &file(name), views, position).unwrap()
    };
    for name in ["reduced.jpg", "baseline.jpg", "progressive.jpg", "resize.png", "cmyk.jpg"] {
        for position in 0..20 {
            let mut found_of = |views: &[&ImageSpec]| {
                found_of(name, &views.iter().copied().cloned().collect::<Vec<_>>(), position)
            };
            let all = found_of(&[&large, &small, &padded, &large]);
            assert_eq!(all[..1], found_of(&[&large]), "the first does not know of others");
            assert_eq!(all[..2], found_of(&[&large, &small]));
            assert_eq!(all[3..], found_of(&[&small, &small, &small, &large])[3..]);
            assert_ne!(all[0].1, all[3].1, "each view has its own crop");
        }
    }
}

/// Only what the views need is decoded, and reduced as the one that needs most allows.
#[test]
fn quick_views_of_one_pass_stay_close_to_exact_ones() {
    let framing = Framing::RandomResized { scale: [0.05, 0.3], ratio: [0.75, 1.5] };
    let view = ImageSpec { framing, flip: 0.5, ..ImageSpec::cover(16, 16) };
    let exactly = [ImageSpec { exact: true, ..view.clone() }, ImageSpec { exact: true, ..view.clone() }];
    let quickly = [view.clone(), view];
    let bytes = file("reduced.jpg");
    let mut decoder = RowDecoder::default();
    let mut differing = 0;
    for position in 0..50 {
        let quick = rows(&mut decoder, Media::Jpeg, &bytes, &quickly, position).unwrap();
        let exact = rows(&mut decoder, Media::Jpeg, &bytes, &exactly, position).unwrap();
        for ((quick, crop), (exact, exact_crop)) in quick.iter().zip(&exact) {
            let sum: u32 = quick.iter().zip(exact).map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
            assert!(f64::from(sum) / quick.len() as f64 <= 4.0, "{sum}");
            assert_eq!(crop, exact_crop);
            differing += u32::from(sum > 0);
        }
    }
    assert!(differing > 0, "the image is large enough for reduced ones");
}

#[test]
fn a_view_too_small_for_its_crop_is_named_whichever_it_is() {
    let too_large = ImageSpec {
        framing: Framing::Random { short: 0, padding: 0, before: 0 },
        ..ImageSpec::cover(900, 4)
    };
    let views = [ImageSpec::cover(4, 4), too_large];
    for name in ["baseline.jpg", "resize.png"] {
        let found = rows(&mut RowDecoder::default(), media(name), &file(name), &views, 0);
        assert!(matches!(found, Err(ImageFault::Small { .. })), "{found:?}");
    }
}

#[test]
fn grey_is_made_of_the_rows_colours() {
    let grey = |[red, green, blue]: [u8; 3]| {
        let sum = u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471 + 0x8000;
        u8::try_from(sum >> 16).unwrap()
    };
    for (name, framing) in [
        ("baseline.jpg", Framing::Cover),
        ("reduced.jpg", Framing::Stretch),
        ("rgb8.png", Framing::Center { short: 0 }),
        ("grey16.png", Framing::Random { short: 11, padding: 9, before: 0 }),
    ] {
        for flip in [0.0, 1.0] {
            let colours = ImageSpec { framing, flip, channels_last: true, ..ImageSpec::cover(21, 17) };
            let spec = ImageSpec { grey: true, ..colours.clone() };
            let mut decoder = RowDecoder::default();
            let mut found = |spec| row(&mut decoder, media(name), &file(name), &spec, 0).unwrap();
            let expected: Vec<u8> = found(colours).as_chunks().0.iter().map(|&pixel| grey(pixel)).collect();
            assert_eq!(found(spec.clone()), expected, "{name}");
            assert_eq!(found(ImageSpec { channels_last: false, ..spec }), expected, "one channel, any order");
        }
    }
}

#[test]
fn what_lies_beside_the_image_is_black() {
    let ppm = b"P6 2 1 255\nrgbRGB";
    let framing = Framing::Center { short: 0 };
    let spec = ImageSpec { framing, channels_last: true, ..ImageSpec::cover(3, 4) };
    let found = row(&mut RowDecoder::default(), Media::Ppm, ppm, &spec, 0).unwrap();
    let black = [0; 12];
    let middle = b"\0\0\0rgbRGB\0\0\0";
    assert_eq!(found, [&black[..], middle, &black].concat());
    let planes = row(
        &mut RowDecoder::default(),
        Media::Ppm,
        ppm,
        &ImageSpec { channels_last: false, ..spec.clone() },
        0,
    )
    .unwrap();
    assert_eq!(interleaved(&planes), found);
}

/// A part of a JPEG is decoded instead of all of it, and a reduced one instead of the whole:
/// `exact` turns both off.
#[test]
fn shortcuts_change_little_and_exact_turns_them_off() {
    let bytes = file("reduced.jpg");
    let framing = Framing::RandomResized { scale: [0.05, 0.3], ratio: [0.75, 1.5] };
    let spec = ImageSpec { framing, flip: 0.5, ..ImageSpec::cover(32, 32) };
    let mut decoder = RowDecoder::default();
    let (mut differing, mut largest_mean) = (0, 0.0_f64);
    for position in 0..50 {
        let quick = row(&mut decoder, Media::Jpeg, &bytes, &spec, position).unwrap();
        let exact =
            row(&mut decoder, Media::Jpeg, &bytes, &ImageSpec { exact: true, ..spec.clone() }, position)
                .unwrap();
        let sum: u32 = quick.iter().zip(&exact).map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
        differing += u32::from(sum > 0);
        largest_mean = largest_mean.max(f64::from(sum) / quick.len() as f64);
    }
    assert!(differing > 0, "the image is large enough for reduced ones");
    assert!(largest_mean < 3.0, "{largest_mean}");
}

/// A list with every operation, each of which is done on most rows.
fn every_operation() -> [Vec<Transform>; 2] {
    let (p, factors) = (0.9, Factor([0.0, 2.0]));
    let rand = |interpolation| {
        let fill = Colour([9, 8, 7]);
        Transform::RandAugment { num_ops: 16, magnitude: 30, num_magnitude_bins: 31, interpolation, fill }
    };
    let (scale, ratio, value) = ([0.0, 1.0], [0.3, 3.3], Colour([1, 2, 3]));
    let (interpolation, fill) = (Interpolation::Nearest, Colour([9, 8, 7]));
    let (brightness, contrast, saturation) = (factors, factors, factors);
    let colours = [
        Transform::ColorJitter { brightness, contrast, saturation, hue: Hue([-0.5, 0.5]) },
        Transform::RandomGrayscale { p: 0.1 },
        Transform::RandomAutocontrast { p },
        Transform::RandomEqualize { p },
        Transform::RandomAdjustSharpness { sharpness_factor: 1.9, p },
        Transform::RandomSolarize { threshold: 128.0, p },
        Transform::RandomPosterize { bits: 5, p },
        Transform::RandomInvert { p },
    ];
    let places = [
        Transform::GaussianBlur { kernel_size: Pair([1, 1]), sigma: Pair([0.1, 2.0]) },
        Transform::PillowGaussianBlur { radius: Pair([0.1, 2.0]), p },
        Transform::RandomErasing { p, scale, ratio, value },
        rand(Interpolation::Bilinear),
        rand(Interpolation::Nearest),
        Transform::TrivialAugmentWide { num_magnitude_bins: 31, interpolation, fill },
        Transform::RandomRotation { degrees: Degrees([-90.0, 90.0]), interpolation, center: None, fill },
        Transform::RandomAffine {
            degrees: Degrees([-180.0, 180.0]),
            translate: Pair([0.5, 0.5]),
            scale: Pair([0.5, 2.0]),
            shear: Shear([-30.0, 30.0, -30.0, 30.0]),
            interpolation: Interpolation::Bilinear,
            fill,
            center: Some([1.0, -2.0]),
        },
        Transform::AutoAugment { policy: AutoAugmentPolicy::Cifar10, interpolation, fill },
    ];
    [colours.to_vec(), places.to_vec()]
}

#[test]
fn operations_do_any_size_and_leave_nothing_behind() {
    let bytes = file("reduced.jpg");
    let mut decoder = RowDecoder::default();
    for (height, width) in [(1, 1), (1, 9), (9, 1), (2, 3), (3, 2), (40, 33)] {
        let plain = ImageSpec { flip: 0.5, flip_down: 0.5, ..ImageSpec::cover(height, width) };
        for steps in every_operation() {
            let size = Pair([height, width]);
            let spec = ImageSpec::new(&[vec![Transform::Cover { size }], steps].concat()).unwrap();
            let spec = ImageSpec { pixels: spec.pixels, ..plain.clone() };
            let mut changed = 0;
            for position in 0..20 {
                let found = row(&mut decoder, Media::Jpeg, &bytes, &spec, position).unwrap();
                let alone = row(&mut RowDecoder::default(), Media::Jpeg, &bytes, &spec, position).unwrap();
                assert_eq!(found, alone, "{height} x {width}, row {position}");
                let last = ImageSpec { channels_last: true, ..spec.clone() };
                let last = row(&mut decoder, Media::Jpeg, &bytes, &last, position).unwrap();
                assert_eq!(interleaved(&found), last);
                changed +=
                    u32::from(found != row(&mut decoder, Media::Jpeg, &bytes, &plain, position).unwrap());
            }
            assert!(changed >= 15, "{height} x {width}: {changed} of 20");
        }
    }
}

#[test]
fn a_row_is_mirrored_from_top_to_bottom() {
    let ppm = b"P6 2 3 255\nrgbRGBxyzXYZ012345";
    for channels_last in [false, true] {
        let spec = ImageSpec { flip_down: 1.0, channels_last, ..ImageSpec::cover(3, 2) };
        let found = row(&mut RowDecoder::default(), Media::Ppm, ppm, &spec, 0).unwrap();
        let found = if channels_last { found } else { interleaved(&found) };
        assert_eq!(found, b"012345xyzXYZrgbRGB");
    }
}

#[test]
fn a_decoder_forgets_the_image_before() {
    let mut decoder = RowDecoder::default();
    let names =
        ["resize.png", "grey16.png", "cmyk.jpg", "reduced.jpg", "six.ppm", "baseline.jpg", "tall.png"];
    for name in names.iter().chain(names.iter().rev()) {
        let found = row(&mut decoder, media(name), &file(name), &ImageSpec::cover(9, 9), 0).unwrap();
        assert_eq!(interleaved(&found), decode(media(name), &file(name), 9, 9).unwrap(), "{name}");
    }
}

#[test]
fn an_early_end_is_a_fault() {
    for name in ["baseline.jpg", "progressive.jpg", "cmyk.jpg", "resize.png", "interlaced.png", "six.ppm"] {
        let bytes = file(name);
        // A PNG's last 20 bytes are its last chunk and two checksums, which hold no pixels.
        let tail = if name.ends_with("png") { 40 } else { 1 };
        for len in [0, 1, 7, bytes.len() / 2, bytes.len() - tail] {
            match decode(media(name), &bytes[..len], 12, 12) {
                Err(ImageFault::Corrupt { media: named, text }) => {
                    assert_eq!(named, media(name));
                    assert!(!text.is_empty(), "{name} cut to {len} bytes");
                }
                other => panic!("{name} cut to {len} bytes: {other:?}"),
            }
        }
    }
}

#[test]
fn damage_that_pil_decodes_through_is_decoded() {
    let mut bytes = file("baseline.jpg");
    let end = bytes.len() - 2;
    bytes.splice(end..end, [0, 0, 0]); // "Corrupt JPEG data: 3 extraneous bytes before marker 0xd9"
    assert_eq!(decode(Media::Jpeg, &bytes, 21, 37), decode(Media::Jpeg, &file("baseline.jpg"), 21, 37));
}

#[test]
fn other_kinds_are_unsupported() {
    for media in [Media::Other, Media::Gif] {
        let found = decode(media, b"whatever", 4, 4);
        assert!(matches!(found, Err(ImageFault::NoImage { what: "text" })), "{found:?}");
        let found = decode(media, b"GIF89a\x01\0\x01\0\0\0\0", 4, 4);
        assert!(matches!(found, Err(ImageFault::NoDecoder { kind: "GIF" })), "{found:?}");
    }
    for rest in [&b"P1 1 1 0"[..], b"P3 1 1 255 1 2 3", b"P4 1 1 0"] {
        let found = decode(Media::Ppm, rest, 4, 4);
        assert!(matches!(found, Err(ImageFault::Unsupported { media: Media::Ppm, .. })), "{found:?}");
    }
}

#[test]
fn bombs_are_refused_by_their_header() {
    let side = 40_000_u32;
    assert!(u64::from(side) * u64::from(side) > IMAGE_PIXELS_MAX);
    let expected = ImageFault::Size { width: side.into(), height: side.into() };

    let mut encoded = Vec::new();
    let mut writer = png::Encoder::new(&mut encoded, side, side).write_header().unwrap();
    writer.write_chunk(png::chunk::IDAT, &[]).unwrap();
    drop(writer);
    assert_eq!(decode(Media::Png, &encoded, 8, 8), Err(expected.clone()));

    assert_eq!(decode(Media::Ppm, b"P5 40000 40000 255\n", 8, 8), Err(expected.clone()));

    let mut jpeg = file("baseline.jpg");
    let frame = jpeg.windows(2).position(|marker| marker == [0xFF, 0xC0]).unwrap();
    let sides = 40_000_u16.to_be_bytes();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[sides[0], sides[1], sides[0], sides[1]]);
    assert_eq!(decode(Media::Jpeg, &jpeg, 8, 8), Err(expected));
    assert!(matches!(
        decode(Media::Ppm, b"P5 0 3 255\n", 8, 8),
        Err(ImageFault::Size { width: 0, height: 3 })
    ));
}

const DAMAGED: [&str; 11] = [
    "baseline.jpg",
    "progressive.jpg",
    "cmyk.jpg",
    "grey.jpg",
    "resize.png",
    "interlaced.png",
    "palette4.png",
    "grey16.png",
    "rgba16.png",
    "six.ppm",
    "grey.pgm",
];

/// An image of the set with some of its bytes replaced, perhaps cut.
fn damaged() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (prop::sample::select(&DAMAGED[..]), changes, prop::option::of(any::<prop::sample::Index>())).prop_map(
        |(name, changes, cut)| {
            let mut bytes = file(name);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            (name, bytes)
        },
    )
}

proptest! {
    #[test]
    fn damaged_images_never_panic((name, bytes) in damaged()) {
        // A damaged IHDR or SOF may ask for a large but legal image: any result will do.
        let _ = decode(media(name), &bytes, 9, 7);
        let framing = Framing::RandomResized { scale: [0.08, 1.0], ratio: [0.75, 1.5] };
        let spec = ImageSpec { framing, flip: 0.5, ..ImageSpec::cover(9, 7) };
        let _ = row(&mut RowDecoder::default(), media(name), &bytes, &spec, 3);
        let _ = rows(&mut RowDecoder::default(), media(name), &bytes, &[spec, ImageSpec::cover(9, 7)], 3);
    }

    #[test]
    fn garbage_is_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for media in [Media::Jpeg, Media::Png] {
            prop_assert!(decode(media, &bytes, 9, 7).is_err());
        }
        let _ = decode(Media::Ppm, &bytes, 9, 7);
    }
}
