//! Usual JPEGs, which are decoded without libjpeg-turbo, have its pixels bit for bit.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use shade_formats::index::Media;
use shade_images::{Area, Decoder, Part, Size};
use shade_job::JpegDecoder;
use turbojpeg::{Compressor, Decompressor, PixelFormat, ScalingFactor, Subsamp};

/// Divisors.
const REDUCTIONS: [u32; 4] = [1, 2, 4, 8];

/// libjpeg-turbo's pixels of `bytes` divided by `by`, and its complaint.
fn expected(bytes: &[u8], by: u32) -> (Vec<u8>, Option<turbojpeg::Error>) {
    let mut decompressor = Decompressor::new().unwrap();
    let factor = ScalingFactor::new(1, by as usize);
    decompressor.set_scaling_factor(factor).unwrap();
    let header = decompressor.read_header(bytes).unwrap().scaled(factor);
    let (width, height) = (header.width, header.height);
    let mut pixels = vec![0; 3 * width * height];
    let image = turbojpeg::Image {
        pixels: pixels.as_mut_slice(),
        width,
        pitch: 3 * width,
        height,
        format: PixelFormat::RGB,
    };
    let complaint = decompressor.decompress(bytes, image).err();
    (pixels, complaint)
}

/// A JPEG of waves and noise; the share of noise is `noise` 256ths.
fn jpeg([width, height]: [usize; 2], subsamp: Subsamp, quality: i32, noise: u32, seed: u32) -> Vec<u8> {
    let mut random = seed | 1;
    let mut pixels = Vec::new();
    for at in 0..width * height * 3 {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let wave = u32::try_from((at % (3 * width) * 2 + at / (3 * width) * 5) % 256).unwrap();
        pixels.push(u8::try_from((wave * (256 - noise) + random % 256 * noise) >> 8).unwrap());
    }
    let image = turbojpeg::Image {
        pixels: pixels.as_slice(),
        width,
        pitch: width * 3,
        height,
        format: PixelFormat::RGB,
    };
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(quality).unwrap();
    compressor.set_subsamp(subsamp).unwrap();
    compressor.set_optimize(seed.is_multiple_of(3)).unwrap();
    compressor.compress_to_vec(image).unwrap()
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

/// Our decoder decodes just the requested part, libjpeg-turbo from a block's edge on. So the area
/// tells which of them decoded.
#[test]
fn the_switch_leaves_every_jpeg_to_libjpeg_turbo() {
    let asked = Area { left: 53, top: 40, size: Size { width: 31, height: 20 } };
    let bytes = jpeg([200, 100], Subsamp::Sub2x2, 90, 100, 1);
    let part = |_| Part { area: asked, reduce_by: 1 };
    let mut auto = Decoder::new();
    let ours = auto.decode_part(Media::Jpeg, &bytes, part).unwrap();
    let mut turbo = Decoder::with_jpeg(JpegDecoder::Turbo);
    let theirs = turbo.decode_part(Media::Jpeg, &bytes, part).unwrap();
    assert_eq!(ours.area, asked);
    assert_eq!((theirs.area.left, theirs.area.top), (48, 40));
    let pitch = 3 * theirs.area.size.width as usize;
    let skipped = 3 * (asked.left - theirs.area.left) as usize;
    for (line, expected) in theirs.rgb.chunks(pitch).zip(ours.rgb.chunks(3 * 31)) {
        assert_eq!(line[skipped..skipped + 3 * 31], *expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pixels_are_those_of_libjpeg_turbo(
        sides in prop::array::uniform2(1..100usize),
        subsamp in subsamp(),
        quality in 1..=100,
        noise in 0..=256u32,
        seed: u32,
    ) {
        let bytes = jpeg(sides, subsamp, quality, noise, seed);
        let mut decoder = Decoder::new();
        for reduce_by in REDUCTIONS {
            let part = |size| Part { reduce_by, ..Part::whole(size) };
            let found = decoder.decode_part(Media::Jpeg, &bytes, part).unwrap();
            let (pixels, complaint) = expected(&bytes, reduce_by);
            prop_assert!(complaint.is_none());
            prop_assert!(found.rgb == pixels, "divided by {}", reduce_by);
            let mut turbo = Decoder::with_jpeg(JpegDecoder::Turbo);
            prop_assert!(turbo.decode_part(Media::Jpeg, &bytes, part).unwrap().rgb == pixels);
        }
    }

    /// Any coefficients, so that sums exceed 16 bits.
    #[test]
    fn so_are_those_of_damaged_ones(
        sides in prop::array::uniform2(1..60usize),
        subsamp in subsamp(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u32), 0..8),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        factor in prop::option::of(any::<u8>()),
        seed: u32,
    ) {
        let mut bytes = jpeg(sides, subsamp, 95, 200, seed);
        let at = |marker: u8| bytes.windows(2).position(|found| found == [0xFF, marker]).unwrap();
        // Behind a scan's header of one component or three.
        let (quantization, data) = (at(0xDB) + 5, at(0xDA) + if subsamp == Subsamp::Gray { 10 } else { 14 });
        if let Some(factor) = factor {
            for value in &mut bytes[quantization..quantization + 64] {
                *value = factor.max(1);
            }
        }
        for (at, bit) in flips {
            let at = data + at.index(bytes.len() - data);
            bytes[at] ^= 1u8 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(data + cut.index(bytes.len() - data));
        }
        let mut decoder = Decoder::new();
        for reduce_by in REDUCTIONS {
            let part = |size| Part { reduce_by, ..Part::whole(size) };
            let (pixels, complaint) = expected(&bytes, reduce_by);
            match decoder.decode_part(Media::Jpeg, &bytes, part) {
                Ok(found) => prop_assert!(found.rgb == pixels, "divided by {}: {:?}", reduce_by, complaint),
                Err(fault) => prop_assert!(complaint.is_some(), "{}", fault),
            }
        }
    }
}
