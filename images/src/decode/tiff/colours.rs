//! A TIFF's samples to RGB, by Pillow's table of what it opens.

use super::directory::{Directory, tag, unsupported};
use super::layout::Layout;
use crate::ImageFault;
use crate::decode::colour::{each, from_inks, grey, saturate, undo_alpha};

/// What the shown samples of a pixel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `is_ink`: 0 is white.
    Grey {
        is_ink: bool,
    },
    Rgb,
    /// Colours multiplied by the alpha behind them.
    Multiplied,
    Inks,
}

/// How samples become colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Colours {
    kind: Kind,
    /// Bits of a sample: 1, 2, 4, 8 or 16.
    bits: u32,
}

/// Values of `ExtraSamples`.
const UNSPECIFIED: u64 = 0;
const MULTIPLIED_ALPHA: u64 = 1;
const ALPHA: u64 = 2;
/// A program writes it for alpha.
const COREL_ALPHA: u64 = 999;

impl Colours {
    pub(super) fn read(directory: &Directory<'_>, layout: &Layout) -> Result<Self, ImageFault> {
        let photometric = directory.one(tag::PHOTOMETRIC)?.unwrap_or(0);
        let extra = directory.all(tag::EXTRA_SAMPLES)?.unwrap_or_default();
        let formats = directory.all(tag::SAMPLE_FORMAT)?.unwrap_or_default();
        let format = formats.first().copied().unwrap_or(1);
        let (bits, samples) = (layout.bits, layout.samples_per_pixel);
        let is_signed_grey = (format, photometric, bits, samples) == (2, 1, 8, 1);
        if formats.iter().any(|other| *other != format) || format != 1 && !is_signed_grey {
            return Err(unsupported("samples that are signed, fractions or of several formats"));
        }
        let name = match photometric {
            0 | 1 => "grey",
            2 => "RGB",
            3 => "palette",
            5 => "CMYK",
            6 => "YCbCr",
            8 => "Lab",
            _ => return Err(unsupported(format_args!("photometric interpretation {photometric}"))),
        };
        // libtiff and Pillow disagree about a fourth plane that nobody described.
        let is_unclear = photometric == 2 && samples == 4 && extra.is_empty() && layout.has_planes;
        let kind = kind(photometric, bits, samples, &extra).filter(|_| !is_unclear).ok_or_else(|| {
            let extra = extra.len();
            unsupported(format_args!("{samples} {name} samples of {bits} bits, {extra} of them extra"))
        })?;
        Ok(Self { kind, bits })
    }

    /// Samples of a pixel that are used: those behind them are not.
    pub(super) fn shown(self) -> usize {
        match self.kind {
            Kind::Grey { .. } => 1,
            Kind::Rgb => 3,
            Kind::Multiplied | Kind::Inks => 4,
        }
    }

    /// Converts rows of `width` pixels with the shown samples. Words have the high byte first.
    pub(super) fn convert(self, samples: &[u8], width: usize, rgb: &mut [u8]) {
        let word = |high, low| u16::from_be_bytes([high, low]);
        match (self.kind, self.bits) {
            (Kind::Grey { is_ink: true }, 8) => each(samples, rgb, |&[value]| grey(u8::MAX - value)),
            (Kind::Grey { .. }, 8) => each(samples, rgb, |&[value]| grey(value)),
            // Pillow does not invert these.
            (Kind::Grey { .. }, 16) => each(samples, rgb, |&[a, b]| grey(saturate(word(a, b)))),
            (Kind::Grey { is_ink }, bits) => unpack(bits, is_ink, samples, width, rgb),
            (Kind::Rgb, 16) => each(samples, rgb, |&[r, _, g, _, b, _]| [r, g, b]),
            (Kind::Rgb, _) => each(samples, rgb, |&pixel| pixel),
            (Kind::Multiplied, 16) => {
                each(samples, rgb, |&[r, _, g, _, b, _, a, _]| undo_alpha([r, g, b], a));
            }
            (Kind::Multiplied, _) => each(samples, rgb, |&[r, g, b, a]| undo_alpha([r, g, b], a)),
            (Kind::Inks, 16) => each(samples, rgb, |&[c, _, m, _, y, _, k, _]| from_inks([c, m, y, k])),
            (Kind::Inks, _) => each(samples, rgb, |&inks| from_inks(inks)),
        }
    }
}

/// Pillow's table; `None` for what it does not have, and for what is not decoded here.
fn kind(photometric: u64, bits: u32, samples: usize, extra: &[u64]) -> Option<Kind> {
    let is_unspecified = |extra: &[u64]| extra.iter().all(|&kind| kind == UNSPECIFIED);
    let is_ink = photometric == 0;
    match (photometric, bits, samples, extra) {
        (0 | 1, 1 | 2 | 4 | 8 | 16, 1, []) | (1, 8, 2, [UNSPECIFIED | ALPHA]) => Some(Kind::Grey { is_ink }),
        (2, 8 | 16, 3 | 4, []) | (2, 8, 4, [COREL_ALPHA]) => Some(Kind::Rgb),
        (2, 8, 4..=6, [MULTIPLIED_ALPHA, rest @ ..]) | (2, 16, 4, [MULTIPLIED_ALPHA, rest @ ..])
            if is_unspecified(rest) && samples == 4 + rest.len() =>
        {
            Some(Kind::Multiplied)
        }
        (2, 8, 4..=6, [UNSPECIFIED | ALPHA, rest @ ..]) | (2, 16, 4, [UNSPECIFIED | ALPHA, rest @ ..])
            if is_unspecified(rest) && samples == 4 + rest.len() =>
        {
            Some(Kind::Rgb)
        }
        (5, 8 | 16, 4, []) => Some(Kind::Inks),
        (5, 8, 5 | 6, extra) if is_unspecified(extra) && samples == 4 + extra.len() => Some(Kind::Inks),
        _ => None,
    }
}

/// Grey of 1, 2 or 4 `bits`, packed from the high bits down; each row begins at a byte.
fn unpack(bits: u32, is_ink: bool, samples: &[u8], width: usize, rgb: &mut [u8]) {
    let value_max = u8::MAX >> (8 - bits);
    let rows = samples.chunks_exact((width * bits as usize).div_ceil(8));
    for (row, colours) in rows.zip(rgb.chunks_exact_mut(width * 3)) {
        let of_byte = |byte: u8| (0..8 / bits).rev().map(move |nth| (byte >> (nth * bits)) & value_max);
        let values = row.iter().flat_map(|&byte| of_byte(if is_ink { !byte } else { byte }));
        let (colours, _) = colours.as_chunks_mut::<3>();
        for (colour, value) in colours.iter_mut().zip(values) {
            *colour = grey(value * (u8::MAX / value_max));
        }
    }
}
