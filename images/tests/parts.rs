//! A part of a JPEG has the pixels that the whole has there.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proptest::prelude::*;
use shade_formats::index::Media;
use shade_images::{Area, Decoder, Part, Pixels, Size};
use turbojpeg::{Compressor, PixelFormat, Subsamp};

/// A JPEG of waves and noise, whose every pixel differs from its neighbours.
fn jpeg(size: Size, subsamp: Subsamp, is_progressive: bool) -> Vec<u8> {
    let (width, height) = (size.width as usize, size.height as usize);
    let channels = if subsamp == Subsamp::Gray { 1 } else { 3 };
    let mut pixels = Vec::new();
    for at in 0..width * height {
        let (x, y) = (at % width, at / width);
        for channel in 0..channels {
            let noise = (at * 2_654_435_761 + channel * 40_503) >> 7;
            pixels.push(u8::try_from((x * 3 + y * 5 + noise % 97 + channel * 50) % 256).unwrap());
        }
    }
    let format = if channels == 1 { PixelFormat::GRAY } else { PixelFormat::RGB };
    let image =
        turbojpeg::Image { pixels: pixels.as_slice(), width, pitch: width * channels, height, format };
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(90).unwrap();
    compressor.set_subsamp(subsamp).unwrap();
    compressor.set_progressive(is_progressive).unwrap();
    compressor.compress_to_vec(image).unwrap()
}

/// The pixel at (`x`, `y`) of the reduced image.
fn pixel(pixels: &Pixels<'_>, x: u32, y: u32) -> [u8; 3] {
    let Area { left, top, size } = pixels.area;
    let at = ((y - top) * size.width + x - left) as usize * 3;
    pixels.rgb[at..at + 3].try_into().unwrap()
}

fn subsamp() -> impl Strategy<Value = Subsamp> {
    prop::sample::select(vec![
        Subsamp::None,
        Subsamp::Sub2x1,
        Subsamp::Sub2x2,
        Subsamp::Gray,
        Subsamp::Sub1x2,
        Subsamp::Sub4x1,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_part_has_the_pixels_of_the_whole(
        (width, height) in (1..150u32, 1..150u32),
        (left, top) in (0..150u32, 0..150u32),
        (part_width, part_height) in (1..150u32, 1..150u32),
        subsamp in subsamp(),
        is_progressive: bool,
        reduce_by in prop::sample::select(vec![1u32, 2, 4, 8]),
    ) {
        let size = Size { width, height };
        let (left, top) = (left % width, top % height);
        let size_of_part = Size { width: part_width.min(width - left), height: part_height.min(height - top) };
        let part = Part { area: Area { left, top, size: size_of_part }, reduce_by };
        let bytes = jpeg(size, subsamp, is_progressive);
        let mut decoder = Decoder::new();
        let whole = decoder.decode_part(Media::Jpeg, &bytes, |size| Part { area: Area::whole(size), reduce_by }).unwrap();
        prop_assert_eq!(whole.area.size, Size { width: width.div_ceil(reduce_by), height: height.div_ceil(reduce_by) });
        let mut other = Decoder::new();
        let found = other.decode_part(Media::Jpeg, &bytes, |_| part).unwrap();
        prop_assert_eq!((found.source, found.reduced_by), (size, reduce_by));
        let (right, bottom) = (left + size_of_part.width, top + size_of_part.height);
        for y in top / reduce_by..bottom.div_ceil(reduce_by) {
            for x in left / reduce_by..right.div_ceil(reduce_by) {
                prop_assert_eq!(pixel(&found, x, y), pixel(&whole, x, y), "at {}, {}", x, y);
            }
        }
    }
}

/// A part of a picture with inks, and the next image after it, whole.
#[test]
fn inks_come_in_parts_and_the_next_image_is_whole() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cmyk.jpg");
    let bytes = std::fs::read(path).unwrap();
    let mut decoder = Decoder::new();
    let whole = decoder.decode(&bytes).unwrap();
    let size = whole.size();
    let area = Area { left: size.width / 2, top: size.height / 2, size: Size { width: 9, height: 5 } };
    let part = |size| Part { area, ..Part::whole(size) };
    let found = decoder.decode_part(Media::Jpeg, &bytes, part).unwrap();
    assert!(found.area.size.pixels() < size.pixels());
    for y in area.top..area.top + 5 {
        for x in area.left..area.left + 9 {
            let at = (y * size.width + x) as usize * 3;
            assert_eq!(pixel(&found, x, y), whole.rgb()[at..at + 3]);
        }
    }
    assert!(decoder.decode(&bytes).unwrap() == whole);
}
