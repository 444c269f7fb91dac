//! Masks: PNGs of one channel, whose levels are kept as they are.

use std::io::Cursor;

use png::{BitDepth, ColorType, Transformations};
use shade_formats::index::{KIND_BYTES, Kind, Media, sniff};

use super::png::fault;
use crate::limits::{check_size, scratch, shrink};
use crate::{ImageFault, Size};

/// The levels of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels<'a> {
    /// One for each pixel, line by line.
    pub levels: &'a [u8],
    /// The mask's size.
    pub size: Size,
}

/// A mask whose header was read, and nothing else of it.
pub struct MaskFile<'a> {
    decoder: png::Decoder<Cursor<&'a [u8]>>,
    size: Size,
    depth: BitDepth,
    /// What a stored level is multiplied by.
    spread: u8,
}

/// Decodes masks; keeps its buffers between them.
#[derive(Default)]
pub struct MaskDecoder {
    /// Lines as they are stored.
    packed: Vec<u8>,
    levels: Vec<u8>,
}

impl<'a> MaskFile<'a> {
    /// A PNG with a palette or of grey. Nothing is allocated for its pixels.
    ///
    /// # Errors
    /// It is no PNG, its header is damaged, it is too large, of 16 bits, or has several channels.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ImageFault> {
        let media = sniff(bytes).0;
        if media != Media::Png {
            return Err(match Kind::of(bytes.get(..KIND_BYTES).unwrap_or(bytes)) {
                Kind::NoImage(what) => ImageFault::NoImage { what },
                Kind::Image(_) | Kind::OtherImage(_) => ImageFault::NoMask { kind: media.name() },
            });
        }
        let mut decoder = png::Decoder::new(Cursor::new(bytes));
        decoder.ignore_checksums(false);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        decoder.set_transformations(Transformations::IDENTITY);
        let header = decoder.read_header_info().map_err(fault)?;
        let size = Size { width: header.width, height: header.height };
        let (colour, depth) = (header.color_type, header.bit_depth);
        check_size(size.width.into(), size.height.into())?;
        let spread = match (colour, depth) {
            (_, BitDepth::Sixteen) => return Err(unsupported("16 bits a pixel")),
            (ColorType::Grayscale, BitDepth::Two) => 85,
            (ColorType::Grayscale, BitDepth::Four) => 17,
            (ColorType::Grayscale | ColorType::Indexed, _) => 1,
            (ColorType::Rgb, _) => return Err(unsupported("three colours a pixel")),
            (ColorType::GrayscaleAlpha | ColorType::Rgba, _) => return Err(unsupported("an alpha channel")),
        };
        Ok(Self { decoder, size, depth, spread })
    }

    /// The mask's size, by its header: compare it before the mask is decoded.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }
}

impl MaskDecoder {
    /// The levels of a mask: the numbers of a palette's colours, or grey as Pillow opens it. Grey
    /// of two and four bits is spread to 0 to 255, that of one bit is 0 and 1. Call
    /// [`MaskDecoder::shrink`] once they are used.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn decode(&mut self, file: MaskFile<'_>) -> Result<Levels<'_>, ImageFault> {
        let MaskFile { decoder, size, depth, spread } = file;
        let mut reader = decoder.read_info().map_err(fault)?;
        let too_large = || ImageFault::Size { width: size.width.into(), height: size.height.into() };
        let len = reader.output_buffer_size().ok_or_else(too_large)?;
        let Self { packed, levels } = self;
        if depth == BitDepth::Eight {
            let levels = scratch(levels, len);
            reader.next_frame(levels).map_err(fault)?;
            return Ok(Levels { levels, size });
        }
        let packed = scratch(packed, len);
        reader.next_frame(packed).map_err(fault)?;
        let levels = scratch(levels, size.width as usize * size.height as usize);
        unpack(packed, depth as u8, spread, size, levels);
        Ok(Levels { levels, size })
    }

    /// Frees buffers that a large mask made grow.
    pub fn shrink(&mut self) {
        shrink(&mut self.packed);
        shrink(&mut self.levels);
    }
}

