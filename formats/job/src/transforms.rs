//! The transforms of images: torchvision's names, arguments and defaults, as JSON
//! `{"RandomSolarize": {"threshold": 128}}`.
//!
//! What may be written in several ways, such as a side for both sides, is kept in one, so that
//! equal jobs are equal documents.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shade_formats::limits::IMAGE_SIDE_MAX;

use crate::SpecError;
pub use crate::transform_arguments::{
    AutoAugmentPolicy, Colour, Degrees, Factor, Filters, Hue, Interpolation, Pair, Range, Resampling, Shear,
    Side, Size,
};

/// Largest factor of a colour, sharpness or ratio, and largest sigma.
const FACTOR_MAX: f32 = 1024.0;
/// Largest magnitude of timm's operations.
const TIMM_MAGNITUDE_MAX: f64 = 10.0;
/// Largest angle: a hundred turns.
const DEGREES_MAX: f32 = 36_000.0;
/// Least and largest angle of a shear: at a right angle nothing is left of an image.
const SHEAR: Range = [-89.0, 89.0];
/// Most operations of one `RandAugment`. torchvision's recipes have two or three.
const RAND_OPERATIONS_MAX: u8 = 16;

/// One transform. `p` is its chance, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of torchvision's transforms of these names")]
pub enum Transform {
    /// Resizes so that the image just covers `size`, and takes the middle of that: `image_size`. It
    /// is what `Resize(side)` and `CenterCrop(side)` do for a square.
    Cover { size: Size },
    /// The image as it is, which must have this size: what a script without a crop has.
    Whole { size: Size },
    /// The shorter side gets this length; or both sides theirs.
    Resize {
        size: Side,
        #[serde(default)]
        interpolation: Resampling,
    },
    /// Adds black pixels on each side. `RandomCrop` follows, which may pad as well.
    Pad { padding: u32 },
    /// The middle; smaller images are padded with black.
    CenterCrop { size: Size },
    /// Pads each side by `padding` black pixels, then takes a random part, which must fit.
    RandomCrop {
        size: Size,
        #[serde(default)]
        padding: u32,
    },
    /// A part of random share of the area and random width / height, resized to `size`.
    /// Where there are two interpolations, one is drawn for each image.
    RandomResizedCrop {
        size: Size,
        #[serde(default = "crop_scale")]
        scale: [f64; 2],
        #[serde(default = "crop_ratio")]
        ratio: [f64; 2],
        #[serde(default)]
        interpolation: Filters,
    },
    /// Mirrors from left to right.
    RandomHorizontalFlip {
        #[serde(default = "half_f64")]
        p: f64,
    },
    /// Mirrors from top to bottom.
    RandomVerticalFlip {
        #[serde(default = "half_f64")]
        p: f64,
    },
    /// All or none.
    RandomApply {
        transforms: InTurn,
        #[serde(default = "half")]
        p: f32,
    },
    /// One of them, by the weights `p`; all weigh alike without it.
    RandomChoice {
        transforms: Vec<InTurn>,
        #[serde(default)]
        p: Option<Vec<f64>>,
    },
    /// All, in a random order.
    RandomOrder { transforms: Vec<InTurn> },
    /// Factors from 1 to 1, and a hue from 0 to 0, change nothing.
    ColorJitter {
        #[serde(default)]
        brightness: Factor,
        #[serde(default)]
        contrast: Factor,
        #[serde(default)]
        saturation: Factor,
        #[serde(default)]
        hue: Hue,
    },
    /// With 3 channels all are equal; with 1, which comes last, the row has one.
    Grayscale {
        #[serde(default = "one")]
        num_output_channels: u8,
    },
    RandomGrayscale {
        #[serde(default = "tenth")]
        p: f32,
    },
    /// The kernel's width and height are odd.
    GaussianBlur {
        kernel_size: Pair<u8>,
        #[serde(default = "sigma")]
        sigma: Pair<f32>,
    },
    /// Pillow's `ImageFilter.GaussianBlur`, not torchvision's: `radius` is the least and the most.
    PillowGaussianBlur {
        #[serde(default = "sigma")]
        radius: Pair<f32>,
        #[serde(default = "half")]
        p: f32,
    },
    RandomSolarize {
        threshold: f32,
        #[serde(default = "half")]
        p: f32,
    },
    RandomPosterize {
        bits: u8,
        #[serde(default = "half")]
        p: f32,
    },
    RandomInvert {
        #[serde(default = "half")]
        p: f32,
    },
    RandomAutocontrast {
        #[serde(default = "half")]
        p: f32,
    },
    RandomEqualize {
        #[serde(default = "half")]
        p: f32,
    },
    RandomAdjustSharpness {
        sharpness_factor: f32,
        #[serde(default = "half")]
        p: f32,
    },
    /// Red, green and blue in a random order.
    RandomChannelPermutation {},
    /// `value` is the colour of the erased part.
    RandomErasing {
        #[serde(default = "half")]
        p: f32,
        #[serde(default = "erased_scale")]
        scale: Range,
        #[serde(default = "erased_ratio")]
        ratio: Range,
        #[serde(default)]
        value: Colour,
    },
    RandomRotation {
        degrees: Degrees,
        #[serde(default)]
        interpolation: Interpolation,
        #[serde(default)]
        fill: Colour,
    },
    /// `translate` is in shares of the sides, and `shear` the least and most degrees along x, then
    /// along y.
    RandomAffine {
        degrees: Degrees,
        #[serde(default)]
        translate: Pair<f32>,
        #[serde(default = "unscaled")]
        scale: Pair<f32>,
        #[serde(default)]
        shear: Shear,
        #[serde(default)]
        interpolation: Interpolation,
        #[serde(default)]
        fill: Colour,
    },
    RandAugment {
        #[serde(default = "two")]
        num_ops: u8,
        #[serde(default = "nine")]
        magnitude: u8,
        #[serde(default = "bins")]
        num_magnitude_bins: u8,
        #[serde(default)]
        interpolation: Interpolation,
        #[serde(default)]
        fill: Colour,
    },
    /// timm's `rand_augment_transform`, `rand-m9-mstd0.5-inc1`: `num_ops` of its fifteen
    /// operations, each with the chance `p`. One of the interpolations is drawn for each that moves
    /// pixels.
    TimmRandAugment {
        #[serde(default = "two")]
        num_ops: u8,
        #[serde(default = "ten")]
        magnitude: f64,
        #[serde(default)]
        magnitude_std: f64,
        #[serde(default = "half")]
        p: f32,
        #[serde(default)]
        increasing: bool,
        #[serde(default = "timm_translate")]
        translate: f64,
        #[serde(default = "timm_interpolations")]
        interpolations: Vec<Interpolation>,
        #[serde(default = "timm_fill")]
        fill: Colour,
    },
    TrivialAugmentWide {
        #[serde(default = "bins")]
        num_magnitude_bins: u8,
        #[serde(default)]
        interpolation: Interpolation,
        #[serde(default)]
        fill: Colour,
    },
    AutoAugment {
        #[serde(default)]
        policy: AutoAugmentPolicy,
        #[serde(default)]
        interpolation: Interpolation,
        #[serde(default)]
        fill: Colour,
    },
}

