//! TIFF layouts, made by code: whatever the strips, tiles, planes, bit order, predictor and extra
//! samples are, the pixels are those that were put in.
#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test fails by panicking")]

use std::io::Write;

use proptest::prelude::*;
use shade_images::{Decoder, ImageFault};
use weezl::BitOrder;

const NONE: u16 = 1;
const LZW: u16 = 5;
const DEFLATE: u16 = 8;
const PACK_BITS: u16 = 32773;

const GREY: u16 = 1;
const RGB: u16 = 2;
const CMYK: u16 = 5;

/// How a page is stored.
#[derive(Clone, Debug)]
struct Page {
    width: usize,
    height: usize,
    photometric: u16,
    bits: usize,
    samples: usize,
    extra: Vec<u16>,
    compression: u16,
    is_big_endian: bool,
    has_planes: bool,
    /// Columns and rows of a tile; rows of a strip without columns.
    chunk: (Option<usize>, usize),
    has_differences: bool,
    is_reversed: bool,
    seed: u32,
}

impl Page {
    /// A sample of the picture.
    fn sample(&self, x: usize, y: usize, at: usize) -> u16 {
        let mixed = (x * 7 + y * 13 + at * 101) as u32 ^ self.seed;
        (mixed.wrapping_mul(0x9E37_79B1) >> 16) as u16 >> (16 - self.bits)
    }

    /// What the page shows, by Pillow's rules.
    fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let sample = |at| self.sample(x, y, at);
        let byte = |at| (if self.bits == 16 { sample(at) >> 8 } else { sample(at) }) as u8;
        match self.photometric {
            0 | GREY if self.bits == 16 => [sample(0).min(255) as u8; 3],
            0 | GREY => {
                let max = (1_u16 << self.bits) - 1;
                let value = if self.photometric == 0 { max - sample(0) } else { sample(0) };
                [(value * (255 / max)) as u8; 3]
            }
            RGB if self.extra.first() == Some(&1) => [0, 1, 2].map(|at| {
                let divided = (u32::from(byte(at)) * 255).checked_div(byte(3).into()).unwrap_or(0);
                divided.min(255) as u8
            }),
            RGB => [0, 1, 2].map(byte),
            _ => [0, 1, 2].map(|at| {
                let black = 255 - byte(3);
                let product = u32::from(byte(at)) * u32::from(black) + 128;
                black.saturating_sub((((product >> 8) + product) >> 8) as u8)
            }),
        }
    }

    fn rgb(&self) -> Vec<u8> {
        let pixels = (0..self.height).flat_map(|y| (0..self.width).map(move |x| (x, y)));
        pixels.flat_map(|(x, y)| self.pixel(x, y)).collect()
    }

    /// The stored bytes of a chunk: `columns` from `left` on, `rows` from `top` on, of the samples
    /// `from..to`. Samples beside the image are 0.
    fn chunk(&self, [left, columns]: [usize; 2], [top, rows]: [usize; 2], [from, to]: [usize; 2]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for y in top..top + rows {
            let mut row: Vec<u16> = Vec::new();
            for x in left..left + columns {
                let is_inside = x < self.width && y < self.height;
                row.extend((from..to).map(|at| if is_inside { self.sample(x, y, at) } else { 0 }));
            }
            let mask = u16::MAX >> (16 - self.bits);
            if self.has_differences {
                let before = row.clone();
                for (sample, before) in row.iter_mut().skip(to - from).zip(before) {
                    *sample = sample.wrapping_sub(before) & mask;
                }
            }
            match self.bits {
                16 if self.is_big_endian => bytes.extend(row.iter().flat_map(|word| word.to_be_bytes())),
                16 => bytes.extend(row.iter().flat_map(|word| word.to_le_bytes())),
                bits => {
                    let per_byte = 8 / bits;
                    bytes.extend(row.chunks(per_byte).map(|samples| {
                        (0..per_byte).fold(0, |byte: u8, at| {
                            let sample = samples.get(at).map_or(0, |&sample| sample as u8);
                            byte.checked_shl(bits as u32).unwrap_or(0) | sample
                        })
                    }));
                }
            }
        }
        let mut packed = match self.compression {
            LZW => weezl::encode::Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&bytes).unwrap(),
            DEFLATE => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&bytes).unwrap();
                encoder.finish().unwrap()
            }
            PACK_BITS => bytes.chunks(100).flat_map(|run| [&[run.len() as u8 - 1], run].concat()).collect(),
            _ => bytes,
        };
        if self.is_reversed {
            packed.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        }
        packed
    }

    fn chunks(&self) -> Vec<Vec<u8>> {
        let planes = if self.has_planes { self.samples } else { 1 };
        let (columns, rows) = (self.chunk.0.unwrap_or(self.width), self.chunk.1);
        let mut chunks = Vec::new();
        for plane in 0..planes {
            let samples = if self.has_planes { [plane, plane + 1] } else { [0, self.samples] };
            for top in (0..self.height).step_by(rows) {
                let rows = if self.chunk.0.is_some() { rows } else { rows.min(self.height - top) };
                for left in (0..self.width).step_by(columns) {
                    chunks.push(self.chunk([left, columns], [top, rows], samples));
                }
            }
        }
        chunks
    }

    fn file(&self) -> Vec<u8> {
        let word = |value: u16| if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let long = |value: u32| if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let chunks = self.chunks();
        let mut file =
            if self.is_big_endian { b"MM\0\x2a\0\0\0\0".to_vec() } else { b"II\x2a\0\0\0\0\0".to_vec() };
        let mut offsets = Vec::new();
        for chunk in &chunks {
            offsets.push(file.len() as u32);
            file.extend_from_slice(chunk);
        }
        let lengths = chunks.iter().map(|chunk| chunk.len() as u32).collect();
        let one = |value: usize| vec![value as u32];
        let many = |values: &[u16]| values.iter().map(|&value| value.into()).collect::<Vec<u32>>();
        let mut tags: Vec<(u16, Vec<u32>)> = vec![
            (256, one(self.width)),
            (257, one(self.height)),
            (258, vec![self.bits as u32; self.samples]),
            (259, many(&[self.compression])),
            (262, many(&[self.photometric])),
            (266, one(1 + usize::from(self.is_reversed))),
            (277, one(self.samples)),
            (284, one(1 + usize::from(self.has_planes))),
            (317, one(1 + usize::from(self.has_differences))),
        ];
        if !self.extra.is_empty() {
            tags.push((338, many(&self.extra)));
        }
        match self.chunk {
            (Some(columns), rows) => {
                tags.extend([(322, one(columns)), (323, one(rows)), (324, offsets), (325, lengths)]);
            }
            (None, rows) => tags.extend([(273, offsets), (278, one(rows)), (279, lengths)]),
        }
        tags.sort();
        let mut directory = word(tags.len() as u16).to_vec();
        for (tag, values) in &tags {
            directory.extend([word(*tag), word(4)].concat());
            directory.extend(long(values.len() as u32));
            if let [value] = values.as_slice() {
                directory.extend(long(*value));
            } else {
                directory.extend(long(file.len() as u32));
                file.extend(values.iter().flat_map(|&value| long(value)));
            }
        }
        let at = long(file.len() as u32);
        file.splice(4..8, at);
        file.extend(directory);
        file.extend([0; 4]);
        file
    }
}

