//! Damaged, cut and invented bytes and bombs give an error or an image, never a panic.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;

use proptest::prelude::*;
use shade_formats::index::Media;
use shade_images::{Decoder, IMAGE_PIXELS_MAX, ImageFault, Part, orientation};

/// One or two of each format and each path through it.
const DAMAGED: [&str; 29] = [
    "baseline.jpg",
    "progressive.jpg",
    "cmyk.jpg",
    "turned6.jpg",
    "resize.png",
    "grey16_transparent.png",
    "palette_transparent.png",
    "turned6.png",
    "lossy.webp",
    "lossless.webp",
    "lossy_alpha.webp",
    "animated.webp",
    "turned6.webp",
    "rgb24.bmp",
    "palette4.bmp",
    "rgb565.bmp",
    "rle8.bmp",
    "rle8_mixed.bmp",
    "rle4.bmp",
    "core.bmp",
    "lzw.tif",
    "deflate.tif",
    "packbits.tif",
    "planar.tif",
    "grey4.tif",
    "rgba16.tif",
    "turned6.tif",
    "colour1000.ppm",
    "grey16.pgm",
];

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn changed(
    mut bytes: Vec<u8>,
    changes: &[(prop::sample::Index, u8)],
    cut: Option<prop::sample::Index>,
) -> Vec<u8> {
    for (at, flip) in changes {
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

/// Whether a damaged header claims a size small enough to decode: tens of megapixels per case would
/// take hours.
fn is_small(bytes: &[u8]) -> bool {
    let (_, width, height) = shade_formats::index::sniff(bytes);
    u64::from(width) * u64::from(height) <= 1 << 20
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn flipped_bits_never_panic(
        name in prop::sample::select(&DAMAGED[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let bytes = changed(file(name), &changes, cut);
        let _ = orientation(&bytes);
        if is_small(&bytes) {
            let _ = Decoder::new().decode(&bytes);
        }
    }

    #[test]
    fn made_up_bytes_never_panic(
        magic in prop::sample::select(vec![
            &b""[..], b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x05\0\0\0\x05", b"RIFF\xff\0\0\0WEBPVP8L",
            b"RIFF\xff\0\0\0WEBPVP8 ", b"RIFF\xff\0\0\0WEBPVP8X", b"P6 3 3 ", b"II\x2a\0\x08\0\0\0", b"MM\0\x2a\0\0\0\x08",
            b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x05\0\0\0\x05\0\0\0\x01\0",
        ]),
        tail in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = [magic, &tail].concat();
        let _ = orientation(&bytes);
        if is_small(&bytes) {
            let _ = Decoder::new().decode(&bytes);
        }
    }
}

/// The `png` crate panics on such a palette when it looks up colours.
#[test]
fn a_palette_of_broken_colours_is_refused_where_it_is_used() {
    let decode = |colour: png::ColorType, samples: &[u8]| {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 1, 1);
        encoder.set_color(colour);
        encoder.set_palette(&[9; 4][..]);
        encoder.write_header().unwrap().write_image_data(samples).unwrap();
        Decoder::new().decode(&file)
    };
    let indexed = decode(png::ColorType::Indexed, &[0]);
    assert!(matches!(indexed, Err(ImageFault::Corrupt { .. })), "{indexed:?}");
    assert_eq!(decode(png::ColorType::Rgb, &[1, 2, 3]).unwrap().rgb(), [1, 2, 3]);
}

#[test]
fn an_early_end_is_a_fault() {
    for name in [
        "baseline.jpg",
        "resize.png",
        "lossless.webp",
        "lossy.webp",
        "lzw.tif",
        "planar.tif",
        "rgb24.bmp",
        "grey16.pgm",
    ] {
        let bytes = file(name);
        let found = Decoder::new().decode(&bytes[..bytes.len() / 2]);
        assert!(matches!(found, Err(ImageFault::Corrupt { .. })), "{name}: {found:?}");
    }
}

#[test]
fn bombs_are_refused_by_their_header() {
    let side = 40_000_u32;
    assert!(u64::from(side) * u64::from(side) > IMAGE_PIXELS_MAX);
    let expected = ImageFault::Size { width: side.into(), height: side.into() };

    let mut bmp = file("rgb24.bmp");
    bmp[18..22].copy_from_slice(&side.to_le_bytes());
    bmp[22..26].copy_from_slice(&side.to_le_bytes());
    assert_eq!(Decoder::new().decode(&bmp), Err(expected.clone()));

    // Entries of 12 bytes from the directory on: width and height are the first two, the rows of
    // its strip the ninth.
    let mut tiff = file("rgb16.tif");
    let directory = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    for entry in [0, 1, 8] {
        let value = directory + 2 + entry * 12 + 8;
        tiff[value..value + 4].copy_from_slice(&side.to_le_bytes());
    }
    assert_eq!(Decoder::new().decode(&tiff), Err(expected.clone()));

    assert_eq!(Decoder::new().decode(b"P5 40000 40000 65535\n"), Err(expected));

    // The sides of a lossless WebP have 14 bits: no bomb on its own, but too many pixels all the
    // same. (16,384, the largest, is read as 0 by image-webp 0.2.4, and refused for that.)
    let bits = (16_382_u32 | 16_382 << 14).to_le_bytes();
    let webp = [&b"RIFF\x20\0\0\0WEBPVP8L\x14\0\0\0\x2f"[..], &bits, &[0; 15]].concat();
    let expected = ImageFault::Size { width: 16_383, height: 16_383 };
    assert_eq!(Decoder::new().decode(&webp), Err(expected));
}

#[test]
fn another_kind_than_told_is_corrupt() {
    for (media, name) in [
        (Media::Jpeg, "resize.png"),
        (Media::Tiff, "rgb24.bmp"),
        (Media::Webp, "lzw.tif"),
        (Media::Bmp, "grey.pgm"),
    ] {
        let mut decoder = Decoder::new();
        let found = decoder.decode_part(media, &file(name), Part::whole).err();
        assert!(
            matches!(&found, Some(ImageFault::Corrupt { media: named, .. }) if *named == media),
            "{found:?}"
        );
    }
}