fn crop_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn crop_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

fn half_f64() -> f64 {
    0.5
}

fn half() -> f32 {
    0.5
}

fn tenth() -> f32 {
    0.1
}

fn one() -> u8 {
    1
}

fn two() -> u8 {
    2
}

fn nine() -> u8 {
    9
}

fn bins() -> u8 {
    31
}

fn ten() -> f64 {
    10.0
}

fn timm_translate() -> f64 {
    0.45
}

fn timm_interpolations() -> Vec<Interpolation> {
    vec![Interpolation::Bilinear, Interpolation::Bicubic]
}

fn timm_fill() -> Colour {
    Colour([128; 3])
}

fn sigma() -> Pair<f32> {
    Pair([0.1, 2.0])
}

fn unscaled() -> Pair<f32> {
    Pair([1.0, 1.0])
}

fn erased_scale() -> Range {
    [0.02, 0.33]
}

fn erased_ratio() -> Range {
    [0.3, 3.3]
}

/// Transforms, one after the other. It is read from one transform too, and from lists within the
/// list, which a `Compose` has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct InTurn(pub Vec<Transform>);

impl TryFrom<Value> for InTurn {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, serde_json::Error> {
        let Value::Array(parts) = value else {
            return named(value).map(|transform| Self(vec![transform]));
        };
        let parts = parts.into_iter().map(Self::try_from).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(parts.into_iter().flat_map(|part| part.0).collect()))
    }
}

