//! One operation on the pixels of a finished row, in the words of torchvision's transforms.

use super::codec::{Field, Reader, Writer};
use super::field::coded;
use super::spec_error::SpecError;
use crate::FormatError;

/// Largest factor of a colour, sharpness or ratio, and largest sigma.
const FACTOR_MAX: f32 = 1024.0;
/// Most operations of one `RandAugment`. torchvision's recipes have two or three.
const RAND_OPERATIONS_MAX: u8 = 16;

/// The least and the most of a number that is drawn. The numbers have single precision, in which
/// torchvision draws and Pillow blends.
pub type Range = [f32; 2];

/// How pixels that move are made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// From the four nearest pixels instead of the nearest one.
    pub bilinear: bool,
    /// Colour of what comes from outside the image.
    pub fill: [u8; 3],
}

coded! {
    /// One operation. `p` is its chance, 0 to 1.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[expect(missing_docs, reason = "the fields are those of torchvision's transforms of these names")]
    pub enum PixelStep: u8 {
        /// `RandomApply`: the next `count` steps come with chance `p`, all or none.
        1 => Apply { p: f32, count: u8 },
        /// `ColorJitter`. Factors from 1 to 1, and a hue from 0 to 0, change nothing.
        2 => ColorJitter { brightness: Range, contrast: Range, saturation: Range, hue: Range },
        /// `RandomGrayscale`; with 1 `Grayscale(3)`.
        3 => Grayscale { p: f32 },
        /// `GaussianBlur`; `kernel` is width and height, both odd.
        4 => GaussianBlur { kernel: [u8; 2], sigma: Range },
        /// `RandomSolarize`.
        5 => Solarize { p: f32, threshold: f32 },
        /// `RandomPosterize`.
        6 => Posterize { p: f32, bits: u8 },
        /// `RandomInvert`.
        7 => Invert { p: f32 },
        /// `RandomAutocontrast`.
        8 => Autocontrast { p: f32 },
        /// `RandomEqualize`.
        9 => Equalize { p: f32 },
        /// `RandomAdjustSharpness`.
        10 => Sharpness { p: f32, factor: f32 },
        /// `RandomErasing`; `value` is the colour of the erased part.
        11 => Erasing { p: f32, scale: Range, ratio: Range, value: [u8; 3] },
        /// `RandAugment`, with `num_ops`, `magnitude` and `num_magnitude_bins`.
        12 => RandAugment { operations: u8, magnitude: u8, bins: u8, moved: Moved },
        /// `TrivialAugmentWide`, with `num_magnitude_bins`.
        13 => TrivialAugmentWide { bins: u8, moved: Moved },
        /// `RandomChoice`: the next `count` steps are `Apply`s and what these hold. One `Apply` is
        /// drawn, `p` being its weight, and all that it holds is done.
        14 => Choice { count: u8 },
        /// `RandomOrder`: the next `count` steps come in a random order, each with what it holds.
        15 => Order { count: u8 },
    }
}

impl PixelStep {
    /// The first of `steps`, those that it holds, and those behind them. `None` if there is none,
    /// or if it counts more steps than follow.
    #[must_use]
    pub fn split_first(steps: &[Self]) -> Option<(Self, &[Self], &[Self])> {
        let (&first, behind) = steps.split_first()?;
        let (held, rest) = behind.split_at_checked(usize::from(first.holds()))?;
        Some((first, held, rest))
    }

    /// How many of the next steps are part of this one.
    pub(super) fn holds(&self) -> u8 {
        match *self {
            Self::Apply { count, .. } | Self::Choice { count } | Self::Order { count } => count,
            _ => 0,
        }
    }

