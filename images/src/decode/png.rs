//! PNG of every colour type and depth, interlaced or not; the first frame of an animation.

use std::borrow::Cow;
use std::io::{Cursor, ErrorKind};

use png::{BitDepth, ColorType, DecodingError, InterlaceInfo, Reader, Transformations};
use shade_formats::index::Media;

use super::colour::{each, grey, saturate};
use crate::limits::{check_size, scratch};
use crate::{ImageFault, Size};

/// The columns and rows of each pass of an interlaced image: its first and the step to the next.
const PASSES: [[(u32, u32); 2]; 7] = [
    [(0, 8), (0, 8)],
    [(4, 8), (0, 8)],
    [(0, 4), (4, 8)],
    [(2, 4), (0, 4)],
    [(0, 2), (2, 4)],
    [(1, 2), (0, 2)],
    [(0, 1), (1, 2)],
];

/// Decodes `bytes` into `rgb`, over `samples` if its pixels are not 8-bit RGB.
///
/// What the decoder refuses is tried once more as Pillow reads it: without the checksums of chunks
/// that hold pixels, and without anything behind the last pixel. `note` tells why.
pub(crate) fn decode(
    bytes: &[u8],
    samples: &mut Vec<u8>,
    rgb: &mut Vec<u8>,
    note: &mut Option<String>,
) -> Result<Size, ImageFault> {
    let found = pixels(bytes, samples, rgb, |reader, room| reader.next_frame(room).map(drop));
    let Err(fault @ ImageFault::Corrupt { .. }) = found else { return found };
    let Some(mended) = mended(bytes) else { return Err(fault) };
    match pixels(&mended, samples, rgb, rows) {
        Ok(size) => {
            *note = Some(fault.to_string());
            Ok(size)
        }
        Err(_) => Err(fault),
    }
}

type Source<'a> = Cursor<&'a [u8]>;

/// Decodes `bytes`, whose samples `read` puts into a buffer.
fn pixels(
    bytes: &[u8],
    samples: &mut Vec<u8>,
    rgb: &mut Vec<u8>,
    read: impl Fn(&mut Reader<Source<'_>>, &mut [u8]) -> Result<(), DecodingError>,
) -> Result<Size, ImageFault> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    // Adler's checksum of the pixels counts, as in Pillow.
    decoder.ignore_checksums(false);
    // Not needed here, and both may be compressed.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND);
    let header = decoder.read_header_info().map_err(fault)?;
    let size = Size { width: header.width, height: header.height };
    check_size(size.width.into(), size.height.into())?;
    let is_indexed = header.color_type == ColorType::Indexed;
    let has_alpha = matches!(header.color_type, ColorType::GrayscaleAlpha | ColorType::Rgba);

    let mut reader = decoder.read_info().map_err(fault)?;
    // The crate (0.18.1) panics on such a palette.
    if let Some(palette) = reader.info().palette.as_ref().filter(|_| is_indexed)
        && !palette.len().is_multiple_of(3)
    {
        let text = format!("a palette of {} bytes: expected 3 for each colour", palette.len());
        return Err(corrupt(text));
    }
    let (colour, depth) = reader.output_color_type();
    let too_large = || ImageFault::Size { width: size.width.into(), height: size.height.into() };
    let len = reader.output_buffer_size().ok_or_else(too_large)?;
    if (colour, depth) == (ColorType::Rgb, BitDepth::Eight) {
        read(&mut reader, scratch(rgb, len)).map_err(fault)?;
        return Ok(size);
    }
    let samples = scratch(samples, len);
    read(&mut reader, samples).map_err(fault)?;
    let pixels = size.width as usize * size.height as usize;
    to_rgb(samples, colour, depth, has_alpha, scratch(rgb, pixels * 3));
    Ok(size)
}