/// A transform, whose errors name it.
fn named(value: Value) -> Result<Transform, serde_json::Error> {
    let name = value.as_object().and_then(|named| named.keys().next()).cloned();
    serde_json::from_value(value).map_err(|error| match name {
        Some(name) => serde::de::Error::custom(format_args!("{name}: {error}")),
        None => error,
    })
}

impl Transform {
    /// torchvision's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cover { .. } => "Cover",
            Self::Whole { .. } => "Whole",
            Self::Resize { .. } => "Resize",
            Self::Pad { .. } => "Pad",
            Self::CenterCrop { .. } => "CenterCrop",
            Self::RandomCrop { .. } => "RandomCrop",
            Self::RandomResizedCrop { .. } => "RandomResizedCrop",
            Self::RandomHorizontalFlip { .. } => "RandomHorizontalFlip",
            Self::RandomVerticalFlip { .. } => "RandomVerticalFlip",
            Self::RandomApply { .. } => "RandomApply",
            Self::RandomChoice { .. } => "RandomChoice",
            Self::RandomOrder { .. } => "RandomOrder",
            Self::ColorJitter { .. } => "ColorJitter",
            Self::Grayscale { .. } => "Grayscale",
            Self::RandomGrayscale { .. } => "RandomGrayscale",
            Self::GaussianBlur { .. } => "GaussianBlur",
            Self::PillowGaussianBlur { .. } => "PillowGaussianBlur",
            Self::RandomSolarize { .. } => "RandomSolarize",
            Self::RandomPosterize { .. } => "RandomPosterize",
            Self::RandomInvert { .. } => "RandomInvert",
            Self::RandomAutocontrast { .. } => "RandomAutocontrast",
            Self::RandomEqualize { .. } => "RandomEqualize",
            Self::RandomAdjustSharpness { .. } => "RandomAdjustSharpness",
            Self::RandomChannelPermutation {} => "RandomChannelPermutation",
            Self::RandomErasing { .. } => "RandomErasing",
            Self::RandomRotation { .. } => "RandomRotation",
            Self::RandomAffine { .. } => "RandomAffine",
            Self::RandAugment { .. } => "RandAugment",
            Self::TimmRandAugment { .. } => "TimmRandAugment",
            Self::TrivialAugmentWide { .. } => "TrivialAugmentWide",
            Self::AutoAugment { .. } => "AutoAugment",
        }
    }

    /// The transforms within it, each part one after the other.
    #[must_use]
    pub fn parts(&self) -> &[InTurn] {
        match self {
            Self::RandomApply { transforms, .. } => std::slice::from_ref(transforms),
            Self::RandomChoice { transforms, .. } | Self::RandomOrder { transforms } => transforms,
            _ => &[],
        }
    }

    /// Whether it acts on the pixels of a finished row.
    #[must_use]
    pub(crate) fn is_of_pixels(&self) -> bool {
        !matches!(
            self,
            Self::Cover { .. }
                | Self::Whole { .. }
                | Self::Resize { .. }
                | Self::Pad { .. }
                | Self::CenterCrop { .. }
                | Self::RandomCrop { .. }
                | Self::RandomResizedCrop { .. }
                | Self::RandomHorizontalFlip { .. }
                | Self::RandomVerticalFlip { .. }
        )
    }

    /// Whether a flip before it is another than one after it.
    #[must_use]
    pub fn knows_places(&self) -> bool {
        matches!(
            self,
            Self::RandomErasing { .. }
                | Self::RandomRotation { .. }
                | Self::RandomAffine { .. }
                | Self::RandAugment { .. }
                | Self::TimmRandAugment { .. }
                | Self::TrivialAugmentWide { .. }
                | Self::AutoAugment { .. }
        ) || self.parts().iter().any(|part| part.0.iter().any(Self::knows_places))
    }

    /// It and the transforms within it.
    pub(crate) fn count(&self) -> usize {
        1 + self.parts().iter().map(|part| part.0.iter().map(Self::count).sum::<usize>()).sum::<usize>()
    }

    /// Refuses arguments that torchvision refuses, too, for rows of this height and width.
    pub(crate) fn validate(&self, row: [u32; 2]) -> Result<(), SpecError> {
        let share = |p: f32| SpecError::check("p", p, [0.0, 1.0]);
        match *self {
            Self::Cover { size } | Self::Whole { size } | Self::CenterCrop { size } => check_size(size.0),
            Self::Resize { size: Side::Shorter(side), .. } => check_size([side, side]),
            Self::Resize { size: Side::Both(size), .. } => check_size(size),
            Self::Pad { padding } => SpecError::check("padding", padding, [0, IMAGE_SIDE_MAX]),
            Self::RandomCrop { size, padding } => {
                check_size(size.0)?;
                SpecError::check("padding", padding, [0, IMAGE_SIDE_MAX])
            }
            Self::RandomResizedCrop { size, scale, ratio, interpolation: _ } => {
                check_size(size.0)?;
                SpecError::check_above_0("scale", scale, 1.0)?;
                SpecError::check_above_0("ratio", ratio, f64::from(IMAGE_SIDE_MAX))
            }
            Self::RandomHorizontalFlip { p } | Self::RandomVerticalFlip { p } => {
                SpecError::check("p", p, [0.0, 1.0])
            }
            Self::RandomApply { p, .. } => share(p),
            Self::RandomChoice { ref transforms, ref p } => check_weights(transforms.len(), p.as_deref()),
            Self::RandomOrder { .. } | Self::AutoAugment { .. } | Self::RandomChannelPermutation {} => Ok(()),
            Self::RandomErasing { .. }
            | Self::RandomRotation { .. }
            | Self::RandomAffine { .. }
            | Self::RandAugment { .. }
            | Self::TimmRandAugment { .. }
            | Self::TrivialAugmentWide { .. } => self.validate_places(),
            Self::ColorJitter { brightness, contrast, saturation, hue } => {
                let factor = |name, Factor(range)| SpecError::check_range(name, range, [0.0, FACTOR_MAX]);
                factor("brightness", brightness)?;
                factor("contrast", contrast)?;
                factor("saturation", saturation)?;
                SpecError::check_range("hue", hue.0, [-0.5, 0.5])
            }
            Self::Grayscale { num_output_channels: 3 } => Ok(()),
            Self::Grayscale { num_output_channels } => {
                let expected = "3, or 1 in the last of all transforms";
                Err(SpecError::new("num_output_channels", num_output_channels, expected))
            }
            Self::RandomGrayscale { p }
            | Self::RandomInvert { p }
            | Self::RandomAutocontrast { p }
            | Self::RandomEqualize { p } => share(p),
            Self::GaussianBlur { kernel_size: Pair(kernel), sigma: Pair(sigma) } => {
                check_kernel(kernel, row)?;
                SpecError::check_above_0("sigma", sigma, FACTOR_MAX)
            }
            Self::PillowGaussianBlur { radius: Pair(radius), p } => {
                SpecError::check_range("radius", radius, [0.0, FACTOR_MAX])?;
                share(p)
            }
            Self::RandomSolarize { threshold, p } => {
                SpecError::check("threshold", threshold, [0.0, 256.0])?;
                share(p)
            }
            Self::RandomPosterize { bits, p } => {
                SpecError::check("bits", bits, [1, 8])?;
                share(p)
            }
            Self::RandomAdjustSharpness { sharpness_factor, p } => {
                SpecError::check("sharpness_factor", sharpness_factor, [0.0, FACTOR_MAX])?;
                share(p)
            }
        }
    }
    /// As [`Self::validate`], for a transform that [knows places](Self::knows_places).
    fn validate_places(&self) -> Result<(), SpecError> {
        let share = |p: f32| SpecError::check("p", p, [0.0, 1.0]);
        match *self {
            Self::RandomErasing { p, scale, ratio, value: _ } => {
                share(p)?;
                SpecError::check_range("scale", scale, [0.0, 1.0])?;
                SpecError::check_range("ratio", ratio, [1.0 / FACTOR_MAX, FACTOR_MAX])
            }
            Self::RandomRotation { degrees, .. } => check_degrees(degrees),
            Self::RandomAffine { degrees, translate: Pair(shares), scale: Pair(scale), shear, .. } => {
                check_degrees(degrees)?;
                shares.into_iter().try_for_each(|share| SpecError::check("translate", share, [0.0, 1.0]))?;
                SpecError::check_above_0("scale", scale, FACTOR_MAX)?;
                let [x_least, x_most, y_least, y_most] = shear.0;
                SpecError::check_range("shear", [x_least, x_most], SHEAR)?;
                SpecError::check_range("shear", [y_least, y_most], SHEAR)
            }
            Self::RandAugment { num_ops, magnitude, num_magnitude_bins, .. } => {
                SpecError::check("num_ops", num_ops, [0, RAND_OPERATIONS_MAX])?;
                SpecError::check("num_magnitude_bins", num_magnitude_bins, [2, u8::MAX])?;
                SpecError::check("magnitude", magnitude, [0, num_magnitude_bins - 1])
            }
            Self::TimmRandAugment {
                num_ops,
                magnitude,
                magnitude_std,
                p,
                translate,
                ref interpolations,
                ..
            } => {
                SpecError::check("num_ops", num_ops, [0, RAND_OPERATIONS_MAX])?;
                SpecError::check("magnitude", magnitude, [0.0, TIMM_MAGNITUDE_MAX])?;
                SpecError::check("magnitude_std", magnitude_std, [0.0, 100.0])?;
                SpecError::check("translate", translate, [0.0, 1.0])?;
                if interpolations.is_empty() {
                    return Err(SpecError::new("interpolations", "none", "at least one"));
                }
                share(p)
            }
            Self::TrivialAugmentWide { num_magnitude_bins, .. } => {
                SpecError::check("num_magnitude_bins", num_magnitude_bins, [2, u8::MAX])
            }
            _ => unreachable!("it knows no places: {self:?}"),
        }
    }
}