    /// torchvision's name of a step that holds others.
    pub(super) fn holder(&self) -> &'static str {
        match self {
            Self::Choice { .. } => "RandomChoice",
            Self::Order { .. } => "RandomOrder",
            _ => "RandomApply",
        }
    }

    /// Whether a flip before this step is another than one after it.
    #[must_use]
    pub fn knows_places(&self) -> bool {
        matches!(self, Self::Erasing { .. } | Self::RandAugment { .. } | Self::TrivialAugmentWide { .. })
    }

    /// Refuses numbers that torchvision refuses, too.
    pub(super) fn validate(&self) -> Result<(), SpecError> {
        match *self {
            Self::Apply { p, .. }
            | Self::Grayscale { p }
            | Self::Invert { p }
            | Self::Autocontrast { p }
            | Self::Equalize { p } => share(p),
            Self::ColorJitter { brightness, contrast, saturation, hue } => {
                range("brightness", brightness, 0.0, FACTOR_MAX)?;
                range("contrast", contrast, 0.0, FACTOR_MAX)?;
                range("saturation", saturation, 0.0, FACTOR_MAX)?;
                range("hue", hue, -0.5, 0.5)
            }
            Self::GaussianBlur { kernel, sigma } => {
                if kernel.iter().any(|side| side % 2 == 0) {
                    let got = format_args!("({}, {})", kernel[0], kernel[1]);
                    return Err(SpecError::new("kernel_size", got, "odd numbers of pixels up to 255"));
                }
                match sigma {
                    [from, _] if from > 0.0 => range("sigma", sigma, 0.0, FACTOR_MAX),
                    [from, to] => {
                        let expected =
                            format_args!("two numbers above 0 and up to {FACTOR_MAX}, the smaller one first");
                        Err(SpecError::new("sigma", format_args!("({from}, {to})"), expected))
                    }
                }
            }
            Self::Solarize { threshold, p } => {
                number("threshold", threshold, 0.0, 256.0)?;
                share(p)
            }
            Self::Posterize { bits, p } => {
                whole("bits", bits, 1, 8)?;
                share(p)
            }
            Self::Sharpness { factor, p } => {
                number("sharpness_factor", factor, 0.0, FACTOR_MAX)?;
                share(p)
            }
            Self::Erasing { p, scale, ratio, value: _ } => {
                share(p)?;
                range("scale", scale, 0.0, 1.0)?;
                range("ratio", ratio, 1.0 / FACTOR_MAX, FACTOR_MAX)
            }
            Self::RandAugment { operations, magnitude, bins, moved: _ } => {
                whole("num_ops", operations, 0, RAND_OPERATIONS_MAX)?;
                whole("num_magnitude_bins", bins, 2, u8::MAX)?;
                whole("magnitude", magnitude, 0, bins - 1)
            }
            Self::TrivialAugmentWide { bins, moved: _ } => whole("num_magnitude_bins", bins, 2, u8::MAX),
            Self::Choice { .. } | Self::Order { .. } => Ok(()),
        }
    }
}

impl Field for Moved {
    fn write(&self, writer: &mut Writer) {
        writer.put(&self.bilinear);
        writer.put(&self.fill);
    }

    fn read(reader: &mut Reader<'_>, _name: &'static str) -> Result<Self, FormatError> {
        Ok(Self { bilinear: reader.get("bilinear")?, fill: reader.get("fill")? })
    }
}

fn share(p: f32) -> Result<(), SpecError> {
    SpecError::check_share("p", p.into())
}

/// Refuses a number outside `least..=most`; NaN is in no range.
fn number(field: &'static str, value: f32, least: f32, most: f32) -> Result<(), SpecError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SpecError::new(field, value, format_args!("{least} to {most}")))
}

fn whole(field: &'static str, value: u8, least: u8, most: u8) -> Result<(), SpecError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SpecError::new(field, value, format_args!("{least} to {most}")))
}

fn range(field: &'static str, [from, to]: Range, least: f32, most: f32) -> Result<(), SpecError> {
    if least <= from && from <= to && to <= most {
        return Ok(());
    }
    let expected = format_args!("two numbers from {least} to {most}, the smaller one first");
    Err(SpecError::new(field, format_args!("({from}, {to})"), expected))
}
