//! A PNG gives what the `png` crate alone gives, pixels or words, whichever way it goes: made in
//! many ways, and damaged. For the one exception see `fuzz/src/lib.rs`.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use libdeflater::{CompressionLvl, Compressor, crc32};
use png::{BitDepth, ColorType, Compression, Encoder, Filter};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use shade_images::{Decoder, ImageFault};

#[path = "../fuzz/src/lib.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a crate's, and has other targets")]
mod checks;

/// How a PNG is made.
#[derive(Clone, Debug)]
struct Plan {
    colour: ColorType,
    depth: BitDepth,
    size: (u32, u32),
    compression: Compression,
    filter: Filter,
    /// Steps from byte to byte before the filter: small ones compress.
    steps: Vec<u8>,
    /// Colours of the palette, which may be too few.
    colours: usize,
    transparency: usize,
    /// Bytes of an IDAT.
    piece: usize,
    /// Kinds of chunks between the header and the image data, one for each of its pieces, and
    /// behind it.
    others: Vec<[u8; 4]>,
}

/// Some that matter, some that do not, some that there are not.
const OTHERS: [[u8; 4]; 9] =
    [*b"tEXt", *b"gAMA", *b"pHYs", *b"eXIf", *b"zzZz", *b"acTL", *b"tRNS", *b"PLTE", *b"ZZZZ"];

fn plan() -> impl Strategy<Value = Plan> {
    use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
    // Mostly what the shortcut takes.
    let kinds = prop_oneof![
        12 => select(&[Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba]).prop_map(|colour| (colour, BitDepth::Eight)),
        1 => select(&[Grayscale, GrayscaleAlpha, Rgb, Rgba]).prop_map(|colour| (colour, BitDepth::Sixteen)),
        1 => (select(&[Grayscale, Indexed]), select(&[BitDepth::One, BitDepth::Two, BitDepth::Four])),
    ];
    let filters =
        select(&[Filter::NoFilter, Filter::Sub, Filter::Up, Filter::Avg, Filter::Paeth, Filter::Adaptive]);
    let compressions = select(&[Compression::NoCompression, Compression::Fastest, Compression::Balanced]);
    let others = select(&OTHERS[..]);
    (
        (kinds, 1..40u32, 1..40u32, compressions, filters),
        prop::collection::vec(prop_oneof![0..3u8, any::<u8>()], 1..300),
        (1..257usize, 0..20usize, prop_oneof![1..200usize, Just(1 << 20)]),
        prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(others, 1..3)],
    )
        .prop_map(
            |((kind, width, height, compression, filter), steps, (colours, transparency, piece), others)| {
                let ((colour, depth), size) = (kind, (width, height));
                Plan { colour, depth, size, compression, filter, steps, colours, transparency, piece, others }
            },
        )
}

/// The chunks that an encoder writes, the image data in other pieces and other chunks in between.
fn made(plan: &Plan) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, plan.size.0, plan.size.1);
    encoder.set_color(plan.colour);
    encoder.set_depth(plan.depth);
    encoder.set_compression(plan.compression);
    encoder.set_filter(plan.filter);
    if plan.colour == ColorType::Indexed {
        let ramp = |times: u8| move |at: usize| u8::try_from(at % 256).unwrap().wrapping_mul(times);
        encoder.set_palette((0..plan.colours * 3).map(ramp(37)).collect::<Vec<u8>>());
        if plan.transparency > 0 {
            encoder.set_trns((0..plan.transparency).map(ramp(53)).collect::<Vec<u8>>());
        }
    }
    let bits = plan.size.0 as usize * plan.colour.samples() * plan.depth as usize;
    let row = bits.div_ceil(8);
    let steps = plan.steps.iter().cycle().take(row * plan.size.1 as usize);
    let samples: Vec<u8> = steps
        .scan(0_u8, |sample, step| {
            *sample = sample.wrapping_add(*step);
            Some(*sample)
        })
        .collect();
    encoder.write_header().unwrap().write_image_data(&samples).unwrap();

    let mut other = plan.others.iter();
    let mut taken = file[..8].to_vec();
    let mut rest = &file[8..];
    while let Some((length, _)) = rest.split_first_chunk::<4>() {
        let (chunk, behind) = rest.split_at(12 + u32::from_be_bytes(*length) as usize);
        let (kind, data) = (&chunk[4..8], &chunk[8..chunk.len() - 4]);
        if kind == b"IDAT" {
            if let Some(kind) = other.next() {
                push(&mut taken, kind, &[1, 2, 3, 4, 5, 6]);
            }
            data.chunks(plan.piece).for_each(|piece| push(&mut taken, kind, piece));
        } else {
            if kind == b"IEND" {
                other.by_ref().for_each(|kind| push(&mut taken, kind, &[0, 1]));
            }
            push(&mut taken, kind, data);
        }
        rest = behind;
    }
    taken
}

fn push(file: &mut Vec<u8>, kind: &[u8], data: &[u8]) {
    file.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    let start = file.len();
    file.extend([kind, data].concat());
    let crc = crc32(&file[start..]);
    file.extend(crc.to_be_bytes());
}

/// The crate panics on it where colours are looked up.
#[test]
fn a_palette_of_broken_colours_is_refused_where_it_is_used() {
    let decode = |colour: u8, samples: &[u8]| {
        let mut stream = vec![0; 100];
        let len = Compressor::new(CompressionLvl::default()).zlib_compress(samples, &mut stream).unwrap();
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        push(&mut file, b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, colour, 0, 0, 0]);
        push(&mut file, b"PLTE", &[9; 4]);
        push(&mut file, b"IDAT", &stream[..len]);
        push(&mut file, b"IEND", &[]);
        checks::png(&file);
        Decoder::new().decode(&file)
    };
    assert!(matches!(decode(3, &[0, 0]), Err(ImageFault::Corrupt { .. })));
    assert_eq!(decode(2, &[0, 1, 2, 3]).unwrap().rgb(), [1, 2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_png_gives_what_the_crate_alone_gives(plan in plan()) {
        checks::png(&made(&plan));
    }

    #[test]
    fn so_does_a_damaged_one(
        plan in plan(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..4),
        cut in prop::option::weighted(0.3, any::<Index>()),
        tail in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let mut bytes = made(&plan);
        for (at, flip) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(tail);
        checks::png(&bytes);
    }
}
