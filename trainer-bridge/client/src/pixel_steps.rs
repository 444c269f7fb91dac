//! Operations on pixels in the words of a training script: JSON of torchvision's names, arguments
//! and defaults. Every binding reads it here.

use serde::Deserialize;
use serde_json::Value;
use shade_formats::control::{Moved, PixelStep, PixelSteps, Range};

/// One operation: `{"RandomSolarize": {"threshold": 128}}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
enum Operation {
    RandomApply {
        transforms: Vec<Operation>,
        #[serde(default = "half")]
        p: f32,
    },
    ColorJitter {
        #[serde(default)]
        brightness: Jitter,
        #[serde(default)]
        contrast: Jitter,
        #[serde(default)]
        saturation: Jitter,
        #[serde(default)]
        hue: Jitter,
    },
    Grayscale {
        #[serde(default = "one")]
        num_output_channels: u8,
    },
    RandomGrayscale {
        #[serde(default = "tenth")]
        p: f32,
    },
    GaussianBlur {
        kernel_size: OneOrPair<u8>,
        #[serde(default = "sigma")]
        sigma: OneOrPair<f32>,
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
    RandomErasing {
        #[serde(default = "half")]
        p: f32,
        #[serde(default = "scale")]
        scale: Range,
        #[serde(default = "ratio")]
        ratio: Range,
        #[serde(default)]
        value: Colour,
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
    TrivialAugmentWide {
        #[serde(default = "bins")]
        num_magnitude_bins: u8,
        #[serde(default)]
        interpolation: Interpolation,
        #[serde(default)]
        fill: Colour,
    },
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

fn sigma() -> OneOrPair<f32> {
    OneOrPair::Pair([0.1, 2.0])
}

fn scale() -> Range {
    [0.02, 0.33]
}

fn ratio() -> Range {
    [0.3, 3.3]
}

/// A number for both, or two.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number or two of them")]
enum OneOrPair<T> {
    One(T),
    Pair([T; 2]),
}

impl<T: Copy> OneOrPair<T> {
    fn pair(self) -> [T; 2] {
        match self {
            Self::One(one) => [one, one],
            Self::Pair(pair) => pair,
        }
    }
}

/// How far a factor may be from its middle, or its least and most.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number of at least 0, or two of them")]
enum Jitter {
    By(f64),
    Between(Range),
}

impl Default for Jitter {
    fn default() -> Self {
        Self::By(0.0)
    }
}

impl Jitter {
    /// The range about `middle`, which begins at `least` at the earliest.
    #[expect(clippy::cast_possible_truncation, reason = "torchvision draws in single precision")]
    fn range(self, name: &str, middle: f64, least: f64) -> Result<Range, String> {
        match self {
            Self::By(by) if by < 0.0 => Err(format!("ColorJitter: {name}: got {by}, expected at least 0")),
            Self::By(by) => Ok([(middle - by).max(least) as f32, (middle + by) as f32]),
            Self::Between(range) => Ok(range),
        }
    }
}

/// A grey level for all colours, or one for each.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a level from 0 to 255, or three: red, green and blue")]
enum Colour {
    Grey(u8),
    Rgb([u8; 3]),
}

impl Default for Colour {
    fn default() -> Self {
        Self::Grey(0)
    }
}

impl Colour {
    fn rgb(self) -> [u8; 3] {
        match self {
            Self::Grey(level) => [level; 3],
            Self::Rgb(colour) => colour,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Interpolation {
    #[default]
    Nearest,
    Bilinear,
}

/// The operations that a JSON list has, as a specification has them.
///
/// # Errors
/// What is wrong with the list, for the person who wrote it.
pub fn pixel_steps(list: Value) -> Result<PixelSteps, String> {
    let operations: Vec<Operation> = serde_json::from_value(list).map_err(|error| error.to_string())?;
    let mut steps = Vec::with_capacity(operations.len());
    for operation in operations {
        match operation {
            Operation::RandomApply { transforms, p } => {
                let inner: Result<Vec<PixelStep>, String> = transforms.into_iter().map(step).collect();
                let inner = inner?;
                let count = u8::try_from(inner.len()).unwrap_or(u8::MAX);
                steps.push(PixelStep::Apply { p, count });
                steps.extend(inner);
            }
            other => steps.push(step(other)?),
        }
    }
    PixelSteps::new(&steps).map_err(|error| error.to_string())
}

fn step(operation: Operation) -> Result<PixelStep, String> {
    let moved = |interpolation, fill: Colour| Moved {
        bilinear: interpolation == Interpolation::Bilinear,
        fill: fill.rgb(),
    };
    Ok(match operation {
        Operation::RandomApply { .. } => {
            return Err("RandomApply: got one within another, which the daemon does not do".to_owned());
        }
        Operation::ColorJitter { brightness, contrast, saturation, hue } => PixelStep::ColorJitter {
            brightness: brightness.range("brightness", 1.0, 0.0)?,
            contrast: contrast.range("contrast", 1.0, 0.0)?,
            saturation: saturation.range("saturation", 1.0, 0.0)?,
            hue: hue.range("hue", 0.0, f64::NEG_INFINITY)?,
        },
        Operation::Grayscale { num_output_channels: 3 } => PixelStep::Grayscale { p: 1.0 },
        Operation::Grayscale { num_output_channels } => {
            return Err(format!(
                "Grayscale: got {num_output_channels} channels, expected 3, or 1 as the last of all"
            ));
        }
        Operation::RandomGrayscale { p } => PixelStep::Grayscale { p },
        Operation::GaussianBlur { kernel_size, sigma } => {
            PixelStep::GaussianBlur { kernel: kernel_size.pair(), sigma: sigma.pair() }
        }
        Operation::RandomSolarize { threshold, p } => PixelStep::Solarize { threshold, p },
        Operation::RandomPosterize { bits, p } => PixelStep::Posterize { bits, p },
        Operation::RandomInvert { p } => PixelStep::Invert { p },
        Operation::RandomAutocontrast { p } => PixelStep::Autocontrast { p },
        Operation::RandomEqualize { p } => PixelStep::Equalize { p },
        Operation::RandomAdjustSharpness { sharpness_factor, p } => {
            PixelStep::Sharpness { factor: sharpness_factor, p }
        }
        Operation::RandomErasing { p, scale, ratio, value } => {
            PixelStep::Erasing { p, scale, ratio, value: value.rgb() }
        }
        Operation::RandAugment { num_ops, magnitude, num_magnitude_bins, interpolation, fill } => {
            let moved = moved(interpolation, fill);
            PixelStep::RandAugment { operations: num_ops, magnitude, bins: num_magnitude_bins, moved }
        }
        Operation::TrivialAugmentWide { num_magnitude_bins, interpolation, fill } => {
            PixelStep::TrivialAugmentWide { bins: num_magnitude_bins, moved: moved(interpolation, fill) }
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_and_defaults_are_torchvisions() {
        let steps = pixel_steps(json!([
            {"RandomApply": {"transforms": [{"ColorJitter": {"brightness": 0.4, "hue": [-0.1, 0.2]}}], "p": 0.8}},
            {"RandomGrayscale": {}},
            {"GaussianBlur": {"kernel_size": [5, 3]}},
            {"RandomErasing": {"value": [1, 2, 3]}},
            {"RandAugment": {"interpolation": "bilinear", "fill": 7}},
            {"TrivialAugmentWide": {}},
            {"Grayscale": {"num_output_channels": 3}}
        ]))
        .unwrap();
        let one = [1.0, 1.0];
        let jitter = PixelStep::ColorJitter {
            brightness: [0.6, 1.4],
            contrast: one,
            saturation: one,
            hue: [-0.1, 0.2],
        };
        let expected = [
            PixelStep::Apply { p: 0.8, count: 1 },
            jitter,
            PixelStep::Grayscale { p: 0.1 },
            PixelStep::GaussianBlur { kernel: [5, 3], sigma: [0.1, 2.0] },
            PixelStep::Erasing { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: [1, 2, 3] },
            PixelStep::RandAugment {
                operations: 2,
                magnitude: 9,
                bins: 31,
                moved: Moved { bilinear: true, fill: [7; 3] },
            },
            PixelStep::TrivialAugmentWide { bins: 31, moved: Moved::default() },
            PixelStep::Grayscale { p: 1.0 },
        ];
        assert_eq!(steps.iter().collect::<Vec<_>>(), expected);
        steps.validate(32, 32).unwrap();
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let invert = json!({"RandomInvert": {}});
        for (list, expected) in [
            (json!([{"Solarise": {}}]), "unknown variant `Solarise`"),
            (json!([{"RandomSolarize": {}}]), "missing field `threshold`"),
            (json!([{"RandomInvert": {"q": 1}}]), "unknown field `q`"),
            (json!([{"RandomErasing": {"value": "random"}}]), "expected a level from 0 to 255"),
            (json!([{"RandomErasing": {"value": 256}}]), "expected a level from 0 to 255"),
            (json!([{"ColorJitter": {"contrast": -1}}]), "ColorJitter: contrast: got -1"),
            (json!([{"Grayscale": {}}]), "Grayscale: got 1 channels"),
            (json!([{"GaussianBlur": {"kernel_size": 257}}]), "expected a number or two of them"),
            (json!([{"RandAugment": {"interpolation": "bicubic"}}]), "unknown variant `bicubic`"),
            (
                json!([{"RandomApply": {"transforms": [{"RandomApply": {"transforms": []}}]}}]),
                "RandomApply: got one within another",
            ),
            (Value::Array(vec![invert; 13]), "number of operations on pixels is 13"),
            (json!({}), "invalid type"),
        ] {
            let text = pixel_steps(list.clone()).unwrap_err();
            assert!(text.contains(expected), "{list}: {text}");
        }
    }
}
