//! One operation on the pixels of a finished row, in the words of torchvision's transforms.

use super::codec::{Reader, Writer, flag};
use super::spec_error::SpecError;
use crate::FormatError;

const APPLY: u8 = 1;
const COLOR_JITTER: u8 = 2;
const GRAYSCALE: u8 = 3;
const GAUSSIAN_BLUR: u8 = 4;
const SOLARIZE: u8 = 5;
const POSTERIZE: u8 = 6;
const INVERT: u8 = 7;
const AUTOCONTRAST: u8 = 8;
const EQUALIZE: u8 = 9;
const SHARPNESS: u8 = 10;
const ERASING: u8 = 11;
const RAND_AUGMENT: u8 = 12;
const TRIVIAL_AUGMENT_WIDE: u8 = 13;

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

/// One operation. `p` is its chance, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of torchvision's transforms of these names")]
pub enum PixelStep {
    /// `RandomApply`: the next `count` steps come with chance `p`, all or none.
    Apply { p: f32, count: u8 },
    /// `ColorJitter`. Factors from 1 to 1, and a hue from 0 to 0, change nothing.
    ColorJitter { brightness: Range, contrast: Range, saturation: Range, hue: Range },
    /// `RandomGrayscale`; with 1 `Grayscale(3)`.
    Grayscale { p: f32 },
    /// `GaussianBlur`; `kernel` is width and height, both odd.
    GaussianBlur { kernel: [u8; 2], sigma: Range },
    /// `RandomSolarize`.
    Solarize { threshold: f32, p: f32 },
    /// `RandomPosterize`.
    Posterize { bits: u8, p: f32 },
    /// `RandomInvert`.
    Invert { p: f32 },
    /// `RandomAutocontrast`.
    Autocontrast { p: f32 },
    /// `RandomEqualize`.
    Equalize { p: f32 },
    /// `RandomAdjustSharpness`.
    Sharpness { factor: f32, p: f32 },
    /// `RandomErasing`; `value` is the colour of the erased part.
    Erasing { p: f32, scale: Range, ratio: Range, value: [u8; 3] },
    /// `RandAugment`, with `num_ops`, `magnitude` and `num_magnitude_bins`.
    RandAugment { operations: u8, magnitude: u8, bins: u8, moved: Moved },
    /// `TrivialAugmentWide`, with `num_magnitude_bins`.
    TrivialAugmentWide { bins: u8, moved: Moved },
}

impl PixelStep {
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
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        let chance = |writer: &mut Writer, code, p| {
            writer.u8(code);
            writer.f32(p);
        };
        match *self {
            Self::Apply { p, count } => {
                chance(writer, APPLY, p);
                writer.u8(count);
            }
            Self::ColorJitter { brightness, contrast, saturation, hue } => {
                writer.u8(COLOR_JITTER);
                [brightness, contrast, saturation, hue].as_flattened().iter().for_each(|&n| writer.f32(n));
            }
            Self::Grayscale { p } => chance(writer, GRAYSCALE, p),
            Self::GaussianBlur { kernel, sigma } => {
                writer.u8(GAUSSIAN_BLUR);
                kernel.into_iter().for_each(|side| writer.u8(side));
                sigma.into_iter().for_each(|number| writer.f32(number));
            }
            Self::Solarize { threshold, p } => {
                chance(writer, SOLARIZE, p);
                writer.f32(threshold);
            }
            Self::Posterize { bits, p } => {
                chance(writer, POSTERIZE, p);
                writer.u8(bits);
            }
            Self::Invert { p } => chance(writer, INVERT, p),
            Self::Autocontrast { p } => chance(writer, AUTOCONTRAST, p),
            Self::Equalize { p } => chance(writer, EQUALIZE, p),
            Self::Sharpness { factor, p } => {
                chance(writer, SHARPNESS, p);
                writer.f32(factor);
            }
            Self::Erasing { p, scale, ratio, value } => {
                chance(writer, ERASING, p);
                scale.into_iter().chain(ratio).for_each(|number| writer.f32(number));
                value.into_iter().for_each(|level| writer.u8(level));
            }
            Self::RandAugment { operations, magnitude, bins, moved } => {
                [RAND_AUGMENT, operations, magnitude, bins].into_iter().for_each(|byte| writer.u8(byte));
                moved.write(writer);
            }
            Self::TrivialAugmentWide { bins, moved } => {
                writer.u8(TRIVIAL_AUGMENT_WIDE);
                writer.u8(bins);
                moved.write(writer);
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let at = reader.offset();
        Ok(match reader.u8()? {
            APPLY => Self::Apply { p: reader.f32()?, count: reader.u8()? },
            COLOR_JITTER => Self::ColorJitter {
                brightness: read_range(reader)?,
                contrast: read_range(reader)?,
                saturation: read_range(reader)?,
                hue: read_range(reader)?,
            },
            GRAYSCALE => Self::Grayscale { p: reader.f32()? },
            GAUSSIAN_BLUR => Self::GaussianBlur { kernel: reader.array()?, sigma: read_range(reader)? },
            SOLARIZE => {
                let p = reader.f32()?;
                Self::Solarize { threshold: reader.f32()?, p }
            }
            POSTERIZE => {
                let p = reader.f32()?;
                Self::Posterize { bits: reader.u8()?, p }
            }
            INVERT => Self::Invert { p: reader.f32()? },
            AUTOCONTRAST => Self::Autocontrast { p: reader.f32()? },
            EQUALIZE => Self::Equalize { p: reader.f32()? },
            SHARPNESS => {
                let p = reader.f32()?;
                Self::Sharpness { factor: reader.f32()?, p }
            }
            ERASING => Self::Erasing {
                p: reader.f32()?,
                scale: read_range(reader)?,
                ratio: read_range(reader)?,
                value: reader.array()?,
            },
            RAND_AUGMENT => Self::RandAugment {
                operations: reader.u8()?,
                magnitude: reader.u8()?,
                bins: reader.u8()?,
                moved: Moved::read(reader)?,
            },
            TRIVIAL_AUGMENT_WIDE => {
                Self::TrivialAugmentWide { bins: reader.u8()?, moved: Moved::read(reader)? }
            }
            code => return Err(FormatError::new("pixel step", at, code, "a known code")),
        })
    }
}

impl Moved {
    fn write(self, writer: &mut Writer) {
        writer.u8(u8::from(self.bilinear));
        self.fill.into_iter().for_each(|level| writer.u8(level));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self { bilinear: reader.choice("bilinear", flag)?, fill: reader.array()? })
    }
}

fn read_range(reader: &mut Reader<'_>) -> Result<Range, FormatError> {
    Ok([reader.f32()?, reader.f32()?])
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
