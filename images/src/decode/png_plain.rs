//! Small PNGs of the usual kind, in one go: a shortcut beside the `png` crate, whose inflater is
//! made for larger ones.
//!
//! ```text
//!   signature, IHDR, others..., IDAT, IDAT, ..., next ── chunks ──▶ zlib stream ── inflate ──▶ filtered lines ──▶ RGB
//! ```
//!
//! Plain is: 8 bits a sample, not interlaced, not animated, every chunk that matters whole and with
//! the right CRC, and a zlib stream of just as many bytes as the lines have and with the right
//! Adler-32. Whatever else `bytes` may be, the answer is `None` and the `png` crate decides: what
//! it refuses, what it overlooks (a wrong Adler-32), and in which words.
//!
//! One thing is taken here that the crate refuses: Huffman codes with holes, and codes that stand
//! for nothing. libdeflate overlooks them. With the right checksums over them they come of no
//! accident.

use libdeflater::{Decompressor, crc32};

use super::colour::{each, grey};
use crate::limits::{check_size, scratch, shrink};
use crate::{SCRATCH_KEEP_BYTES, Size};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Inflates streams that lie in memory whole; its tables and buffers are kept between images.
#[derive(Default)]
pub(super) struct Plain {
    inflater: Decompressor,
    stream: Vec<u8>,
    lines: Vec<u8>,
}

impl Plain {
    /// Decodes `bytes` into `rgb` if they are a plain PNG, and not a large one.
    pub(super) fn decode(&mut self, bytes: &[u8], rgb: &mut Vec<u8>) -> Option<Size> {
        // Of a large file the set-up is a small part, and the buffers are to stay small.
        let mut chunks = Chunks::of(bytes).filter(|_| bytes.len() <= SCRATCH_KEEP_BYTES)?;
        let header = Header::read(chunks.next()?)?;
        let contents = Contents::read(chunks, &mut self.stream)?;
        let row = header.row_bytes()?;
        let filtered_bytes = (row + 1).checked_mul(header.size.height as usize)?;
        if filtered_bytes > SCRATCH_KEEP_BYTES {
            return None;
        }
        // What is above the first line counts as zeros.
        let (above, filtered) = scratch(&mut self.lines, row + filtered_bytes).split_at_mut(row);
        above.fill(0);
        let stream = contents.stream.unwrap_or(&self.stream);
        if self.inflater.zlib_decompress(stream, filtered) != Ok(filtered_bytes) {
            return None;
        }
        let pixels = header.size.width as usize * header.size.height as usize;
        let rgb = scratch(rgb, 3 * pixels);
        let lines = Lines { above, filtered, row };
        match header.colour {
            Colour::Grey => lines.convert(rgb, |&[value]| grey(value)),
            Colour::GreyAlpha => lines.convert(rgb, |&[value, _]| grey(value)),
            Colour::Rgb => lines.convert(rgb, |&pixel| pixel),
            Colour::Rgba => lines.convert(rgb, |&[r, g, b, _]| [r, g, b]),
            Colour::Palette => {
                let colours = palette(contents.palette?);
                lines.convert(rgb, |&[value]| {
                    // Always there: a byte has no more values than that.
                    colours.get(usize::from(value)).copied().unwrap_or_default()
                })
            }
        }?;
        Some(header.size)
    }

    /// Gives back what a larger image made the buffers grow to.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.stream);
        shrink(&mut self.lines);
    }
}

/// What a pixel consists of, 8 bits each.
#[derive(Clone, Copy)]
enum Colour {
    Grey,
    Rgb,
    Palette,
    GreyAlpha,
    Rgba,
}

