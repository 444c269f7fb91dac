//! A record's kind and its image's size, from its first bytes; nothing is decoded.
//!
//! A format's parser returns `None` where it cannot tell the size (cut short, an odd variant, or a
//! side above 65,535). The size is then 0 x 0, which readers take as "ask the decoder".

use super::entry::Media;

/// Width and height.
type Sides = Option<(u16, u16)>;

/// The kind of the image that begins with `head`, its width and its height in pixels; 0 x 0 where
/// the size is unknown. JPEG and TIFF may have their size far behind.
#[must_use]
pub fn sniff(head: &[u8]) -> (Media, u16, u16) {
    let (media, size) = match head {
        [0xff, 0xd8, 0xff, ..] => (Media::Jpeg, jpeg(head)),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => (Media::Png, png(head)),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => (Media::Webp, webp(head)),
        [b'P', b'1'..=b'6', b'\t' | b'\n' | b'\r' | b' ' | b'#', ..] => (Media::Ppm, netpbm(head)),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => (Media::Gif, gif(head)),
        [b'I', b'I', 42 | 43, 0, ..] => (Media::Tiff, tiff(head, u16::from_le_bytes, u32::from_le_bytes)),
        [b'M', b'M', 0, 42 | 43, ..] => (Media::Tiff, tiff(head, u16::from_be_bytes, u32::from_be_bytes)),
        // Two letters prove little; real files also have four zero bytes behind the length.
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => (Media::Bmp, bmp(head)),
        _ => (Media::Other, None),
    };
    let (width, height) = or_unknown(size);
    (media, width, height)
}

/// Where the first directory of the TIFF that begins with `head` lies. It has the size, and many
/// programs write it behind the pixels. `None` for other kinds, and for BigTIFF.
#[must_use]
pub fn tiff_directory(head: &[u8]) -> Option<u32> {
    match head {
        [b'I', b'I', 42, 0, ..] => Some(u32::from_le_bytes(take(head, 4)?)),
        [b'M', b'M', 0, 42, ..] => Some(u32::from_be_bytes(take(head, 4)?)),
        _ => None,
    }
}

/// Width and height, in pixels, of the TIFF that begins with `head`, by its `directory`, which may
/// be cut short; 0 x 0 where the size is unknown.
#[must_use]
pub fn sniff_directory(head: &[u8], directory: &[u8]) -> (u16, u16) {
    or_unknown(match head {
        [b'I', b'I', ..] => directory_sides(directory, u16::from_le_bytes, u32::from_le_bytes),
        [b'M', b'M', ..] => directory_sides(directory, u16::from_be_bytes, u32::from_be_bytes),
        _ => None,
    })
}