/// Reads all rows into `room`. Behind them only a wrong checksum is a fault.
fn rows(reader: &mut Reader<Source<'_>>, room: &mut [u8]) -> Result<(), DecodingError> {
    let (width, height, is_interlaced) =
        (reader.info().width, reader.info().height, reader.info().interlaced);
    let pitch = room.len() / height.max(1) as usize;
    if is_interlaced {
        let (colour, depth) = reader.output_color_type();
        let pixel_bits = u8::try_from(colour.samples()).unwrap_or(1) * depth as u8;
        let along = |side: u32, (first, step)| side.saturating_sub(first).div_ceil(step);
        for [columns, rows] in PASSES {
            let count = if along(width, columns) > 0 { along(height, rows) } else { 0 };
            for _ in 0..count {
                let Some(row) = reader.next_interlaced_row()? else { return Ok(()) };
                if let InterlaceInfo::Adam7(place) = row.interlace() {
                    png::expand_interlaced_row(room, pitch, row.data(), place, pixel_bits);
                }
            }
        }
    } else {
        room.chunks_exact_mut(pitch.max(1)).try_for_each(|row| reader.read_row(row).map(drop))?;
    }
    match reader.next_row().map(drop) {
        Err(fault) if fault.to_string().contains("WrongChecksum") => Err(fault),
        _ => Ok(()),
    }
}

/// The file with one IDAT chunk whose checksum is right, of all that are there, and nothing behind
/// it. `None` without IDAT. Pillow checks the other chunks.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    const SIGNATURE_BYTES: usize = 8;
    let (mut at, mut data, mut before) = (SIGNATURE_BYTES, Vec::new(), None);
    while let Some((header, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) {
        let &[l0, l1, l2, l3, ref name @ ..] = header;
        let len = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).ok()?;
        if name == b"IDAT" {
            before = before.or(Some(at));
            data.extend_from_slice(rest.get(..len).unwrap_or(rest));
        } else if before.is_some() {
            break;
        }
        at = at.checked_add(len)?.checked_add(12)?;
    }
    let mut file = bytes.get(..before?)?.to_vec();
    for (name, content) in [(b"IDAT", data.as_slice()), (b"IEND", &[])] {
        file.extend_from_slice(&u32::try_from(content.len()).ok()?.to_be_bytes());
        let start = file.len();
        file.extend_from_slice(name);
        file.extend_from_slice(content);
        let mut crc = flate2::Crc::new();
        crc.update(file.get(start..)?);
        file.extend_from_slice(&crc.sum().to_be_bytes());
    }
    Some(file)
}

/// Converts pixels after `Transformations::EXPAND` (8 or 16 bits a sample, no palette) to RGB
/// without alpha. `has_alpha`: the file has an alpha channel, not just one transparent colour.
fn to_rgb(samples: &[u8], colour: ColorType, depth: BitDepth, has_alpha: bool, rgb: &mut [u8]) {
    use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
    let word = u16::from_be_bytes;
    match (colour, depth) {
        (Grayscale, BitDepth::Sixteen) => each(samples, rgb, |&pixel| grey(saturate(word(pixel)))),
        // Pillow has no mode for grey and alpha of 16 bits: it keeps the high bytes then.
        (GrayscaleAlpha, BitDepth::Sixteen) if has_alpha => each(samples, rgb, |&[high, _, _, _]| grey(high)),
        (GrayscaleAlpha, BitDepth::Sixteen) => {
            each(samples, rgb, |&[high, low, _, _]| grey(saturate(word([high, low]))));
        }
        (Rgb, BitDepth::Sixteen) => each(samples, rgb, |&[r, _, g, _, b, _]| [r, g, b]),
        (Rgba, BitDepth::Sixteen) => each(samples, rgb, |&[r, _, g, _, b, _, _, _]| [r, g, b]),
        (Grayscale | Indexed, _) => each(samples, rgb, |&[value]| grey(value)),
        (GrayscaleAlpha, _) => each(samples, rgb, |&[value, _]| grey(value)),
        (Rgb, _) => each(samples, rgb, |&pixel| pixel),
        (Rgba, _) => each(samples, rgb, |&[r, g, b, _]| [r, g, b]),
    }
}

pub(super) fn fault(error: DecodingError) -> ImageFault {
    match error {
        DecodingError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            corrupt("it ends too early")
        }
        other => corrupt(plain(&other.to_string())),
    }
}

/// The decoder's message with a chunk's name in place of its type's parts.
fn plain(text: &str) -> Cow<'_, str> {
    let parts = || {
        let (before, rest) = text.split_once("ChunkType {")?;
        let (inside, behind) = rest.rsplit_once('}')?;
        let (name, _) = inside.split_once("type: ")?.1.split_once(", critical")?;
        // The name of a damaged chunk may be anything.
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "?");
        Some(format!("{before}{name}{behind}"))
    };
    parts().map_or(Cow::Borrowed(text), Cow::Owned)
}

fn corrupt(text: impl ToString) -> ImageFault {
    ImageFault::corrupt(Media::Png, text)
}
