//! Files that are not quite right and that Pillow opens give its pixels and a note; files that it
//! refuses are refused. Images that are not decoded are named, and messages are plain.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;

use shade_formats::index::{Media, sniff};
use shade_images::{Decoder, ImageFault, Part, orientation};

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pixels of `bytes`, and the note about them.
fn decoded(bytes: &[u8]) -> Result<(Vec<u8>, Option<String>), ImageFault> {
    let mut decoder = Decoder::new();
    let pixels = decoder.decode_part(sniff(bytes).0, bytes, Part::whole)?;
    Ok((pixels.rgb.to_vec(), pixels.note.map(str::to_owned)))
}

/// Asserts that `bytes` have the pixels of `whole`, and a note with `note`.
fn assert_noted(bytes: &[u8], whole: &[u8], note: &str, case: &str) {
    let (expected, none) = decoded(whole).unwrap();
    assert_eq!(none, None, "{case}");
    let (pixels, found) = decoded(bytes).unwrap_or_else(|fault| panic!("{case}: {fault}"));
    assert!(pixels == expected, "{case}");
    let found = found.unwrap_or_else(|| panic!("{case}: no note"));
    assert!(found.contains(note), "{case}: {found}");
}

fn assert_corrupt(bytes: &[u8], text: &str, case: &str) {
    let found = decoded(bytes);
    let is_right =
        matches!(&found, Err(fault @ ImageFault::Corrupt { .. }) if fault.to_string().contains(text));
    assert!(is_right, "{case}: {:?}", found.err());
}

/// Where a JPEG's marker stands first.
fn marker(jpeg: &[u8], code: u8) -> usize {
    jpeg.windows(2).position(|pair| pair == [0xff, code]).unwrap()
}

fn with(bytes: &[u8], at: usize, more: &[u8]) -> Vec<u8> {
    [&bytes[..at], more, &bytes[at..]].concat()
}

fn profile(number: u8, count: u8) -> Vec<u8> {
    [&[0xff, 0xe2, 0, 20][..], b"ICC_PROFILE\0", &[number, count], b"abcd"].concat()
}

const JPEGS: [&str; 6] =
    ["baseline.jpg", "progressive.jpg", "grey.jpg", "half.jpg", "full.jpg", "reduced.jpg"];

#[test]
fn a_jpeg_with_a_header_out_of_order_is_read() {
    for name in JPEGS {
        let jpeg = file(name);
        for code in [0xdb, 0xc4, 0xda] {
            let bytes = with(&jpeg, marker(&jpeg, code), &[1, 2, 3]);
            assert_noted(&bytes, &jpeg, "3 extraneous bytes", &format!("{name} {code:x}"));
        }
        let mut bytes = jpeg.clone();
        let version = jpeg.windows(5).position(|found| found == b"JFIF\0").unwrap() + 5;
        bytes[version] = 0;
        assert_noted(&bytes, &jpeg, "unknown JFIF revision", name);
        for profiles in
            [[profile(1, 1), profile(1, 1)], [profile(1, 3), profile(3, 3)], [profile(0, 1), profile(1, 1)]]
        {
            let bytes = with(&jpeg, marker(&jpeg, 0xdb), &profiles.concat());
            assert_noted(&bytes, &jpeg, "bad ICC marker", name);
        }
    }
}

/// Whatever comes before, a JPEG without its end is cut short, as to Pillow.
#[test]
fn a_harmless_fault_hides_no_early_end() {
    for name in JPEGS {
        let jpeg = file(name);
        let scan = marker(&jpeg, 0xda) + 14;
        let junk = with(&jpeg, marker(&jpeg, 0xc4), &[1, 2]);
        let mut version = jpeg.clone();
        version[jpeg.windows(5).position(|found| found == b"JFIF\0").unwrap() + 5] = 3;
        let mut flipped = jpeg.clone();
        flipped[scan + 5..scan + 9].fill(0);
        for (case, bytes) in [("whole", &jpeg), ("junk", &junk), ("version", &version), ("flipped", &flipped)]
        {
            for missing in [1, 2, 3, 20, (jpeg.len() - scan) / 2] {
                let cut = &bytes[..bytes.len() - missing];
                for tail in [&[][..], &[0; 200], b"text"] {
                    let found = decoded(&[cut, tail].concat());
                    let case = format!("{name} {case} without {missing} and {} more", tail.len());
                    assert!(matches!(found, Err(ImageFault::Corrupt { .. })), "{case}");
                }
            }
        }
    }
}

/// An error behind a warning is an error: libjpeg-turbo gives it the warning's code.
#[test]
fn a_warning_hides_no_error() {
    let jpeg = file("progressive.jpg");
    let table = marker(&jpeg, 0xdb);
    // The first table's marker is none any more: its bytes are skipped, with a warning.
    let mut bytes = jpeg.clone();
    bytes[table] = 0xee;
    assert_corrupt(&bytes, "was not defined", "no table");
}

