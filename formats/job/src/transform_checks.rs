//! Which arguments a transform may have: those that torchvision takes, too, within bounds.

use shade_formats::limits::IMAGE_SIDE_MAX;

use crate::SpecError;
use crate::transforms::{Degrees, Factor, Interpolation, Pair, Range, Side, Transform};

/// Largest factor of a colour, sharpness or ratio, and largest sigma.
const FACTOR_MAX: f32 = 1024.0;
/// Largest magnitude of timm's operations. What is drawn above 10 is 10, as timm has it.
const TIMM_MAGNITUDE_MAX: f64 = 1000.0;
/// Largest angle: a hundred turns.
const DEGREES_MAX: f32 = 36_000.0;
/// Least and largest angle of a shear: at a right angle nothing is left of an image.
const SHEAR: Range = [-89.0, 89.0];
/// Most chains of an `AugMix`, and most operations of one. Its paper has three.
const CHAINS_MAX: u8 = 16;
const CHAIN_OPERATIONS_MAX: i8 = 16;
/// The parameter of `AugMix`: beyond, one chain is all or all are alike.
const ALPHA: [f64; 2] = [0.001, 1000.0];
/// Largest magnitude of an `ElasticTransform`, and largest sigma: its kernel has 249 taps.
const ELASTIC_MAX: f32 = 16_384.0;
const SIGMA_MAX: f32 = 31.0;
/// Most operations of one `RandAugment`. torchvision's recipes have two or three.
const RAND_OPERATIONS_MAX: u8 = 16;