/// Unpacks pixels of fewer than 8 bits, the first in the highest; a line begins with a byte.
fn unpack(packed: &[u8], bits: u8, spread: u8, size: Size, levels: &mut [u8]) {
    let (width, a_byte) = (size.width as usize, usize::from(8 / bits));
    let lines = packed.chunks_exact(width.div_ceil(a_byte).max(1));
    for (line, levels) in lines.zip(levels.chunks_exact_mut(width.max(1))) {
        for (byte, levels) in line.iter().zip(levels.chunks_mut(a_byte)) {
            let mut rest = *byte;
            for level in levels {
                *level = (rest >> (8 - bits)) * spread;
                rest <<= bits;
            }
        }
    }
}

fn unsupported(detail: &str) -> ImageFault {
    ImageFault::unsupported(Media::Png, format!("{detail}, as a mask"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn png(size: Size, colour: ColorType, depth: BitDepth, lines: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, size.width, size.height);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if colour == ColorType::Indexed {
            encoder
                .set_palette((0..=255).flat_map(|level: u8| [level / 2, 7, 255 - level]).collect::<Vec<_>>());
        }
        encoder.write_header().unwrap().write_image_data(lines).unwrap();
        file
    }

    fn is_fault(file: &[u8]) -> bool {
        let mut decoder = MaskDecoder::default();
        !MaskFile::open(file).is_ok_and(|file| decoder.decode(file).is_ok())
    }

    fn size() -> impl Strategy<Value = Size> {
        (1..40_u32, 1..9_u32).prop_map(|(width, height)| Size { width, height })
    }

    proptest! {
        #[test]
        fn levels_are_those_that_were_packed(size in size(), seed: u8, is_indexed: bool, at in 0..4_usize) {
            let depth = [BitDepth::One, BitDepth::Two, BitDepth::Four, BitDepth::Eight][at];
            let (bits, colour) = (depth as u8, if is_indexed { ColorType::Indexed } else { ColorType::Grayscale });
            let spread = if is_indexed { 1 } else { [1, 85, 17, 1][at] };
            let mut wanted = Vec::new();
            let mut lines = Vec::new();
            for line in 0..size.height {
                let mut bytes = vec![0_u8; (size.width * u32::from(bits)).div_ceil(8) as usize];
                for column in 0..size.width {
                    let level = (seed ^ u8::try_from((line * 31 + column * 7) & 255).unwrap()) >> (8 - bits);
                    let first = column * u32::from(bits);
                    bytes[(first / 8) as usize] |= level << (8 - u32::from(bits) - first % 8);
                    wanted.push(level * spread);
                }
                lines.extend(bytes);
            }
            let mut decoder = MaskDecoder::default();
            let file = png(size, colour, depth, &lines);
            let file = MaskFile::open(&file).unwrap();
            prop_assert_eq!(file.size(), size);
            prop_assert_eq!(decoder.decode(file), Ok(Levels { levels: &wanted, size }));
        }

        #[test]
        fn damaged_masks_are_faults(size in size(), at: prop::sample::Index, bit in 0..8_u8) {
            let levels = vec![9; (size.width * size.height) as usize];
            let mut file = png(size, ColorType::Grayscale, BitDepth::Eight, &levels);
            let place = at.index(file.len());
            file[place] ^= 1 << bit;
            // What ends the file is not needed.
            let is_needed = place < file.len() - 12;
            prop_assert!(!is_needed || is_fault(&file));
            prop_assert!(is_fault(&file[..file.len() - 13]));
        }
    }

    #[test]
    fn what_has_no_levels_is_refused_by_name() {
        let size = Size { width: 2, height: 1 };
        for (colour, depth, bytes, text) in [
            (ColorType::Rgb, BitDepth::Eight, 6, "three colours"),
            (ColorType::Rgba, BitDepth::Eight, 8, "an alpha channel"),
            (ColorType::GrayscaleAlpha, BitDepth::Eight, 4, "an alpha channel"),
            (ColorType::Grayscale, BitDepth::Sixteen, 4, "16 bits"),
        ] {
            let file = png(size, colour, depth, &vec![1; bytes]);
            let error = MaskFile::open(&file).err().unwrap();
            assert!(error.to_string().contains(text), "{error}");
        }
        let error = MaskFile::open(b"GIF89a, and so on").err().unwrap().to_string();
        assert!(error.contains("where masks are PNG"), "{error}");
    }
}