/// A PNG's chunks: name, and the range of the whole chunk.
fn chunks(png: &[u8]) -> Vec<([u8; 4], std::ops::Range<usize>)> {
    let (mut at, mut chunks) = (8, Vec::new());
    while let Some((length, rest)) = png[at..].split_first_chunk() {
        let end = at + 12 + u32::from_be_bytes(*length) as usize;
        chunks.push((*rest.first_chunk().unwrap(), at..end));
        at = end;
    }
    chunks
}

const PNGS: [&str; 9] = [
    "resize.png",
    "rgb8.png",
    "grey16.png",
    "palette_transparent.png",
    "interlaced.png",
    "interlaced_grey4.png",
    "rgba16.png",
    "grey1.png",
    "la8.png",
];

#[test]
fn a_png_without_its_end_or_with_a_wrong_checksum_is_read() {
    for name in PNGS {
        let png = file(name);
        let pixels = chunks(&png).into_iter().rev().find(|(kind, _)| kind == b"IDAT").unwrap().1;
        assert_noted(&png[..pixels.end], &png, "it ends too early", &format!("{name} without IEND"));
        for missing in [1, 4] {
            let cut = &png[..pixels.end - missing];
            assert_noted(
                cut,
                &png,
                "it ends too early",
                &format!("{name} without {missing} of the checksum"),
            );
        }
        assert_noted(
            &png[..pixels.end - 8],
            &png,
            "it ends too early",
            &format!("{name} without Adler's sum"),
        );
        let mut bytes = png.clone();
        bytes[pixels.end - 1] ^= 1;
        assert_noted(&bytes, &png, "while decoding IDAT chunk", &format!("{name} with a wrong checksum"));
    }
}

#[test]
fn a_png_that_pillow_refuses_is_refused() {
    for name in PNGS {
        let png = file(name);
        let chunks = chunks(&png);
        let pixels = chunks.iter().rev().find(|(kind, _)| kind == b"IDAT").unwrap().1.clone();
        let half = pixels.start + (pixels.len() - 12) / 2;
        assert_corrupt(&png[..half], "it ends too early", name);
        // The header's checksum, and the sum over the pixels.
        for at in [chunks[0].1.end - 1, pixels.end - 5] {
            let mut bytes = png.clone();
            bytes[at] ^= 1;
            assert_corrupt(&bytes, "", &format!("{name}: byte {at}"));
        }
    }
}

/// A WebP of `chunks`.
fn riff(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let mut content = b"WEBP".to_vec();
    for (name, bytes) in chunks {
        content.extend_from_slice(*name);
        content.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
        content.extend_from_slice(bytes);
        content.resize(content.len().next_multiple_of(2), 0);
    }
    [b"RIFF", &u32::try_from(content.len()).unwrap().to_le_bytes()[..], &content].concat()
}

/// The content of a simple file's only chunk.
fn image_of(webp: &[u8]) -> (&[u8; 4], &[u8]) {
    let length = u32::from_le_bytes(webp[16..20].try_into().unwrap()) as usize;
    (webp[12..16].try_into().unwrap(), &webp[20..20 + length])
}

/// A VP8X chunk's content for the test images, of 40 x 29 pixels.
fn header(flags: u8) -> [u8; 10] {
    [flags, 0, 0, 0, 39, 0, 0, 28, 0, 0]
}

#[test]
fn a_webp_may_lack_what_its_flags_announce() {
    for name in ["lossy.webp", "lossless.webp"] {
        let webp = file(name);
        let image = image_of(&webp);
        for flags in [0x04, 0x08, 0x20, 0x2c] {
            let bytes = riff(&[(b"VP8X", &header(flags)), image]);
            assert_noted(&bytes, &webp, "announces", &format!("{name} {flags:x}"));
            assert_eq!(orientation(&bytes) as u32, 1);
        }
        let unknown = riff(&[(b"VP8X", &header(0)), (b"abcd", b"odd"), image, (b"what", b"")]);
        assert_eq!(decoded(&unknown).unwrap(), decoded(&webp).unwrap());
    }
}

