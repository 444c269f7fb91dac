//! Windows bitmaps: palettes of 1, 4 and 8 bits, 16, 24 and 32 bits a pixel, run lengths.
//!
//! ```text
//! "BM" size u32, 0 u32, pixels' offset u32
//! header: its size u32, sides, bits, coding, colours, ...
//! palette | rows
//! ```
//!
//! Rows are aligned to 4 bytes and stored from the bottom up, unless the height is negative. Alpha
//! is dropped. Unusual masks, images in JPEG or PNG, and a file that ends before its last row are
//! refused, as by Pillow.

use shade_formats::index::Media;

use super::colour::each;
use crate::limits::{check_size, scratch};
use crate::{ImageFault, Size};

/// Offset of the header: behind "BM", the file's size and the pixels' offset.
const HEADER: usize = 14;
/// The oldest header: sides of 16 bits, and colours of 3 bytes.
const CORE_HEADER_BYTES: u32 = 12;

const RUNS_OF_BYTES: u32 = 1;
const RUNS_OF_NIBBLES: u32 = 2;
const MASKS: u32 = 3;

/// How a pixel is stored.
#[derive(Clone, Copy)]
enum PixelFormat {
    /// A palette index, in 1, 4 or 8 bits.
    Palette { bits: u8 },
    /// Palette indices of 8 or 4 bits, partly as runs.
    Runs { of_nibbles: bool },
    /// 5 bits for each colour, or 6 for green.
    Short { has_long_green: bool },
    /// A byte for each colour: blue, green, red.
    Three,
    /// Four bytes; `places` are those of red, green and blue.
    Four { places: [usize; 3] },
}

/// Content of the headers.
struct Bitmap<'a> {
    size: Size,
    is_top_down: bool,
    format: PixelFormat,
    /// Bits of a pixel outside a run.
    bits: usize,
    /// Colour of each index; black where the file has none.
    palette: [[u8; 3]; 256],
    bytes: &'a [u8],
    /// Offset of the pixels in `bytes`.
    at: usize,
}

/// Decodes `bytes` into `rgb`.
pub(crate) fn decode(bytes: &[u8], rgb: &mut Vec<u8>) -> Result<Size, ImageFault> {
    let bitmap = Bitmap::read(bytes)?;
    let size = bitmap.size;
    check_size(size.width.into(), size.height.into())?;
    let (width, height) = (size.width as usize, size.height as usize);
    let stored = bytes.get(bitmap.at..).unwrap_or_default();
    let row_bytes = (width * bitmap.bits).div_ceil(8);
    let values;
    let (rows, row_bytes, pitch) = if let PixelFormat::Runs { of_nibbles } = bitmap.format {
        values = bitmap.unrolled(of_nibbles, width, width * height);
        (values.as_slice(), width, width)
    } else {
        (stored, row_bytes, row_bytes.next_multiple_of(4))
    };
    if rows.len() < pitch * (height - 1) + row_bytes {
        return Err(corrupt("it ends before its last row"));
    }
    let lines = scratch(rgb, 3 * width * height).chunks_exact_mut(3 * width);
    let rows = rows.chunks(pitch);
    if bitmap.is_top_down {
        rows.zip(lines).for_each(|(row, line)| bitmap.convert(row, line));
    } else {
        rows.zip(lines.rev()).for_each(|(row, line)| bitmap.convert(row, line));
    }
    Ok(size)
}

