//! Headers that claim gigabytes, and streams that inflate to them, cost no memory. This test has a
//! process of its own, so that its memory can be measured.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use shade_images::{Decoder, ImageFault};

/// More than the decoders need to look at a header or to decode a pixel.
const BYTES_MAX: u64 = 16 << 20;

/// Peak of this process's address space, which counts memory that was allocated but never touched.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// A zlib stream of 1 + 258 * `times` zeros: 13 bits for each 258 of them.
fn zeros(times: u32) -> Vec<u8> {
    // The fixed Huffman codes of RFC 1951: a last block, the literal 0, a copy of 258 bytes from
    // one byte before, the end.
    let copies = (0..times).flat_map(|_| "1100010100000".bytes());
    let bits: Vec<u8> = "11000110000".bytes().chain(copies).chain("0000000".bytes()).collect();
    let packed = bits
        .chunks(8)
        .map(|bits| bits.iter().rev().fold(0_u8, |byte, &bit| byte << 1 | u8::from(bit == b'1')));
    let adler = ((1 + 258 * times) % 65_521) << 16 | 1;
    [0x78, 1].into_iter().chain(packed).chain(adler.to_be_bytes()).collect()
}

/// A PNG that claims `width` x `height` pixels.
fn png(width: u32, height: u32, stream: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_chunk(png::chunk::IDAT, stream).unwrap();
    drop(writer);
    file
}

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/baseline.jpg")).unwrap();
    let frame = file.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    file[frame + 5..frame + 9].copy_from_slice([height.to_be_bytes(), width.to_be_bytes()].as_flattened());
    file
}

#[test]
fn bombs_cost_no_memory() {
    // 64 MB of zeros in less than 1 MB. Its image has one black pixel, whose line and filter are
    // the first four.
    let stream = zeros((64 << 20) / 258);
    assert!(stream.len() < 1 << 20);
    let inflating = png(1, 1, &stream);
    let large = [(60_000, png(60_000, 60_000, &stream)), (65_500, jpeg(65_500, 65_500))];

    // What is set up once.
    let mut decoder = Decoder::new();
    let _ = (decoder.decode(&jpeg(37, 21)), decoder.decode(&png(1, 1, &[])));
    let before = peak_bytes();
    for (side, file) in &large {
        let expected = ImageFault::Size { width: *side, height: *side };
        assert_eq!(decoder.decode(file), Err(expected));
    }
    assert_eq!(decoder.decode(&inflating).unwrap().rgb(), [0, 0, 0]);
    let grown = peak_bytes() - before;
    println!("{} KB more than the {} MB before", grown >> 10, before >> 20);
    assert!(grown < BYTES_MAX, "{grown} bytes");
}