impl Colour {
    fn samples(self) -> usize {
        match self {
            Self::Grey | Self::Palette => 1,
            Self::GreyAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

struct Header {
    size: Size,
    colour: Colour,
}

impl Header {
    fn read(chunk: Chunk<'_>) -> Option<Self> {
        let (b"IHDR", true) = (&chunk.kind, chunk.is_intact()) else { return None };
        let (width, rest) = chunk.data.split_first_chunk()?;
        let (height, rest) = rest.split_first_chunk()?;
        // Bits a sample, colour, and the methods of compression and filters, of which there is one,
        // and of interlacing.
        let colour = match *rest {
            [8, 0, 0, 0, 0] => Colour::Grey,
            [8, 2, 0, 0, 0] => Colour::Rgb,
            [8, 3, 0, 0, 0] => Colour::Palette,
            [8, 4, 0, 0, 0] => Colour::GreyAlpha,
            [8, 6, 0, 0, 0] => Colour::Rgba,
            _ => return None,
        };
        let size = Size { width: u32::from_be_bytes(*width), height: u32::from_be_bytes(*height) };
        check_size(size.width.into(), size.height.into()).ok()?;
        Some(Self { size, colour })
    }

    /// Bytes of a line without the one that names its filter.
    fn row_bytes(&self) -> Option<usize> {
        (self.size.width as usize).checked_mul(self.colour.samples())
    }
}

/// What lies between a plain PNG's header and its end.
struct Contents<'a> {
    palette: Option<&'a [u8]>,
    /// The image data, if it is in one piece.
    stream: Option<&'a [u8]>,
}

impl<'a> Contents<'a> {
    /// Puts the image data into `joined` if it is in several pieces.
    fn read(mut chunks: Chunks<'a>, joined: &mut Vec<u8>) -> Option<Self> {
        let mut palette = None;
        let first = loop {
            let chunk = chunks.next()?;
            match &chunk.kind {
                b"IDAT" => break chunk,
                b"PLTE" if palette.is_none() && chunk.is_palette() => palette = Some(chunk.data),
                // An animation has a frame of its own size.
                b"acTL" | b"fcTL" | b"fdAT" => return None,
                // Says nothing about RGB: alpha (`tRNS`) is dropped, and nothing is done with the
                // rest. Damage there is overlooked.
                _ if chunk.is_ancillary() => {}
                _ => return None,
            }
        };
        joined.clear();
        let mut piece = first;
        while piece.is_intact() {
            let next = chunks.next()?;
            let is_last = next.kind != *b"IDAT";
            if is_last && joined.is_empty() {
                return Some(Self { palette, stream: Some(piece.data) });
            }
            joined.extend_from_slice(piece.data);
            if is_last {
                return Some(Self { palette, stream: None });
            }
            piece = next;
        }
        None
    }
}

/// The chunks of a PNG, from the first on. Ends where one is not whole.
struct Chunks<'a>(&'a [u8]);

impl<'a> Chunks<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.strip_prefix(SIGNATURE).map(Self)
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        let (length, rest) = self.0.split_first_chunk()?;
        let data_end = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_add(4)?;
        let (checked, rest) = rest.split_at_checked(data_end)?;
        let (kind, data) = checked.split_first_chunk()?;
        let (crc, rest) = rest.split_first_chunk()?;
        self.0 = rest;
        Some(Chunk { kind: *kind, data, checked, crc: u32::from_be_bytes(*crc) })
    }
}

#[derive(Clone, Copy)]
struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
    /// Kind and data, which `crc` is of.
    checked: &'a [u8],
    crc: u32,
}

impl Chunk<'_> {
    fn is_intact(&self) -> bool {
        crc32(self.checked) == self.crc
    }

    fn is_palette(&self) -> bool {
        self.is_intact() && (1..=256).contains(&(self.data.len() / 3)) && self.data.len().is_multiple_of(3)
    }

    /// A decoder that does not know it may go on without.
    fn is_ancillary(&self) -> bool {
        let [first, ..] = self.kind;
        first & 0x20 != 0
    }
}

/// The colours of all values; black where the palette has none.
fn palette(bytes: &[u8]) -> [[u8; 3]; 256] {
    let mut colours = [[0; 3]; 256];
    let (given, _) = bytes.as_chunks::<3>();
    for (colour, given) in colours.iter_mut().zip(given) {
        *colour = *given;
    }
    colours
}

/// Lines as they come out of the stream: each a byte that names its filter, then `row` bytes.
struct Lines<'a> {
    above: &'a [u8],
    filtered: &'a mut [u8],
    row: usize,
}

impl Lines<'_> {
    /// Undoes the filters and converts the pixels, which have `N` samples. `None` for a filter that
    /// there is not.
    fn convert<const N: usize>(self, rgb: &mut [u8], convert: impl Fn(&[u8; N]) -> [u8; 3]) -> Option<()> {
        let Self { mut above, filtered, row } = self;
        let colours = rgb.chunks_exact_mut(row / N * 3);
        for (line, colours) in filtered.chunks_exact_mut(row + 1).zip(colours) {
            let (filter, line) = line.split_first_mut()?;
            undo::<N>(*filter, above, line)?;
            each(line, colours, &convert);
            above = line;
        }
        Some(())
    }
}

