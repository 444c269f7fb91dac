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
        transforms: Vec<Part>,
        #[serde(default = "half")]
        p: f32,
    },
    RandomChoice {
        transforms: Vec<Part>,
        #[serde(default)]
        p: Option<Vec<f64>>,
    },
    RandomOrder {
        transforms: Vec<Part>,
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

/// An operation, or a list of some that belong together, as in a `Compose`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
struct Part(Vec<Operation>);

impl TryFrom<Value> for Part {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, serde_json::Error> {
        if !value.is_array() {
            return named(value).map(|operation| Self(vec![operation]));
        }
        let parts: Vec<Self> = serde_json::from_value(value)?;
        Ok(Self(parts.into_iter().flat_map(|part| part.0).collect()))
    }
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
    let list: Vec<Value> = serde_json::from_value(list).map_err(|error| error.to_string())?;
    let operations: Result<Vec<Operation>, _> = list.into_iter().map(named).collect();
    let steps = steps(operations.map_err(|error| error.to_string())?)?;
    PixelSteps::new(&steps).map_err(|error| error.to_string())
}

/// An operation, whose errors name it.
fn named(operation: Value) -> Result<Operation, serde_json::Error> {
    let name = operation.as_object().and_then(|named| named.keys().next()).cloned();
    serde_json::from_value(operation).map_err(|error| match name {
        Some(name) => serde::de::Error::custom(format_args!("{name}: {error}")),
        None => error,
    })
}

/// The steps of these operations, each followed by those that it holds.
fn steps(operations: impl IntoIterator<Item = Operation>) -> Result<Vec<PixelStep>, String> {
    let each: Result<Vec<_>, _> = operations.into_iter().map(with_held).collect();
    Ok(each?.concat())
}

/// `RandomChoice`, with an `Apply` for each part.
fn choice(parts: Vec<Part>, p: Option<Vec<f64>>) -> Result<Vec<PixelStep>, String> {
    let weights = weights(p, parts.len())?;
    let held: Result<Vec<_>, String> =
        weights.into_iter().zip(parts).map(|(p, part)| Ok(applied(p, steps(part.0)?))).collect();
    let held = held?.concat();
    Ok([vec![PixelStep::Choice { count: count(&held) }], held].concat())
}

/// `RandomOrder`, with an `Apply` for each part that is not one operation.
fn order(parts: Vec<Part>) -> Result<Vec<PixelStep>, String> {
    let held = parts.into_iter().map(|Part(part)| {
        let is_one = part.len() == 1;
        let steps = steps(part)?;
        Ok(if is_one { steps } else { applied(1.0, steps) })
    });
    let held = held.collect::<Result<Vec<_>, String>>()?.concat();
    Ok([vec![PixelStep::Order { count: count(&held) }], held].concat())
}

/// `held` behind the step that holds it.
fn applied(p: f32, held: Vec<PixelStep>) -> Vec<PixelStep> {
    [vec![PixelStep::Apply { p, count: count(&held) }], held].concat()
}

/// A specification has room for fewer than 255 steps, and refuses more.
fn count(held: &[PixelStep]) -> u8 {
    u8::try_from(held.len()).unwrap_or(u8::MAX)
}

/// The weights of the parts of a `RandomChoice`, which add up to 1.
#[expect(clippy::cast_possible_truncation, reason = "a chance has single precision")]
fn weights(p: Option<Vec<f64>>, parts: usize) -> Result<Vec<f32>, String> {
    if parts == 0 {
        return Err("RandomChoice: got no transforms, expected at least one".to_owned());
    }
    let p = p.unwrap_or_else(|| vec![1.0; parts]);
    if p.len() != parts {
        return Err(format!(
            "RandomChoice: p: got {} numbers, expected one for each of {parts} transforms",
            p.len()
        ));
    }
    let total: f64 = p.iter().sum();
    if p.iter().any(|&weight| weight < 0.0) || !(total > 0.0 && total.is_finite()) {
        return Err(format!("RandomChoice: p: got {p:?}, expected numbers of at least 0 that are not all 0"));
    }
    Ok(p.into_iter().map(|weight| (weight / total) as f32).collect())
}

/// The step of an operation, and the steps that it holds.
fn with_held(operation: Operation) -> Result<Vec<PixelStep>, String> {
    let moved = |interpolation, fill: Colour| Moved {
        bilinear: interpolation == Interpolation::Bilinear,
        fill: fill.rgb(),
    };
    let step = match operation {
        Operation::RandomApply { transforms, p } => {
            return Ok(applied(p, steps(transforms.into_iter().flat_map(|part| part.0))?));
        }
        Operation::RandomChoice { transforms, p } => return choice(transforms, p),
        Operation::RandomOrder { transforms } => return order(transforms),
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
    };
    Ok(vec![step])
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
    fn what_holds_others_comes_before_them() {
        let invert = json!({"RandomInvert": {}});
        let solarize = json!({"RandomSolarize": {"threshold": 1}});
        let list = json!([
            {"RandomChoice": {"transforms": [invert, [invert, [solarize]], []], "p": [1, 2, 1]}},
            {"RandomOrder": {"transforms": [invert, [solarize, invert], {"RandomChoice": {"transforms": [invert]}}]}},
            {"RandomApply": {"transforms": [{"RandomApply": {"transforms": [invert], "p": 0.25}}, [solarize]]}},
        ]);
        let (invert, solarize) =
            (PixelStep::Invert { p: 0.5 }, PixelStep::Solarize { threshold: 1.0, p: 0.5 });
        let apply = |p, count| PixelStep::Apply { p, count };
        let expected = [
            &[PixelStep::Choice { count: 6 }, apply(0.25, 1), invert][..],
            &[apply(0.5, 2), invert, solarize, apply(0.25, 0)],
            &[PixelStep::Order { count: 7 }, invert, apply(1.0, 2), solarize, invert],
            &[PixelStep::Choice { count: 2 }, apply(1.0, 1), invert],
            &[apply(0.5, 3), apply(0.25, 1), invert, solarize],
        ];
        let steps = pixel_steps(list).unwrap();
        assert_eq!(steps.iter().collect::<Vec<_>>(), expected.concat());
        steps.validate(8, 8).unwrap();
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let invert = json!({"RandomInvert": {}});
        for (list, expected) in [
            (json!([{"Solarise": {}}]), "unknown variant `Solarise`"),
            (json!([{"RandomSolarize": {}}]), "RandomSolarize: missing field `threshold`"),
            (
                json!([{"RandomApply": {"transforms": [[{"RandomSolarize": {}}]]}}]),
                "RandomSolarize: missing field",
            ),
            (json!([{"RandomInvert": {"q": 1}}]), "unknown field `q`"),
            (json!([{"RandomErasing": {"value": "random"}}]), "expected a level from 0 to 255"),
            (json!([{"RandomErasing": {"value": 256}}]), "expected a level from 0 to 255"),
            (json!([{"ColorJitter": {"contrast": -1}}]), "ColorJitter: contrast: got -1"),
            (json!([{"Grayscale": {}}]), "Grayscale: got 1 channels"),
            (json!([{"GaussianBlur": {"kernel_size": 257}}]), "expected a number or two of them"),
            (json!([{"RandAugment": {"interpolation": "bicubic"}}]), "unknown variant `bicubic`"),
            (json!([{"RandomChoice": {"transforms": []}}]), "RandomChoice: got no transforms"),
            (json!([{"RandomChoice": {"transforms": [invert], "p": [1, 2]}}]), "p: got 2 numbers"),
            (json!([{"RandomChoice": {"transforms": [invert], "p": [0]}}]), "not all 0"),
            (json!([{"RandomChoice": {"transforms": [invert, invert], "p": [2, -1]}}]), "at least 0"),
            (json!([{"RandomChoice": {"transforms": [invert, invert], "p": [1e308, 1e308]}}]), "not all 0"),
            (json!([{"RandomOrder": {"transforms": [invert], "p": 1}}]), "unknown field `p`"),
            (json!([{"RandomOrder": {"transforms": [[{"Solarise": {}}]]}}]), "unknown variant `Solarise`"),
            (json!([{"RandomApply": {"transforms": [{"Resize": {"size": 8}}]}}]), "unknown variant `Resize`"),
            (Value::Array(vec![invert; 49]), "number of operations on pixels is 49"),
            (json!({}), "invalid type"),
        ] {
            let text = pixel_steps(list.clone()).unwrap_err();
            assert!(text.contains(expected), "{list}: {text}");
        }
    }
}
