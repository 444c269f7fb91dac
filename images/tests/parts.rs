//! A part of a JPEG has the whole's pixels.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proptest::prelude::*;
use shade_formats::index::Media;
use shade_images::{Area, Decoder, Part, Pixels, Size, orientation, with_restart_markers};
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
        is_marked: bool,
    ) {
        let size = Size { width, height };
        let (left, top) = (left % width, top % height);
        let size_of_part = Size { width: part_width.min(width - left), height: part_height.min(height - top) };
        let part = Part { area: Area { left, top, size: size_of_part }, reduce_by };
        let mut bytes = jpeg(size, subsamp, is_progressive);
        let mut decoder = Decoder::new();
        if is_marked {
            let plain = decoder.decode(&bytes).unwrap();
            bytes = with_restart_markers(&bytes).unwrap();
            prop_assert!(decoder.decode(&bytes).unwrap() == plain, "the same pixels");
        }
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

/// With restart markers the data around a part is not read.
#[test]
fn markers_make_what_lies_around_a_part_irrelevant() {
    let size = Size { width: 160, height: 120 };
    let area = Area { left: 70, top: 60, size: Size { width: 20, height: 20 } };
    let mut decoder = Decoder::new();
    let mut part = |bytes: &[u8]| {
        let found = decoder.decode_part(Media::Jpeg, bytes, |_| Part { area, reduce_by: 1 });
        found.map(|pixels| {
            let places =
                (area.top..area.top + 20).flat_map(|y| (area.left..area.left + 20).map(move |x| (x, y)));
            places.map(|(x, y)| pixel(&pixels, x, y)).collect::<Vec<_>>()
        })
    };
    let plain = jpeg(size, Subsamp::Sub2x2, true);
    let expected = part(&plain).unwrap();
    let marked = with_restart_markers(&plain).unwrap();
    // 10 units in each of 8 rows, and as many markers as there are gaps.
    let markers: Vec<usize> = (0..marked.len() - 1)
        .filter(|&at| marked[at] == 0xFF && (0xD0..0xD8).contains(&marked[at + 1]))
        .collect();
    assert_eq!(markers.len(), 79);
    let mut damaged = marked.clone();
    // The unit before a marker: all of the first two rows, and the left end of the others.
    for unit in (0..20).chain([30, 40, 50]) {
        let from = if unit == 0 { markers[0] - 2 } else { markers[unit - 1] + 2 };
        for byte in &mut damaged[from..markers[unit]] {
            *byte ^= 0x55;
            *byte -= u8::from(*byte == 0xFF);
        }
    }
    assert_eq!(part(&marked).unwrap(), expected);
    assert_eq!(part(&damaged).unwrap(), expected);
    let whole = decoder.decode(&damaged);
    assert!(whole.is_err() || whole.unwrap() != decoder.decode(&plain).unwrap(), "the damage is there");
}

#[test]
fn what_is_no_picture_stays_when_markers_are_added() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
    let read = |file: &str| std::fs::read(format!("{folder}{file}")).unwrap();
    for file in ["progressive.jpg", "grey.jpg", "turned6.jpg"] {
        let bytes = read(file);
        let marked = with_restart_markers(&bytes).unwrap();
        assert!(marked != bytes, "{file}");
        assert_eq!(orientation(&marked), orientation(&bytes), "{file}");
        let mut decoder = Decoder::new();
        assert!(decoder.decode(&marked).unwrap() == decoder.decode(&bytes).unwrap(), "{file}");
    }
    // Markers would not help.
    for file in ["cmyk.jpg", "ycck.jpg", "rgb.jpg"] {
        let bytes = read(file);
        assert!(with_restart_markers(&bytes).unwrap() == bytes, "{file}");
    }
    assert!(with_restart_markers(b"\xFF\xD8\xFF").is_err());
    // Missing bytes before the end, which decoders ignore: the image stays as it is.
    let mut odd = read("baseline.jpg");
    odd.splice(odd.len() - 2..odd.len() - 2, [1, 2, 3]);
    assert!(Decoder::new().decode(&odd).is_ok() && with_restart_markers(&odd).unwrap() == odd);
}
