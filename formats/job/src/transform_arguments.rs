//! The arguments of transforms: what may be written in several ways is kept in one.

use serde::{Deserialize, Serialize};

/// The least and the most of a number that is drawn. The numbers have single precision, in which
/// torchvision draws and Pillow blends.
pub type Range = [f32; 2];

/// How an image is resized: Pillow's filters of these names, with antialiasing where they have any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "Pillow's names")]
pub enum Resampling {
    Nearest,
    Box,
    #[default]
    Bilinear,
    Hamming,
    Bicubic,
    Lanczos,
}

impl Resampling {
    /// Every filter.
    pub const ALL: &[Self] =
        &[Self::Nearest, Self::Box, Self::Bilinear, Self::Hamming, Self::Bicubic, Self::Lanczos];
}

/// The filter of a crop, or two: one of them is drawn for each image, as by timm's `random`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected one of `nearest`, `box`, `bilinear`, `hamming`, `bicubic`, `lanczos`, or two of them"
)]
pub enum Filters {
    /// Always this.
    One(Resampling),
    /// Each as often as the other.
    Either([Resampling; 2]),
}

impl Default for Filters {
    fn default() -> Self {
        Self::One(Resampling::default())
    }
}

/// How pixels that move are made: of the nearest pixel, of the four nearest ones, or of sixteen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "torchvision's names")]
pub enum Interpolation {
    #[default]
    Nearest,
    Bilinear,
    Bicubic,
}

/// The dataset for which the pairs of operations of an `AutoAugment` were searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "torchvision's names")]
pub enum AutoAugmentPolicy {
    #[default]
    Imagenet,
    Cifar10,
    Svhn,
}

/// One value for both, or two.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number or two of them")]
enum OneOrPair<T> {
    One(T),
    Pair([T; 2]),
}

/// Two numbers, also from one for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "OneOrPair<T>", bound(deserialize = "T: Copy + Deserialize<'de>"))]
pub struct Pair<T>(pub [T; 2]);

impl<T: Copy> From<OneOrPair<T>> for Pair<T> {
    fn from(given: OneOrPair<T>) -> Self {
        Self(match given {
            OneOrPair::One(one) => [one, one],
            OneOrPair::Pair(pair) => pair,
        })
    }
}

/// Height and width in pixels, also from one number for both.
pub type Size = Pair<u32>;

/// What `Resize` makes: the length of the shorter side, or height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the length of the shorter side, or height and width")]
pub enum Side {
    /// The ratio is kept.
    Shorter(u32),
    /// Height and width.
    Both([u32; 2]),
}

/// A colour, also from one level for red, green and blue, or from `null` for black.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "LevelOrColour")]
pub struct Colour(pub [u8; 3]);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a level from 0 to 255, or three: red, green and blue")]
enum LevelOrColour {
    /// `null`: black.
    Black,
    Level(u8),
    Colour([u8; 3]),
}

impl From<LevelOrColour> for Colour {
    fn from(given: LevelOrColour) -> Self {
        Self(match given {
            LevelOrColour::Black => [0; 3],
            LevelOrColour::Level(level) => [level; 3],
            LevelOrColour::Colour(colour) => colour,
        })
    }
}

/// How far a factor may be from its middle, or its least and most.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of at least 0, or two of them")]
enum Jitter {
    By(f64),
    Between(Range),
}

impl Jitter {
    /// The range about `middle`, which begins at `least` at the earliest.
    #[expect(clippy::cast_possible_truncation, reason = "torchvision draws in single precision")]
    fn range(self, middle: f64, least: f64) -> Result<Range, String> {
        match self {
            Self::By(by) if by < 0.0 => Err(format!("got {by}, expected at least 0")),
            Self::By(by) => Ok([(middle - by).max(least) as f32, (middle + by) as f32]),
            Self::Between(range) => Ok(range),
        }
    }
}

/// A factor of a colour, about 1: its least and most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Jitter")]
pub struct Factor(pub Range);

impl Default for Factor {
    fn default() -> Self {
        Self([1.0, 1.0])
    }
}

impl TryFrom<Jitter> for Factor {
    type Error = String;

    fn try_from(jitter: Jitter) -> Result<Self, String> {
        jitter.range(1.0, 0.0).map(Self)
    }
}

/// A turn of the hue, about 0: its least and most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Jitter")]
pub struct Hue(pub Range);

impl TryFrom<Jitter> for Hue {
    type Error = String;

    fn try_from(jitter: Jitter) -> Result<Self, String> {
        jitter.range(0.0, f64::NEG_INFINITY).map(Self)
    }
}

/// An angle: its least and most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Jitter")]
pub struct Degrees(pub Range);

impl TryFrom<Jitter> for Degrees {
    type Error = String;

    fn try_from(jitter: Jitter) -> Result<Self, String> {
        jitter.range(0.0, f64::NEG_INFINITY).map(Self)
    }
}

/// Angles by which columns lean, then lines: the least and the most of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ColumnsOrBoth")]
pub struct Shear(pub [f32; 4]);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of at least 0, two or four of them")]
enum ColumnsOrBoth {
    Columns(Degrees),
    Both([f32; 4]),
}

impl From<ColumnsOrBoth> for Shear {
    fn from(given: ColumnsOrBoth) -> Self {
        Self(match given {
            ColumnsOrBoth::Columns(Degrees([least, most])) => [least, most, 0.0, 0.0],
            ColumnsOrBoth::Both(both) => both,
        })
    }
}
