//! The transforms of images: torchvision's names, arguments and defaults, as JSON
//! `{"RandomSolarize": {"threshold": 128}}`.
//!
//! What may be written in several ways, such as a side for both sides, is kept in one, so that
//! equal jobs are equal documents.

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::transform_arguments::{
    AutoAugmentPolicy, Colour, Degrees, Factor, Filters, Hue, Interpolation, Pair, Range, Resampling, Shear,
    Side, Size,
};

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
    /// The four corners, then the middle, each in a view of its own. It stands alone or behind
    /// `Resize`.
    FiveCrop { size: Size },
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
    /// `center` is a place in pixels, x first; the middle without it.
    RandomRotation {
        degrees: Degrees,
        #[serde(default)]
        interpolation: Interpolation,
        #[serde(default)]
        center: Option<[f64; 2]>,
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
        #[serde(default)]
        center: Option<[f64; 2]>,
    },
    /// `distortion_scale` is the share of half a side by which corners move at most.
    RandomPerspective {
        #[serde(default = "half_f64")]
        distortion_scale: f64,
        #[serde(default = "half")]
        p: f32,
        #[serde(default = "bilinear")]
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
    /// With a `chain_depth` of -1 or 0, each chain has one to three operations. Without `fill` what
    /// lies outside is black, and edges are blended with it less.
    AugMix {
        #[serde(default = "three")]
        severity: u8,
        #[serde(default = "three")]
        mixture_width: u8,
        #[serde(default = "any_depth")]
        chain_depth: i8,
        #[serde(default = "one_f64")]
        alpha: f64,
        #[serde(default = "yes")]
        all_ops: bool,
        #[serde(default = "bilinear")]
        interpolation: Interpolation,
        #[serde(default)]
        fill: Option<Colour>,
    },
    /// `alpha` is the magnitude, and `sigma` the smoothness, along lines and columns. `fill` as in
    /// `AugMix`.
    ElasticTransform {
        #[serde(default = "fifty")]
        alpha: Pair<f32>,
        #[serde(default = "five")]
        sigma: Pair<f32>,
        #[serde(default = "bilinear")]
        interpolation: Interpolation,
        #[serde(default = "black")]
        fill: Option<Colour>,
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

fn three() -> u8 {
    3
}

fn any_depth() -> i8 {
    -1
}

fn one_f64() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn fifty() -> Pair<f32> {
    Pair([50.0; 2])
}

fn five() -> Pair<f32> {
    Pair([5.0; 2])
}

fn black() -> Option<Colour> {
    Some(Colour::default())
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

fn bilinear() -> Interpolation {
    Interpolation::Bilinear
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
            Self::FiveCrop { .. } => "FiveCrop",
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
            Self::RandomPerspective { .. } => "RandomPerspective",
            Self::RandAugment { .. } => "RandAugment",
            Self::TimmRandAugment { .. } => "TimmRandAugment",
            Self::TrivialAugmentWide { .. } => "TrivialAugmentWide",
            Self::AutoAugment { .. } => "AutoAugment",
            Self::AugMix { .. } => "AugMix",
            Self::ElasticTransform { .. } => "ElasticTransform",
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
                | Self::FiveCrop { .. }
                | Self::RandomCrop { .. }
                | Self::RandomResizedCrop { .. }
                | Self::RandomHorizontalFlip { .. }
                | Self::RandomVerticalFlip { .. }
        )
    }

    /// The same with rows of this height and width, if it makes any; `None` if it would need other
    /// numbers then.
    pub(crate) fn of_size(&self, size: [u32; 2]) -> Option<Self> {
        let mut step = self.clone();
        match &mut step {
            Self::Cover { size: Pair(own) }
            | Self::Resize { size: Side::Both(own), .. }
            | Self::RandomResizedCrop { size: Pair(own), .. } => *own = size,
            _ if self.keeps_size() => {}
            _ => return None,
        }
        Some(step)
    }

    /// Whether a flip before it is another than one after it.
    #[must_use]
    pub fn knows_places(&self) -> bool {
        matches!(self, Self::RandomErasing { .. })
            || self.moves_itself()
            || self.parts_in_effect().any(|part| part.0.iter().any(Self::knows_places))
    }

    /// Whether it, or some transform within it, gives pixels other places.
    pub(crate) fn moves_pixels(&self) -> bool {
        self.moves_itself() || self.parts_in_effect().any(|part| part.0.iter().any(Self::moves_pixels))
    }

    /// What is within it, unless that is never done.
    fn parts_in_effect(&self) -> impl Iterator<Item = &InTurn> {
        let is_never = matches!(self, Self::RandomApply { p, .. } if *p <= 0.0);
        self.parts().iter().filter(move |_| !is_never)
    }

    fn moves_itself(&self) -> bool {
        matches!(
            self,
            Self::RandomRotation { .. }
                | Self::RandomAffine { .. }
                | Self::RandomPerspective { .. }
                | Self::RandAugment { .. }
                | Self::TimmRandAugment { .. }
                | Self::TrivialAugmentWide { .. }
                | Self::AutoAugment { .. }
                | Self::AugMix { .. }
                | Self::ElasticTransform { .. }
        )
    }

    /// It and the transforms within it.
    pub(crate) fn count(&self) -> usize {
        1 + self.parts().iter().map(|part| part.0.iter().map(Self::count).sum::<usize>()).sum::<usize>()
    }
}
