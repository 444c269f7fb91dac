//! An operation with all its numbers: nothing is left to chance.

use shade_job::Interpolation;

use super::elastic::Elastic;
use super::mixture::Mix;
use super::perspective::Coefficients;
use super::tensors::OfTensor;
use crate::Area;

/// How pixels that move are made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moved {
    /// From which pixels.
    pub(super) interpolation: Interpolation,
    /// Colour of what comes from outside the image.
    pub(super) fill: [u8; 3],
}

/// One operation, under the name of torchvision's function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operation {
    /// `adjust_brightness`.
    Brightness(f32),
    /// `adjust_contrast`.
    Contrast(f32),
    /// `adjust_saturation`.
    Saturation(f32),
    /// `adjust_hue`, from -0.5 to 0.5.
    Hue(f32),
    /// `rgb_to_grayscale` with three channels.
    Grey,
    /// `permute_channels`: each channel becomes the one of this number.
    Permute([u8; 3]),
    /// `gaussian_blur`; the kernel has this width and height.
    Blur { kernel: [u8; 2], sigma: f32 },
    /// Pillow's `ImageFilter.GaussianBlur` of this radius.
    PillowBlur(f32),
    /// `solarize`: levels from the threshold on are inverted.
    Solarize(f32),
    /// timm's `solarize_add`: this is added to levels below 128.
    SolarizeAdd(u8),
    /// `posterize`: this number of bits is kept.
    Posterize(u8),
    /// `invert`.
    Invert,
    /// `autocontrast`.
    Autocontrast,
    /// `equalize`.
    Equalize,
    /// `adjust_sharpness`.
    Sharpness(f32),
    /// `affine`, `rotate` or `perspective`.
    Move(Motion, Moved),
    /// As torchvision does it to a tensor.
    OfTensor(OfTensor),
    /// A step of a mixture of the row with changed copies of it.
    Mix(Mix),
    /// `elastic`.
    Elastic(Elastic),
    /// `erase`, with a colour.
    Erase(Area, [u8; 3]),
}

/// A motion as `RandAugment` defines it, or `affine` in general.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Motion {
    /// Tangent of the angle by which columns lean.
    ShearX(f64),
    /// Tangent of the angle by which lines lean.
    ShearY(f64),
    /// Pixels to the right.
    TranslateX(i32),
    /// Pixels down.
    TranslateY(i32),
    /// Degrees, counter-clockwise, about the middle.
    Rotate(f64),
    /// The same about a place in pixels, x first.
    RotateAbout([f64; 2], f64),
    /// By the matrix from a pixel of the result to its place in the source.
    By([f64; 6]),
    /// `perspective`.
    Perspective(Coefficients),
    /// `affine`: a rotation, then pixels to the right and down.
    Affine {
        /// Degrees, clockwise.
        degrees: f64,
        /// Pixels to the right, and down.
        translate: [i32; 2],
        /// Size of the result.
        scale: f64,
        /// Degrees by which columns lean, and lines.
        shear: [f64; 2],
        /// The place that stays without a translation, x first; `None`: the middle.
        center: Option<[f64; 2]>,
    },
}
