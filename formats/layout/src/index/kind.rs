//! What a file is, by its first bytes: also kinds that shade cannot decode, and what is no image.
//!
//! [`sniff`](super::sniff) knows the kinds that an index records. People want to know more of a
//! file that is none of them: an AVIF needs another format, a web page another download.

use super::entry::Media;
use super::media::sniff;

/// Bytes of a file that are enough to tell its kind.
pub const KIND_BYTES: usize = 4096;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A kind of image that shade decodes.
    Image(Media),
    /// Another kind of image, by its name: `AVIF`, `GIF`, `HEIC`, `JPEG 2000`, `PSD`.
    OtherImage(&'static str),
    /// No image, by what it is: `HTML`, `a Git LFS pointer`, `text`.
    NoImage(&'static str),
}

impl Kind {
    /// The kind of the file that begins with `head`: its first [`KIND_BYTES`], or all of it.
    #[must_use]
    pub fn of(head: &[u8]) -> Self {
        match sniff(head).0 {
            Media::Gif => Self::OtherImage("GIF"),
            Media::Other => other(head),
            media => Self::Image(media),
        }
    }

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Image(media) => media.name(),
            Self::OtherImage(name) | Self::NoImage(name) => name,
        }
    }
}

/// First bytes of images without a decoder. The longer ones come first where two agree.
const IMAGES: [(&[u8], &str); 25] = [
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"8BPS", "PSD"),
    (b"\x8aMNG\r\n\x1a\n", "MNG"),
    (b"\x8bJNG\r\n\x1a\n", "JNG"),
    (b"\x76\x2f\x31\x01", "OpenEXR"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"#?RGBE", "Radiance HDR"),
    (b"DDS ", "DDS"),
    (b"\xabKTX ", "KTX"),
    (b"II\xbc\x01", "JPEG XR"),
    (b"II\xbc\0", "JPEG XR"),
    (b"IIRO", "ORF"),
    (b"IIRS", "ORF"),
    (b"IIU\0", "RW2"),
    (b"FUJIFILMCCD-RAW", "RAF"),
    (b"gimp xcf", "XCF"),
    (b"qoif", "QOI"),
    (b"farbfeld", "farbfeld"),
    (b"SIMPLE  =", "FITS"),
    (b"P7\n", "PAM"),
    (b"PF\n", "PFM"),
    (b"Pf\n", "PFM"),
];

