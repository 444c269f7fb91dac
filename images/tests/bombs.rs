//! Headers that claim gigabytes, and streams that inflate to them, cost no memory. In a process of
//! its own, to be measured.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use libdeflater::{CompressionLvl, Compressor, crc32};
use shade_images::{Decoder, ImageFault};

/// More than the decoders need to look at a header or to decode a pixel.
const BYTES_MAX: u64 = 16 << 20;

/// The most address space that this process ever had, so that memory is counted which was asked for
/// and never touched.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

fn png(width: u32, height: u32, stream: &[u8]) -> Vec<u8> {
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", &header[..]), (b"IDAT", stream), (b"IEND", &[])] {
        let checked = [kind, data].concat();
        file.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        file.extend(&checked);
        file.extend(crc32(&checked).to_be_bytes());
    }
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
    let zeros = vec![0; 64 << 20];
    let mut stream = vec![0; 1 << 20];
    let len = Compressor::new(CompressionLvl::default()).zlib_compress(&zeros, &mut stream).unwrap();
    let inflating = png(1, 1, &stream[..len]);
    let large = [(60_000, png(60_000, 60_000, &stream[..len])), (65_500, jpeg(65_500, 65_500))];

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
    // Until here, so that the peak is not theirs alone.
    drop(zeros);
}