#[test]
fn a_webp_that_libwebp_refuses_is_refused() {
    let webp = file("lossy.webp");
    let image = image_of(&webp);
    for missing in [1, 2, 100] {
        assert_corrupt(&webp[..webp.len() - missing], "shorter than its header", "cut");
    }
    let mut wide = header(0);
    wide[4] = 40;
    let frame = [&[0; 16][..], b"VP8 \0\0\0\0"].concat();
    for (case, chunks) in [
        ("unknown flags", vec![(b"VP8X", &header(0x81)[..]), image]),
        ("two headers", vec![(b"VP8X", &header(0)), (b"VP8X", &header(0)), image]),
        ("another size", vec![(b"VP8X", &wide), image]),
        ("no image", vec![(b"VP8X", &header(0))]),
        ("a frame before ANIM", vec![(b"VP8X", &header(2)), (b"ANMF", &frame)]),
        ("an image in an animation", vec![(b"VP8X", &header(2)), (b"ANIM", &[0; 6]), image]),
        ("alpha behind the image", vec![(b"VP8X", &header(0x10)), image, (b"ALPH", b"\0")]),
    ] {
        assert_corrupt(&riff(&chunks), "", case);
    }
}

#[test]
fn a_frame_lies_on_a_black_canvas() {
    let webp = file("lossless.webp");
    let (name, image) = image_of(&webp);
    let inner = [&name[..], &u32::try_from(image.len()).unwrap().to_le_bytes(), image].concat();
    // At 6, 10 on a canvas of 50 x 40; 40 x 29 pixels.
    let frame = [&[3, 0, 0, 5, 0, 0, 39, 0, 0, 28, 0, 0, 9, 0, 0, 2][..], &inner].concat();
    let canvas = [2, 0, 0, 0, 49, 0, 0, 39, 0, 0];
    let bytes = riff(&[(b"VP8X", &canvas), (b"ANIM", &[255; 6]), (b"ANMF", &frame)]);
    let (pixels, _) = decoded(&bytes).unwrap();
    let (whole, _) = decoded(&webp).unwrap();
    let mut expected = vec![0; 3 * 50 * 40];
    for (row, line) in whole.chunks(3 * 40).zip(expected.chunks_mut(3 * 50).skip(10)) {
        line[18..18 + 120].copy_from_slice(row);
    }
    assert!(pixels == expected);
}

#[test]
fn images_of_other_kinds_are_named_and_not_called_damaged() {
    for (head, kind) in [
        (&b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf"[..], "AVIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"8BPS\0\x01\0\0\0\0\0\0", "PSD"),
        (b"GIF89a\x05\0\x06\0", "GIF"),
        (b"\xff\x0a\xfa\x1f", "JPEG XL"),
        (b"\0\0\x01\0\x01\0\x10\x10\0\0\x01\0", "ICO"),
    ] {
        let bytes = [head, &[7; 100]].concat();
        let fault = decoded(&bytes).unwrap_err();
        assert_eq!(fault, ImageFault::NoDecoder { kind });
        assert!(fault.to_string().starts_with(&format!("not decodable: {kind}; ")), "{fault}");
    }
}

#[test]
fn a_panic_is_a_fault_that_names_the_decoder() {
    let (mut decoder, jpeg) = (Decoder::new(), file("baseline.jpg"));
    let expected = decoder.decode(&jpeg).unwrap();
    let fault = decoder.decode_part(Media::Jpeg, &jpeg, |_| panic!("in the middle")).err().unwrap();
    let text = fault.to_string();
    assert!(
        text.starts_with("the jpeg decoder panicked, a defect of shade: in the middle (lenient.rs:"),
        "{text}"
    );
    assert_eq!(decoder.decode(&jpeg).unwrap(), expected);
}

/// Damages each image of the tests in many ways and looks at every message.
#[test]
fn messages_are_plain() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|kind| kind != "rgb" && kind != "py"));
    names.sort();
    let (mut decoder, mut state, mut messages) = (Decoder::new(), 1_u32, 0);
    for path in names {
        let whole = std::fs::read(&path).unwrap();
        for _ in 0..60 {
            let mut random = |below: usize| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as usize % below.max(1)
            };
            let mut bytes = whole.clone();
            for _ in 0..3 {
                // Most faults are in headers.
                let reach = if random(2) == 0 { 100 } else { usize::MAX };
                let at = random(bytes.len().min(reach));
                bytes[at] ^= u8::try_from(1 + random(255)).unwrap();
            }
            let is_cut = random(2) == 0;
            bytes.truncate(if is_cut { random(whole.len()) } else { whole.len() });
            let (media, width, height) = sniff(&bytes);
            if u64::from(width) * u64::from(height) > 1 << 20 {
                continue;
            }
            let text = match decoder.decode_part(media, &bytes, Part::whole) {
                Ok(pixels) => pixels.note.unwrap_or_default().to_owned(),
                Err(fault) => fault.to_string(),
            };
            messages += usize::from(!text.is_empty());
            let is_plain = !text.contains(['{', '}', '\n']) && !text.contains("::");
            assert!(is_plain && !text.contains("panicked"), "{}: {text}", path.display());
        }
    }
    assert!(messages > 1000, "{messages}");
}