impl Transform {
    /// Refuses arguments that torchvision refuses, too, for rows of this height and width.
    pub(crate) fn validate(&self, row: [u32; 2]) -> Result<(), SpecError> {
        let share = |p: f32| SpecError::check("p", p, [0.0, 1.0]);
        match *self {
            Self::Cover { .. }
            | Self::Whole { .. }
            | Self::CenterCrop { .. }
            | Self::FiveCrop { .. }
            | Self::Resize { .. }
            | Self::Pad { .. }
            | Self::RandomCrop { .. }
            | Self::RandomResizedCrop { .. }
            | Self::RandomHorizontalFlip { .. }
            | Self::RandomVerticalFlip { .. } => self.validate_geometry(),
            Self::RandomApply { p, .. } => share(p),
            Self::RandomChoice { ref transforms, ref p } => check_weights(transforms.len(), p.as_deref()),
            Self::RandomOrder { .. } | Self::AutoAugment { .. } | Self::RandomChannelPermutation {} => Ok(()),
            Self::RandomErasing { .. }
            | Self::RandomRotation { .. }
            | Self::RandomAffine { .. }
            | Self::RandomPerspective { .. }
            | Self::AugMix { .. }
            | Self::ElasticTransform { .. }
            | Self::RandAugment { .. }
            | Self::TimmRandAugment { .. }
            | Self::TrivialAugmentWide { .. } => self.validate_places(row),
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

    /// As [`Self::validate`], for what is no transform of pixels.
    fn validate_geometry(&self) -> Result<(), SpecError> {
        match *self {
            Self::Cover { size }
            | Self::Whole { size }
            | Self::CenterCrop { size }
            | Self::FiveCrop { size } => check_size(size.0),
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
            _ => unreachable!("it is of pixels: {self:?}"),
        }
    }

    /// As [`Self::validate`], for a transform that [knows places](Self::knows_places).
    fn validate_places(&self, row: [u32; 2]) -> Result<(), SpecError> {
        let share = |p: f32| SpecError::check("p", p, [0.0, 1.0]);
        match *self {
            Self::RandomErasing { p, scale, ratio, value: _ } => {
                share(p)?;
                SpecError::check_range("scale", scale, [0.0, 1.0])?;
                SpecError::check_range("ratio", ratio, [1.0 / FACTOR_MAX, FACTOR_MAX])
            }
            Self::RandomRotation { degrees, center, .. } => {
                check_degrees(degrees)?;
                check_center(center)
            }
            Self::RandomAffine {
                degrees,
                translate: Pair(shares),
                scale: Pair(scale),
                shear,
                center,
                ..
            } => {
                check_degrees(degrees)?;
                check_center(center)?;
                shares.into_iter().try_for_each(|share| SpecError::check("translate", share, [0.0, 1.0]))?;
                SpecError::check_above_0("scale", scale, FACTOR_MAX)?;
                let [x_least, x_most, y_least, y_most] = shear.0;
                SpecError::check_range("shear", [x_least, x_most], SHEAR)?;
                SpecError::check_range("shear", [y_least, y_most], SHEAR)
            }
            Self::RandomPerspective { distortion_scale, p, .. } => {
                SpecError::check("distortion_scale", distortion_scale, [0.0, 1.0])?;
                share(p)
            }
            Self::ElasticTransform { alpha: Pair(alpha), sigma: Pair(sigma), interpolation, .. } => {
                alpha
                    .into_iter()
                    .try_for_each(|alpha| SpecError::check("alpha", alpha, [0.0, ELASTIC_MAX]))?;
                check_elastic(sigma, row)?;
                check_of_tensors(interpolation)
            }
            Self::RandAugment { .. }
            | Self::TimmRandAugment { .. }
            | Self::TrivialAugmentWide { .. }
            | Self::AugMix { .. } => self.validate_policy(),
            _ => unreachable!("it knows no places: {self:?}"),
        }
    }

    /// As [`Self::validate`], for what draws among many operations.
    fn validate_policy(&self) -> Result<(), SpecError> {
        match *self {
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
                SpecError::check("p", p, [0.0, 1.0])
            }
            Self::TrivialAugmentWide { num_magnitude_bins, .. } => {
                SpecError::check("num_magnitude_bins", num_magnitude_bins, [2, u8::MAX])
            }
            Self::AugMix { severity, mixture_width, chain_depth, alpha, interpolation, .. } => {
                SpecError::check("severity", severity, [1, 10])?;
                SpecError::check("mixture_width", mixture_width, [1, CHAINS_MAX])?;
                SpecError::check("chain_depth", chain_depth, [-1, CHAIN_OPERATIONS_MAX])?;
                SpecError::check("alpha", alpha, ALPHA)?;
                check_of_tensors(interpolation)
            }
            _ => unreachable!("it is no policy: {self:?}"),
        }
    }
}

fn check_degrees(Degrees(range): Degrees) -> Result<(), SpecError> {
    SpecError::check_range("degrees", range, [-DEGREES_MAX, DEGREES_MAX])
}

/// Refuses what torchvision has for PIL images only.
fn check_of_tensors(interpolation: Interpolation) -> Result<(), SpecError> {
    match interpolation {
        Interpolation::Nearest | Interpolation::Bilinear => Ok(()),
        Interpolation::Bicubic => Err(SpecError::new("interpolation", "bicubic", "nearest or bilinear")),
    }
}

/// Refuses the blur of a field that torchvision refuses, for rows of this height and width.
fn check_elastic(sigma: [f32; 2], [height, width]: [u32; 2]) -> Result<(), SpecError> {
    if sigma == [0.0; 2] {
        return Ok(());
    }
    for sigma in sigma {
        SpecError::check_as(
            "sigma",
            sigma,
            [f32::MIN_POSITIVE, SIGMA_MAX],
            "above 0 and up to 31, or 0 twice",
        )?;
        // torchvision's kernel. Beyond its edge a field is continued by its reflection.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "249 at most")]
        let length = (8.0 * sigma + 1.0) as u32 | 1;
        if length / 2 >= height.min(width) {
            let expected = format_args!("less than a quarter of the sides of a row, {width} x {height}");
            return Err(SpecError::new("sigma", sigma, expected));
        }
    }
    Ok(())
}

/// Refuses a place that is far from any image.
fn check_center(center: Option<[f64; 2]>) -> Result<(), SpecError> {
    let most = f64::from(IMAGE_SIDE_MAX);
    center.into_iter().flatten().try_for_each(|place| SpecError::check("center", place, [-most, most]))
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
