//! An image's pixels do not depend on the images that the decoder had before.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use shade_images::{Decoder, ImageFault};

fn baseline() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/baseline.jpg")).unwrap()
}

#[test]
fn a_jpeg_is_fine_whatever_damage_the_one_before_had() {
    let good = baseline();
    let expected = Decoder::new().decode(&good).unwrap();
    let scan = good.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
    let mut decoder = Decoder::new();
    let mut refused = 0;
    for at in 2..scan + 14 {
        for value in [0x00, 0x55, 0xd9, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            for bad in [&bad[..], &bad[..=at]] {
                refused += u32::from(decoder.decode(bad).is_err());
                let found = decoder.decode(&good);
                assert!(found.as_ref() == Ok(&expected), "after {value:#x} at {at}: {:?}", found.err());
            }
        }
    }
    assert!(refused > 1000, "{refused} of the damaged ones were refused");
}

#[test]
fn a_jpeg_without_tables_does_not_take_those_of_the_one_before() {
    let good = baseline();
    let mut tables = 0;
    let mut without = good[..2].to_vec();
    let mut rest = &good[2..];
    while rest[1] != 0xda {
        let (segment, behind) = rest.split_at(2 + usize::from(u16::from_be_bytes([rest[2], rest[3]])));
        if segment[1] == 0xdb {
            tables += 1;
        } else {
            without.extend(segment);
        }
        rest = behind;
    }
    without.extend(rest);
    assert!(tables > 0);
    let mut decoder = Decoder::new();
    decoder.decode(&good).unwrap();
    let found = decoder.decode(&without);
    assert!(matches!(found, Err(ImageFault::Corrupt { .. })), "{found:?}");
}