fn check_degrees(Degrees(range): Degrees) -> Result<(), SpecError> {
    SpecError::check_range("degrees", range, [-DEGREES_MAX, DEGREES_MAX])
}

fn check_size(size: [u32; 2]) -> Result<(), SpecError> {
    size.into_iter().try_for_each(|side| SpecError::check("size", side, [1, IMAGE_SIDE_MAX]))
}

/// Refuses a kernel that `GaussianBlur` cannot apply to rows of this height and width.
fn check_kernel([across, down]: [u8; 2], [height, width]: [u32; 2]) -> Result<(), SpecError> {
    let got = format!("({across}, {down})");
    if across % 2 == 0 || down % 2 == 0 {
        return Err(SpecError::new("kernel_size", got, "odd numbers of pixels up to 255"));
    }
    if u32::from(across / 2) >= width || u32::from(down / 2) >= height {
        // Beyond its edge an image is continued by its reflection.
        let expected = format_args!("less than twice the sides of a row, {width} x {height}");
        return Err(SpecError::new("kernel_size", got, expected));
    }
    Ok(())
}

/// Refuses weights by which none of the parts can be drawn.
fn check_weights(parts: usize, p: Option<&[f64]>) -> Result<(), SpecError> {
    if parts == 0 {
        return Err(SpecError::new("transforms", "empty", "at least one transform"));
    }
    let Some(p) = p else { return Ok(()) };
    if p.len() != parts {
        let got = format_args!("{} numbers", p.len());
        return Err(SpecError::new("p", got, format_args!("one for each of {parts} transforms")));
    }
    let total: f64 = p.iter().sum();
    if p.iter().any(|&weight| weight < 0.0) || !(total > 0.0 && total.is_finite()) {
        let expected = "numbers of at least 0 that are not all 0";
        return Err(SpecError::new("p", format_args!("{p:?}"), expected));
    }
    Ok(())
}
