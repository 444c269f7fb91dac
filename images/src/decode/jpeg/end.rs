//! Whether a JPEG comes to its end.

use memchr::memchr;

/// Whether libjpeg finds an end of image marker in `bytes`, behind anything that is out of place.
///
/// Where there is none, libjpeg makes up the rest of the image, and Pillow calls the file
/// truncated. libjpeg's own warning about it is not told if another one came before.
pub(super) fn has_end(bytes: &[u8]) -> bool {
    /// Start and end of image.
    const SOI: u8 = 0xD8;
    const EOI: u8 = 0xD9;
    let mut rest = bytes;
    while let Some(at) = memchr(0xFF, rest) {
        // Fill bytes may stand before a marker's code.
        let mut marker = rest.get(at..).unwrap_or_default().iter();
        let Some(&code) = marker.find(|&&byte| byte != 0xFF) else { return false };
        let behind = marker.as_slice();
        rest = match code {
            EOI => return true,
            // A stuffed zero and markers without a length.
            0 | 1 | 0xD0..=SOI => behind,
            _ => {
                let length = behind.first_chunk().map_or(0, |&length| u16::from_be_bytes(length));
                behind.get(usize::from(length)..).unwrap_or_default()
            }
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_behind_anything() {
        let scan = b"\xff\xd8\xff\xda\0\x02\x01\xff\0\x02\xff\xd3\x03";
        let with = |tail: &[u8]| has_end(&[scan, tail].concat());
        assert!(!has_end(b"") && !has_end(b"\xff") && !with(b""));
        assert!(with(b"\xff\xd9"));
        assert!(with(b"\0\0\xff\xff\xd9more"), "bytes that are left over and a fill byte");
        assert!(with(b"\xff\xc4\0\x04\x01\x02\xff\xda\0\x02\xff\xd9"), "another scan");
        assert!(!with(b"\xff"), "half a marker");
        assert!(!with(b"\xff\xfe\0\x04\xff\xd9"), "within a comment");
        assert!(!with(b"\xff\xfe\xff\xff\xff\xd9"), "a segment that is cut short");
    }
}