/// First bytes of what is no image.
const NO_IMAGES: [(&[u8], &str); 20] = [
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer"),
    (b"%PDF-", "PDF"),
    (b"%!PS", "PostScript"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PK\x03\x04", "ZIP"),
    (b"PK\x05\x06", "ZIP"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"SQLite format 3\0", "SQLite"),
    (b"\x7fELF", "a program"),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (b"OggS", "Ogg"),
    (b"ID3", "MP3"),
    (b"\0\x05\x16\x07", "AppleDouble"),
    (b"\0\x05\x16\0", "AppleSingle"),
];

/// What text begins with, without the blanks before it, in lower case.
const TEXTS: [(&[u8], &str); 4] =
    [(b"<!doctype html", "HTML"), (b"<html", "HTML"), (b"<head", "HTML"), (b"<body", "HTML")];

fn other(head: &[u8]) -> Kind {
    let known = |table: &[(&[u8], &'static str)]| {
        table.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name)
    };
    if let Some(kind) = boxed(head) {
        return kind;
    }
    if let Some(name) = known(&IMAGES) {
        return Kind::OtherImage(name);
    }
    if let Some(name) = known(&NO_IMAGES) {
        return Kind::NoImage(name);
    }
    if icon(head) {
        return Kind::OtherImage("ICO");
    }
    if head.is_empty() {
        return Kind::NoImage("an empty file");
    }
    if head.iter().all(|byte| *byte == 0) {
        return Kind::NoImage("zeros");
    }
    text(head).unwrap_or(Kind::NoImage("of no known kind"))
}

/// Files of ISO boxes: the brands of the first box tell AVIF and HEIC from films.
fn boxed(head: &[u8]) -> Option<Kind> {
    if head.get(4..8)? != b"ftyp" {
        return None;
    }
    let length = u32::from_be_bytes(*head.first_chunk()?) as usize;
    let end = length.clamp(16, 512).min(head.len());
    // Major brand, version, then compatible brands.
    let brands = head.get(8..end)?.chunks_exact(4);
    let named = |brand: &[u8]| match brand {
        b"avif" | b"avis" => Some(Kind::OtherImage("AVIF")),
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"hevm" | b"hevs" => {
            Some(Kind::OtherImage("HEIC"))
        }
        b"crx " => Some(Kind::OtherImage("CR3")),
        b"jxl " => Some(Kind::OtherImage("JPEG XL")),
        b"jp2 " | b"jpx " | b"jpm " => Some(Kind::OtherImage("JPEG 2000")),
        _ => None,
    };
    let heif = |brand: &[u8]| matches!(brand, b"mif1" | b"msf1").then_some(Kind::OtherImage("HEIF"));
    let known = brands.clone().find_map(named).or_else(|| brands.clone().find_map(heif));
    Some(known.unwrap_or(Kind::NoImage("a film (MP4)")))
}

/// An icon or a cursor: two zeros, a type, a count of pictures that is not 0.
fn icon(head: &[u8]) -> bool {
    matches!(head, [0, 0, 1 | 2, 0, low, high, _, _, _, 0, ..] if (*low, *high) != (0, 0))
}

/// Text, if all of it is: HTML, SVG, XML, or plain.
fn text(head: &[u8]) -> Option<Kind> {
    let body = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let body = match std::str::from_utf8(body) {
        Ok(_) => body,
        // The last character may be cut.
        Err(fault) if fault.error_len().is_none() => body.get(..fault.valid_up_to())?,
        Err(_) => return None,
    };
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b | 0x20..=0x7e | 0x80..);
    if body.is_empty() || !body.iter().all(is_plain) {
        return None;
    }
    let lower = body.trim_ascii_start().to_ascii_lowercase();
    let has = |part: &[u8]| lower.windows(part.len()).any(|window| window == part);
    if let Some((_, name)) = TEXTS.iter().find(|(start, _)| lower.starts_with(start)) {
        return Some(Kind::NoImage(name));
    }
    Some(match lower.first() {
        Some(b'<') if has(b"<svg") => Kind::OtherImage("SVG"),
        Some(b'<') if has(b"<html") => Kind::NoImage("HTML"),
        Some(b'<') => Kind::NoImage("XML"),
        _ if lower.starts_with(b"/* xpm */") => Kind::OtherImage("XPM"),
        _ => Kind::NoImage("text"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn images_without_a_decoder_have_their_names() {
        for (head, name) in [
            (&b"\0\0\0\x20ftypavif\0\0\0\0avifmif1miaf"[..], "AVIF"),
            (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf", "AVIF"),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
            (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIC"),
            (b"\0\0\0\x14ftypmif1\0\0\0\0mif1", "HEIF"),
            (b"\0\0\0\x0cjP  \r\n\x87\n\0\0\0\x14ftypjp2 ", "JPEG 2000"),
            (b"\xff\x4f\xff\x51\0\x2f", "JPEG 2000"),
            (b"\xff\x0a\xfa\x1f", "JPEG XL"),
            (b"8BPS\0\x01\0\0\0\0\0\0", "PSD"),
            (b"GIF89a\x05\0\x06\0", "GIF"),
            (b"\0\0\x01\0\x01\0\x10\x10\0\0\x01\0", "ICO"),
            (b"<?xml version=\"1.0\"?>\n<svg xmlns=\"x\">", "SVG"),
            (b"  <svg>", "SVG"),
            (b"P7\nWIDTH 4\n", "PAM"),
        ] {
            assert_eq!(Kind::of(head), Kind::OtherImage(name), "{}", head.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_image_says_what_it_is() {
        for (head, name) in [
            (&b"\n <!DOCTYPE HTML><p>404"[..], "HTML"),
            (b"\xef\xbb\xbf<HTML>", "HTML"),
            (b"<?xml version=\"1.0\"?><!DOCTYPE html><html>", "HTML"),
            (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied", "XML"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "a Git LFS pointer"),
            (b"{\"error\": \"not found\"}", "text"),
            (b"BM is how this text begins", "text"),
            ("caf\u{e9}".as_bytes().split_last().unwrap().1, "text"),
            (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "a film (MP4)"),
            (b"\x93NUMPY\x01\0", "a NumPy array"),
            (b"\0\x05\x16\x07\0\x02\0\0Mac OS X", "AppleDouble"),
            (&[0; 600], "zeros"),
            (b"", "an empty file"),
            (b"\x01\x02\xfe\xff", "of no known kind"),
        ] {
            assert_eq!(Kind::of(head), Kind::NoImage(name), "{}", head.escape_ascii());
        }
    }

    #[test]
    fn what_shade_decodes_is_an_image() {
        for (head, media) in [
            (&b"\xff\xd8\xff\xe0"[..], Media::Jpeg),
            (b"\x89PNG\r\n\x1a\n", Media::Png),
            (b"RIFF\0\0\0\0WEBPVP8L", Media::Webp),
            (b"P6\n1 1\n", Media::Ppm),
            (b"BM\0\0\0\0\0\0\0\0", Media::Bmp),
            (b"II\x2a\0", Media::Tiff),
        ] {
            assert_eq!(Kind::of(head), Kind::Image(media));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_have_a_kind(
            magic in 0..IMAGES.len() + NO_IMAGES.len(),
            tail in proptest::collection::vec(any::<u8>(), 0..80),
            brands in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let magic = IMAGES.iter().chain(&NO_IMAGES).nth(magic).map_or(&b""[..], |(magic, _)| magic);
            prop_assert!(!Kind::of(&[magic, &tail].concat()).name().is_empty());
            prop_assert!(!Kind::of(&[&tail[..tail.len().min(4)], b"ftyp", &brands].concat()).name().is_empty());
            prop_assert!(!Kind::of(&tail).name().is_empty());
        }
    }
}