fn or_unknown(size: Sides) -> (u16, u16) {
    size.filter(|&(width, height)| width > 0 && height > 0).unwrap_or((0, 0))
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn sides(width: u32, height: u32) -> Sides {
    Some((u16::try_from(width).ok()?, u16::try_from(height).ok()?))
}

/// Walks the markers to the first frame header (SOFn).
fn jpeg(bytes: &[u8]) -> Sides {
    let mut at = 2usize;
    loop {
        let [mark] = take(bytes, at)?;
        at = at.checked_add(1)?;
        if mark != 0xff {
            return None;
        }
        let mut code = 0xff;
        while code == 0xff {
            [code] = take(bytes, at)?;
            at = at.checked_add(1)?;
        }
        match code {
            // Markers without a length.
            0x01 | 0xd0..=0xd8 => {}
            // SOFn, but not DHT, JPG and DAC, which share the range.
            0xc0..=0xcf if !matches!(code, 0xc4 | 0xc8 | 0xcc) => {
                let height = u16::from_be_bytes(take(bytes, at.checked_add(3)?)?);
                let width = u16::from_be_bytes(take(bytes, at.checked_add(5)?)?);
                return Some((width, height));
            }
            // The scan or the end before any frame.
            0xd9 | 0xda => return None,
            _ => {
                let len = u16::from_be_bytes(take(bytes, at)?);
                if len < 2 {
                    return None;
                }
                at = at.checked_add(len.into())?;
            }
        }
    }
}

fn png(bytes: &[u8]) -> Sides {
    if take(bytes, 12)? != *b"IHDR" {
        return None;
    }
    sides(u32::from_be_bytes(take(bytes, 16)?), u32::from_be_bytes(take(bytes, 20)?))
}

fn webp(bytes: &[u8]) -> Sides {
    match &take::<4>(bytes, 12)? {
        // Lossy: a key frame's start code, then two 14-bit sides below two bits of scale.
        b"VP8 " if take(bytes, 23)? == [0x9d, 0x01, 0x2a] => {
            let width = u16::from_le_bytes(take(bytes, 26)?) & 0x3fff;
            let height = u16::from_le_bytes(take(bytes, 28)?) & 0x3fff;
            Some((width, height))
        }
        // Lossless: a signature byte, then 14 bits of width - 1 and 14 bits of height - 1.
        b"VP8L" if take(bytes, 20)? == [0x2f] => {
            let bits = u32::from_le_bytes(take(bytes, 21)?);
            sides((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)
        }
        // Extended: a canvas of 24-bit sides - 1.
        b"VP8X" => {
            let [w0, w1, w2, h0, h1, h2] = take(bytes, 24)?;
            sides(u32::from_le_bytes([w0, w1, w2, 0]) + 1, u32::from_le_bytes([h0, h1, h2, 0]) + 1)
        }
        _ => None,
    }
}

fn gif(bytes: &[u8]) -> Sides {
    Some((u16::from_le_bytes(take(bytes, 6)?), u16::from_le_bytes(take(bytes, 8)?)))
}

fn bmp(bytes: &[u8]) -> Sides {
    if u32::from_le_bytes(take(bytes, 14)?) == 12 {
        // OS/2 1.x has 16-bit sides.
        return Some((u16::from_le_bytes(take(bytes, 18)?), u16::from_le_bytes(take(bytes, 20)?)));
    }
    let width = i32::from_le_bytes(take(bytes, 18)?);
    // A negative height means rows from top to bottom.
    let height = i32::from_le_bytes(take(bytes, 22)?);
    sides(u32::try_from(width).ok()?, height.unsigned_abs())
}

/// Two decimal numbers after the magic, separated by blanks and `#` comments.
fn netpbm(bytes: &[u8]) -> Sides {
    let mut rest = bytes.get(2..)?;
    let mut next = || -> Option<u16> {
        loop {
            let (&first, tail) = rest.split_first()?;
            match first {
                b'#' => {
                    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
                    rest = rest.get(end..)?;
                }
                b'0'..=b'9' => {
                    let len = rest.iter().position(|byte| !byte.is_ascii_digit())?;
                    let (digits, tail) = rest.split_at_checked(len)?;
                    rest = tail;
                    return std::str::from_utf8(digits).ok()?.parse().ok();
                }
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => rest = tail,
                _ => return None,
            }
        }
    };
    Some((next()?, next()?))
}

/// The first directory's size. BigTIFF's is left to the decoder.
fn tiff(bytes: &[u8], short: fn([u8; 2]) -> u16, long: fn([u8; 4]) -> u32) -> Sides {
    if short(take(bytes, 2)?) != 42 {
        return None;
    }
    let directory = usize::try_from(long(take(bytes, 4)?)).ok()?;
    directory_sides(bytes.get(directory..)?, short, long)
}

/// The ImageWidth (256) and ImageLength (257) of a TIFF's directory.
fn directory_sides(directory: &[u8], short: fn([u8; 2]) -> u16, long: fn([u8; 4]) -> u32) -> Sides {
    let count = usize::from(short(take(directory, 0)?));
    let fields = directory.get(2..)?;
    let (mut width, mut height) = (None, None);
    for field in fields.chunks_exact(12).take(count) {
        let value = match short(take(field, 2)?) {
            3 => Some(u32::from(short(take(field, 8)?))),
            4 => Some(long(take(field, 8)?)),
            _ => None,
        };
        match short(take(field, 0)?) {
            256 => width = value,
            257 => height = value,
            _ => {}
        }
    }
    sides(width?, height?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jpeg_with(prefix: &[u8], frame: u8) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xd8];
        bytes.extend(prefix);
        bytes.extend([0xff, 0xff, frame, 0, 11, 8, 0x01, 0x02, 0x03, 0x04, 1]);
        bytes
    }

    #[test]
    fn jpeg_sizes_are_found_behind_other_markers() {
        let app1 = [0xff, 0xe1, 0, 6, 0xff, 0xc0, 9, 9];
        let tables = [0xff, 0xc4, 0, 3, 0];
        for prefix in [&app1[..], &tables, &[]] {
            for frame in [0xc0, 0xc1, 0xc2, 0xc9] {
                assert_eq!(
                    sniff(&jpeg_with(prefix, frame)),
                    (Media::Jpeg, 0x304, 0x102),
                    "{prefix:?} {frame:#x}"
                );
            }
        }
        assert_eq!(sniff(&[0xff, 0xd8, 0xff, 0xda, 0, 2]), (Media::Jpeg, 0, 0));
        assert_eq!(sniff(&[0xff, 0xd8, 0xff, 0xe0, 0, 0]), (Media::Jpeg, 0, 0));
    }

    #[test]
    fn each_kind_tells_its_size() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\x02\0";
        assert_eq!(sniff(png), (Media::Png, 256, 512));
        let wide = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\x01\0\0\0\0\x02\0";
        assert_eq!(sniff(wide), (Media::Png, 0, 0));
        assert_eq!(sniff(b"GIF89a\x05\0\x06\0"), (Media::Gif, 5, 6));
        assert_eq!(sniff(b"P6\n# by hand\n12 34\n255\n"), (Media::Ppm, 12, 34));
        assert_eq!(sniff(b"P5#x\r7\t8 1 "), (Media::Ppm, 7, 8));
        assert_eq!(sniff(b"P6 99999 1 "), (Media::Ppm, 0, 0));
        let mut bmp = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
        bmp.extend(640i32.to_le_bytes());
        bmp.extend((-480i32).to_le_bytes());
        assert_eq!(sniff(&bmp), (Media::Bmp, 640, 480));
        assert_eq!(sniff(b"BM is how this text begins"), (Media::Other, 0, 0));
        assert_eq!(sniff(b""), (Media::Other, 0, 0));
    }

    #[test]
    fn the_three_webp_forms_tell_their_size() {
        let riff = |chunk: &[u8]| [b"RIFF\0\0\0\0WEBP", chunk].concat();
        let lossy = riff(b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x20\x43\x10\0");
        assert_eq!(sniff(&lossy), (Media::Webp, 0x320, 16));
        let bits = (99u32 | 49 << 14).to_le_bytes();
        let lossless = riff(&[&b"VP8L\0\0\0\0\x2f"[..], &bits].concat());
        assert_eq!(sniff(&lossless), (Media::Webp, 100, 50));
        let extended = riff(b"VP8X\x0a\0\0\0\0\0\0\0\xff\x01\0\x0f\0\0");
        assert_eq!(sniff(&extended), (Media::Webp, 512, 16));
    }

    #[test]
    fn both_byte_orders_of_tiff_tell_their_size() {
        let little =
            b"II\x2a\0\x08\0\0\0\x02\0\0\x01\x03\0\x01\0\0\0\x07\0\0\0\x01\x01\x04\0\x01\0\0\0\x09\0\0\0";
        assert_eq!(sniff(little), (Media::Tiff, 7, 9));
        let big =
            b"MM\0\x2a\0\0\0\x08\0\x02\x01\0\0\x03\0\0\0\x01\0\x07\0\0\x01\x01\0\x04\0\0\0\x01\0\0\0\x09";
        assert_eq!(sniff(big), (Media::Tiff, 7, 9));
        assert_eq!(sniff(b"II\x2b\0\x08\0\0\0"), (Media::Tiff, 0, 0));
        // The directory alone, as it is read where it lies far behind.
        for whole in [&little[..], &big[..]] {
            assert_eq!(tiff_directory(whole), Some(8));
            assert_eq!(sniff_directory(&whole[..8], &whole[8..]), (7, 9));
            assert_eq!(sniff_directory(&whole[..8], &whole[8..30]), (0, 0), "cut before the height");
        }
        for other in [&b"II\x2b\0\x08\0\0\0"[..], b"II\x2a\0\x08", b"GIF89a\x05\0\x06\0", b""] {
            assert_eq!((tiff_directory(other), sniff_directory(other, &[])), (None, (0, 0)));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            magic in 0usize..9,
            tail in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let magics: [&[u8]; 9] = [
                b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"RIFF\0\0\0\0WEBPVP8L", b"RIFF\0\0\0\0WEBPVP8X",
                b"P6 ", b"GIF89a", b"II\x2a\0", b"MM\0\x2a\0\0", b"BM\0\0\0\0\0\0\0\0",
            ];
            let bytes = [magics[magic], &tail].concat();
            let (_, width, height) = sniff(&bytes);
            prop_assert_eq!(width == 0, height == 0);
            let (width, height) = sniff_directory(&bytes, &tail);
            prop_assert_eq!(width == 0, height == 0);
        }
    }
}
