//! The first page of a TIFF: grey of 1 to 8 and of 16 bits, RGB and CMYK of 8 and 16, with alpha or
//! without, in strips, tiles or planes.

use std::borrow::Cow;
use std::io::Cursor;

use shade_formats::index::Media;
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::{ExtraSamples, PhotometricInterpretation, Tag};
use tiff::{ColorType, TiffError};

use super::colour::{each, from_inks, grey, high, saturate, undo_alpha};
use crate::limits::{RGBA_BYTES_MAX, check_size, scratch};
use crate::{ImageFault, Orientation, Size};

/// How the first page stores its pixels.
struct Page {
    width: usize,
    colour: ColorType,
    /// Grey is stored as ink: 0 is white.
    is_white_zero: bool,
    /// Colours were multiplied by their alpha.
    is_multiplied: bool,
}

/// Decodes `bytes` into `rgb`, turned by its orientation, as Pillow does while loading a TIFF.
pub(crate) fn decode(bytes: &[u8], rgb: &mut Vec<u8>) -> Result<Size, ImageFault> {
    let mut limits = Limits::default();
    limits.decoding_buffer_size = 2 * RGBA_BYTES_MAX;
    limits.intermediate_buffer_size = 2 * RGBA_BYTES_MAX;
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(fault)?.with_limits(limits);
    let (width, height) = decoder.dimensions().map_err(fault)?;
    check_size(width.into(), height.into())?;
    let size = Size { width, height };
    let mut tag = |tag| decoder.find_tag_unsigned_vec::<u16>(tag).ok().flatten().unwrap_or_default();
    let orientation = tag(Tag::Orientation)
        .first()
        .map_or(Orientation::Upright, |&value| Orientation::from_exif(value.into()));
    let is_white_zero =
        tag(Tag::PhotometricInterpretation).first() == Some(&PhotometricInterpretation::WhiteIsZero.to_u16());
    let is_multiplied = tag(Tag::ExtraSamples).first() == Some(&ExtraSamples::AssociatedAlpha.to_u16());
    let colour = decoder.colortype().map_err(fault)?;
    let page = Page { width: width as usize, colour, is_white_zero, is_multiplied };

    let mut samples = DecodingResult::U8(Vec::new());
    let planes = decoder.read_image_to_buffer(&mut samples).map_err(fault)?.planes;
    let pixels = width as usize * height as usize;
    let room = scratch(rgb, pixels * 3);
    match &samples {
        DecodingResult::U8(samples) => page.bytes_to_rgb(&interleaved(samples, planes), room)?,
        DecodingResult::U16(samples) => page.words_to_rgb(&interleaved(samples, planes), room)?,
        _ => {
            let detail = "samples that are signed, fractions or of more than 16 bits";
            return Err(ImageFault::unsupported(Media::Tiff, detail));
        }
    }
    if orientation == Orientation::Upright {
        return Ok(size);
    }
    *rgb = orientation.turn(room, size);
    Ok(orientation.turned(size))
}

impl Page {
    fn bytes_to_rgb(&self, samples: &[u8], rgb: &mut [u8]) -> Result<(), ImageFault> {
        match self.colour {
            ColorType::Gray(8) => each(samples, rgb, |&[value]| grey(value)),
            ColorType::Gray(bits @ (1 | 2 | 4)) => self.unpack(bits, samples, rgb),
            ColorType::Multiband { bit_depth: 8, num_samples: 2 } if !self.is_multiplied => {
                each(samples, rgb, |&[value, _]| grey(value));
            }
            ColorType::RGB(8) => each(samples, rgb, |&pixel| pixel),
            ColorType::RGBA(8) if self.is_multiplied => {
                each(samples, rgb, |&[r, g, b, a]| undo_alpha([r, g, b], a));
            }
            ColorType::RGBA(8) => each(samples, rgb, |&[r, g, b, _]| [r, g, b]),
            ColorType::CMYK(8) => each(samples, rgb, |&inks| from_inks(inks)),
            other => return Err(unsupported_colour(other)),
        }
        Ok(())
    }

    fn words_to_rgb(&self, samples: &[u16], rgb: &mut [u8]) -> Result<(), ImageFault> {
        match self.colour {
            // The decoder has inverted it; Pillow does not.
            ColorType::Gray(16) if self.is_white_zero => {
                each(samples, rgb, |&[value]| grey(saturate(u16::MAX - value)));
            }
            ColorType::Gray(16) => each(samples, rgb, |&[value]| grey(saturate(value))),
            ColorType::RGB(16) => each(samples, rgb, |&pixel| pixel.map(high)),
            ColorType::RGBA(16) if self.is_multiplied => {
                each(samples, rgb, |&[r, g, b, a]| undo_alpha([r, g, b].map(high), high(a)));
            }
            ColorType::RGBA(16) => each(samples, rgb, |&[r, g, b, _]| [r, g, b].map(high)),
            ColorType::CMYK(16) => each(samples, rgb, |&inks| from_inks(inks.map(high))),
            other => return Err(unsupported_colour(other)),
        }
        Ok(())
    }

    /// Grey of 1, 2 or 4 `bits`, packed from the high bits down; each row begins at a byte.
    fn unpack(&self, bits: u8, samples: &[u8], rgb: &mut [u8]) {
        let per_byte = usize::from(8 / bits);
        let value_max = u8::MAX >> (8 - bits);
        let rows = samples.chunks_exact(self.width.div_ceil(per_byte));
        for (row, colours) in rows.zip(rgb.chunks_exact_mut(self.width * 3)) {
            let values = row.iter().flat_map(|&byte| {
                (1..=8 / bits)
                    .map(move |nth| (byte.checked_shr((8 - nth * bits).into()).unwrap_or(0)) & value_max)
            });
            let (colours, _) = colours.as_chunks_mut::<3>();
            for (colour, value) in colours.iter_mut().zip(values) {
                *colour = grey(value * (u8::MAX / value_max));
            }
        }
    }
}

/// Interleaves samples that are stored plane by plane.
fn interleaved<T: Copy>(samples: &[T], planes: usize) -> Cow<'_, [T]> {
    if planes <= 1 {
        return Cow::Borrowed(samples);
    }
    let plane = samples.len() / planes;
    let pixel = |at: usize| samples.get(at..).unwrap_or_default().iter().step_by(plane.max(1)).take(planes);
    Cow::Owned((0..plane).flat_map(pixel).copied().collect())
}

fn unsupported_colour(colour: ColorType) -> ImageFault {
    ImageFault::unsupported(Media::Tiff, format_args!("samples of {colour:?}"))
}

fn fault(error: TiffError) -> ImageFault {
    match error {
        TiffError::UnsupportedError(error) => ImageFault::unsupported(Media::Tiff, error),
        other => ImageFault::corrupt(Media::Tiff, other),
    }
}