/// Undoes the filter of one line: its bytes are differences to what the bytes to the left, above,
/// and above to the left foretell. `N` bytes are a pixel.
fn undo<const N: usize>(filter: u8, above: &[u8], line: &mut [u8]) -> Option<()> {
    match filter {
        0 => {}
        1 => from_neighbours::<N>(above, line, |left, _, _| left),
        2 => line.iter_mut().zip(above).for_each(|(byte, above)| *byte = byte.wrapping_add(*above)),
        3 => from_neighbours::<N>(above, line, |left, above, _| (left + above) / 2),
        4 => from_neighbours::<N>(above, line, paeth),
        _ => return None,
    }
    Some(())
}

/// Adds what `foretell` makes of the bytes to the left, above, and above to the left, all of them 0
/// to 255.
///
/// Each pixel waits for the one before it, so what counts is how long one takes: four wide numbers
/// whatever `N` is fit a register, and took half as long as `N` bytes.
#[inline(always)]
fn from_neighbours<const N: usize>(above: &[u8], line: &mut [u8], foretell: impl Fn(i16, i16, i16) -> i16) {
    let (pixels, _) = line.as_chunks_mut::<N>();
    let (above, _) = above.as_chunks::<N>();
    let (mut left, mut above_left) = ([0; 4], [0; 4]);
    for (pixel, above) in pixels.iter_mut().zip(above) {
        let above = wide(above);
        let mut sum = wide(pixel);
        for (sum, ((left, above), above_left)) in sum.iter_mut().zip(left.iter().zip(above).zip(above_left)) {
            *sum = (*sum + foretell(*left, above, above_left)) & 0xff;
        }
        for (byte, [low, _]) in pixel.iter_mut().zip(sum.map(i16::to_le_bytes)) {
            *byte = low;
        }
        (left, above_left) = (sum, above);
    }
}

/// A pixel of up to four bytes in four numbers.
#[inline(always)]
fn wide<const N: usize>(pixel: &[u8; N]) -> [i16; 4] {
    let mut bytes = [0; 4];
    bytes.iter_mut().zip(pixel).for_each(|(byte, sample)| *byte = *sample);
    bytes.map(i16::from)
}

/// Of the three, the one nearest to `left + above - above_left`; the first of those that are
/// equally near.
#[inline(always)]
fn paeth(left: i16, above: i16, above_left: i16) -> i16 {
    let (low, high) = (left.min(above), left.max(above));
    // In this order a compiler needs no branch.
    let threshold = 3 * above_left - (left + above);
    let middle = if high <= threshold { low } else { above_left };
    if threshold <= low { high } else { middle }
}

#[cfg(test)]
mod tests {
    use png::{BitDepth, ColorType, Encoder, Filter};

    use super::*;

    /// A PNG of 9 x 5 pixels.
    fn made(colour: ColorType, depth: BitDepth, filter: Filter) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 9, 5);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        encoder.set_filter(filter);
        if colour == ColorType::Indexed {
            encoder.set_palette([7; 3 * 256].as_slice());
            encoder.set_trns([0].as_slice());
        }
        let samples = vec![3; (9 * colour.samples() * depth as usize).div_ceil(8) * 5];
        encoder.write_header().unwrap().write_image_data(&samples).unwrap();
        file
    }

    fn is_taken(bytes: &[u8]) -> bool {
        Plain::default().decode(bytes, &mut Vec::new()).is_some()
    }

    // That the pixels are right is shown beside the crate: `tests/png_shortcut.rs`.
    #[test]
    fn eight_bits_are_taken_whatever_the_colour_and_the_filter() {
        use ColorType::{Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba};
        for colour in [Grayscale, GrayscaleAlpha, Indexed, Rgb, Rgba] {
            for filter in [Filter::NoFilter, Filter::Sub, Filter::Up, Filter::Avg, Filter::Paeth] {
                assert!(is_taken(&made(colour, BitDepth::Eight, filter)), "{colour:?}, {filter:?}");
            }
        }
        assert!(!is_taken(&made(ColorType::Rgb, BitDepth::Sixteen, Filter::Sub)));
        assert!(!is_taken(&made(ColorType::Grayscale, BitDepth::One, Filter::Sub)));
    }

    #[test]
    fn nothing_that_is_damaged_is_taken() {
        let good = made(ColorType::Rgb, BitDepth::Eight, Filter::Paeth);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            // Where the end's own checksum stands is nothing to look at; nor is it to the crate.
            assert!(at >= good.len() - 8 || !is_taken(&bad), "byte {at}");
            assert!(!is_taken(&good[..at]), "{at} bytes");
        }
    }
}