impl<'a> Bitmap<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, ImageFault> {
        let cut_off = || corrupt("its headers are cut off");
        let rest = |at: usize| bytes.get(at..).unwrap_or_default();
        let long = |at: usize| rest(at).first_chunk().copied().map(u32::from_le_bytes).ok_or_else(cut_off);
        let short = |at: usize| rest(at).first_chunk().copied().map(u16::from_le_bytes).ok_or_else(cut_off);
        if !bytes.starts_with(b"BM") {
            return Err(corrupt("no BM at its start"));
        }
        let header_bytes = long(HEADER)?;
        let is_core = header_bytes == CORE_HEADER_BYTES;
        if !is_core && ![40, 52, 56, 64, 108, 124].contains(&header_bytes) {
            return Err(ImageFault::unsupported(
                Media::Bmp,
                format_args!("a header of {header_bytes} bytes"),
            ));
        }
        let mut behind = HEADER + header_bytes as usize;
        let (size, is_top_down, bits, coding, colours) = if is_core {
            let size = Size { width: short(18)?.into(), height: short(20)?.into() };
            (size, false, short(24)?, 0, 0)
        } else {
            let (width, height) = (long(18)?, long(22)?.cast_signed());
            let size = Size { width, height: height.unsigned_abs() };
            (size, height < 0, short(28)?, long(30)?, long(46)?)
        };
        let masks = if coding == MASKS { [long(54)?, long(58)?, long(62)?] } else { [0; 3] };
        if coding == MASKS && header_bytes < 52 {
            behind += 12;
        }
        let format = pixel_format(bits, coding, masks)?;

        let mut palette = [[0; 3]; 256];
        let entry_bytes = if is_core { 3 } else { 4 };
        if bits <= 8 {
            let count = if colours == 0 { 1 << bits } else { colours as usize };
            let entries = rest(behind).chunks_exact(entry_bytes).take(count);
            for (colour, entry) in palette.iter_mut().zip(entries) {
                if let &[blue, green, red, ..] = entry {
                    *colour = [red, green, blue];
                }
            }
            behind = behind.saturating_add(count.saturating_mul(entry_bytes));
        }
        let at = match long(10)? as usize {
            0 => behind,
            // Some writers forget the palette.
            at if bits <= 8 && at == HEADER + header_bytes as usize => behind,
            at => at,
        };
        Ok(Self { size, is_top_down, format, bits: bits.into(), palette, bytes, at })
    }

    /// Palette indices without run lengths, row by row; fewer than `count` if the file ends early.
    fn unrolled(&self, of_nibbles: bool, width: usize, count: usize) -> Vec<u8> {
        let mut values = Vec::new();
        let (mut at, mut x) = (self.at, 0);
        let pair_at = |at: usize| self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        while values.len() < count
            && let Some(&[pixels, value]) = pair_at(at)
        {
            at += 2;
            match (pixels, value) {
                // End of line.
                (0, 0) => {
                    values.resize(values.len().next_multiple_of(width), 0);
                    x = 0;
                }
                // End of image.
                (0, 1) => break,
                // A step to the right and to later rows.
                (0, 2) => {
                    let Some(&[right, lines]) = pair_at(at) else { break };
                    at += 2;
                    let skipped = usize::from(right) + usize::from(lines) * width;
                    values.resize(count.min(values.len() + skipped), 0);
                    x = values.len() % width;
                }
                // Pixels as they are, padded to an even offset in the file.
                (0, pixels) => {
                    let pixels = usize::from(pixels).min(count - values.len());
                    let stored = if of_nibbles { pixels.div_ceil(2) } else { pixels };
                    let Some(stored) = self.bytes.get(at..).and_then(|rest| rest.get(..stored)) else {
                        break;
                    };
                    if of_nibbles {
                        values.extend(stored.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(pixels));
                    } else {
                        values.extend_from_slice(stored);
                    }
                    x += usize::from(value);
                    at = (at + stored.len()).next_multiple_of(2);
                }
                // A run, cut at the end of the row.
                (pixels, value) => {
                    let pixels = usize::from(pixels).min(width.saturating_sub(x));
                    let pair = if of_nibbles { [value >> 4, value & 15] } else { [value; 2] };
                    values.extend(pair.into_iter().cycle().take(pixels));
                    x += pixels;
                }
            }
        }
        values
    }

    /// Converts a row, which may have padding at its end, into `line`.
    fn convert(&self, row: &[u8], line: &mut [u8]) {
        let colour = |value: u8| self.palette.get(usize::from(value)).copied().unwrap_or_default();
        match self.format {
            PixelFormat::Palette { bits: 8 } | PixelFormat::Runs { .. } => {
                each(row, line, |&[value]| colour(value))
            }
            PixelFormat::Palette { bits } => {
                let value = |byte: u8, nth: u8| (byte >> (8 - nth * bits)) & (u8::MAX >> (8 - bits));
                let values = row.iter().flat_map(|&byte| (1..=8 / bits).map(move |nth| value(byte, nth)));
                for (pixel, value) in line.as_chunks_mut().0.iter_mut().zip(values) {
                    *pixel = colour(value);
                }
            }
            PixelFormat::Short { has_long_green } => each(row, line, |&pixel| {
                let pixel = u16::from_le_bytes(pixel);
                if has_long_green {
                    [widened(pixel >> 11, 31), widened(pixel >> 5, 63), widened(pixel, 31)]
                } else {
                    [pixel >> 10, pixel >> 5, pixel].map(|value| widened(value, 31))
                }
            }),
            PixelFormat::Three => each(row, line, |&[blue, green, red]| [red, green, blue]),
            PixelFormat::Four { places } => {
                each(row, line, |pixel: &[u8; 4]| places.map(|at| pixel.get(at).copied().unwrap_or_default()))
            }
        }
    }
}

/// How pixels of `bits` are stored in this coding.
fn pixel_format(bits: u16, coding: u32, masks: [u32; 3]) -> Result<PixelFormat, ImageFault> {
    let usual = PixelFormat::Four { places: [2, 1, 0] };
    Ok(match (coding, bits, masks) {
        (0, 1, _) => PixelFormat::Palette { bits: 1 },
        (0, 4, _) => PixelFormat::Palette { bits: 4 },
        (0, 8, _) => PixelFormat::Palette { bits: 8 },
        (0, 16, _) | (MASKS, 16, [0x7C00, 0x3E0, 0x1F]) => PixelFormat::Short { has_long_green: false },
        (MASKS, 16, [0xF800, 0x7E0, 0x1F]) => PixelFormat::Short { has_long_green: true },
        (0, 24, _) | (MASKS, 24, [0x00FF_0000, 0xFF00, 0xFF]) => PixelFormat::Three,
        (0, 32, _) | (MASKS, 32, [0, 0, 0] | [0x00FF_0000, 0xFF00, 0xFF]) => usual,
        (MASKS, 32, [0xFF00_0000, 0x00FF_0000, 0xFF00]) => PixelFormat::Four { places: [3, 2, 1] },
        (MASKS, 32, [0xFF00_0000, 0xFF00, 0xFF]) => PixelFormat::Four { places: [3, 1, 0] },
        (MASKS, 32, [0xFF, 0xFF00, 0x00FF_0000]) => PixelFormat::Four { places: [0, 1, 2] },
        (RUNS_OF_BYTES, 8, _) => PixelFormat::Runs { of_nibbles: false },
        (RUNS_OF_NIBBLES, 4, _) => PixelFormat::Runs { of_nibbles: true },
        _ => {
            let detail = format_args!("{bits} bits a pixel in coding {coding} and its colour masks");
            return Err(ImageFault::unsupported(Media::Bmp, detail));
        }
    })
}

/// The low bits of `value`, masked by `max`, as a byte: truncated, not rounded, as in Pillow.
fn widened(value: u16, max: u16) -> u8 {
    u8::try_from((value & max) * 255 / max).unwrap_or(u8::MAX)
}

fn corrupt(text: &str) -> ImageFault {
    ImageFault::corrupt(Media::Bmp, text)
}