/// Samples of a pixel that are decoded: interpretation, bits, number, extra samples.
fn colours() -> impl Strategy<Value = (u16, usize, usize, Vec<u16>)> {
    prop_oneof![
        (0..=GREY, prop::sample::select(vec![1, 2, 4, 8, 16])).prop_map(|(grey, bits)| (
            grey,
            bits,
            1,
            vec![]
        )),
        prop::sample::select(vec![0, 2]).prop_map(|extra| (GREY, 8, 2, vec![extra])),
        prop::sample::select(vec![8, 16]).prop_map(|bits| (RGB, bits, 3, vec![])),
        (prop::sample::select(vec![8, 16]), 0..=2_u16).prop_map(|(bits, extra)| (RGB, bits, 4, vec![extra])),
        (0..=2_u16).prop_map(|extra| (RGB, 8, 5, vec![extra, 0])),
        prop::sample::select(vec![8, 16]).prop_map(|bits| (CMYK, bits, 4, vec![])),
        Just((CMYK, 8, 5, vec![0])),
    ]
}

fn page() -> impl Strategy<Value = Page> {
    let chunk = prop_oneof![
        (1..40_usize).prop_map(|rows| (None, rows)),
        (1..=3_usize, 1..=3_usize).prop_map(|(across, down)| (Some(16 * across), 16 * down)),
    ];
    let compression = prop::sample::select(vec![NONE, LZW, DEFLATE, PACK_BITS]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (1..70_usize, 1..50_usize, colours(), compression, chunk, flags, any::<u32>()).prop_map(
        |(width, height, (photometric, bits, samples, extra), compression, chunk, flags, seed)| {
            let (is_big_endian, has_planes, has_differences, is_reversed) = flags;
            let may_differ = matches!(compression, LZW | DEFLATE) && bits >= 8;
            Page {
                width,
                height,
                photometric,
                bits,
                samples,
                extra,
                compression,
                is_big_endian,
                has_planes: has_planes && samples > 1,
                chunk,
                has_differences: has_differences && may_differ,
                is_reversed,
                seed,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_layout_gives_the_pixels_that_were_put_in(page in page()) {
        let image = Decoder::new().decode(&page.file()).unwrap();
        prop_assert_eq!((image.size().width as usize, image.size().height as usize), (page.width, page.height));
        prop_assert!(image.rgb() == page.rgb());
    }
}

fn usual() -> Page {
    Page {
        width: 50,
        height: 20,
        photometric: RGB,
        bits: 8,
        samples: 3,
        extra: Vec::new(),
        compression: LZW,
        is_big_endian: false,
        has_planes: false,
        chunk: (Some(16), 16),
        has_differences: true,
        is_reversed: false,
        seed: 1,
    }
}

#[test]
fn what_is_not_decoded_is_named() {
    let grey = Page { photometric: GREY, samples: 1, has_differences: false, ..usual() };
    let cases = [
        (Page { photometric: 3, ..grey.clone() }, "palette"),
        (Page { photometric: 6, ..usual() }, "YCbCr"),
        (Page { bits: 4, has_differences: true, ..grey.clone() }, "predictor 2 of samples of 4 bits"),
        (Page { photometric: GREY, samples: 2, extra: vec![1], ..usual() }, "2 grey samples"),
        (Page { samples: 4, has_planes: true, ..usual() }, "4 RGB samples"),
        (Page { compression: 7, has_differences: false, ..usual() }, "JPEG compression"),
        (Page { compression: 34712, has_differences: false, ..usual() }, "compression 34712"),
        (Page { bits: 4, chunk: (Some(17), 16), ..grey }, "tiles that end within a byte"),
    ];
    for (page, expected) in cases {
        let found = Decoder::new().decode(&page.file());
        let is_named =
            matches!(&found, Err(ImageFault::Unsupported { detail, .. }) if detail.contains(expected));
        assert!(is_named, "{expected}: {found:?}");
    }
}
