//! The transforms of `decode`, in the names and arguments of `shade_load.transforms`.

use serde::Deserialize;
use serde_json::Value;
use shade_client::{Framing, ImageSpec, Output, PixelSteps, pixel_steps};

use crate::fault::Fault;

/// A side, or height and width.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a side or [height, width]")]
pub(crate) enum Size {
    Side(u32),
    Pair([u32; 2]),
}

impl Size {
    fn pair(self) -> [u32; 2] {
        match self {
            Self::Side(side) => [side, side],
            Self::Pair(pair) => pair,
        }
    }
}

/// One step: `{"RandomResizedCrop": {"size": 224}}`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
enum Transform {
    Resize {
        size: Size,
    },
    CenterCrop {
        size: Size,
    },
    RandomCrop {
        size: Size,
        #[serde(default)]
        padding: u32,
    },
    RandomResizedCrop {
        size: Size,
        #[serde(default = "scale")]
        scale: [f64; 2],
        #[serde(default = "ratio")]
        ratio: [f64; 2],
    },
    RandomHorizontalFlip {
        #[serde(default = "half")]
        p: f64,
    },
    RandomVerticalFlip {
        #[serde(default = "half")]
        p: f64,
    },
}

fn scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

fn half() -> f64 {
    0.5
}

/// What a batch holds: images by `image_size` or `decode`, else raw records.
pub(crate) fn output(
    image_size: Option<Size>,
    decode: Option<Value>,
    channels_last: bool,
    exact: bool,
) -> Result<Output, Fault> {
    let spec = match (image_size, decode) {
        (Some(_), Some(_)) => return Err(Fault::usage("decode: image_size is given as well; give only one")),
        (None, None) if channels_last || exact => {
            return Err(Fault::usage(
                "channels_last, exact: raw records are delivered; give image_size or decode",
            ));
        }
        (None, None) => return Ok(Output::Raw),
        (None, Some(Value::String(none))) if none == "none" => return Ok(Output::Ragged { channels_last }),
        (Some(size), None) => {
            let [height, width] = size.pair();
            ImageSpec::cover(height, width)
        }
        (None, Some(steps)) => specified(steps)?,
    };
    Ok(Output::Decoded(ImageSpec { channels_last, exact, ..spec }))
}

/// The specification of a list of transforms: what frames the row, then flips and operations on
/// pixels.
fn specified(list: Value) -> Result<ImageSpec, Fault> {
    let given = format!("decode: got {list}");
    let order = || Fault::usage(format!("{given}, {ORDER}"));
    let steps: Vec<Value> = match list {
        Value::Array(steps) => steps,
        _ => return Err(order()),
    };
    let mut spec = ImageSpec::default();
    let (mut framing, mut pixels, mut flips) = (Vec::new(), Vec::new(), [None; 2]);
    for step in steps {
        if !is_geometry(&step) {
            pixels.push(step);
            continue;
        }
        let transform: Transform =
            serde_json::from_value(step).map_err(|error| Fault::usage(format!("decode: {error}")))?;
        let (nth, p) = match transform {
            Transform::RandomHorizontalFlip { p } => (0, p),
            Transform::RandomVerticalFlip { p } => (1, p),
            _ if pixels.is_empty() && flips == [None; 2] => {
                framing.push(transform);
                continue;
            }
            _ => return Err(order()),
        };
        // The daemon flips first, which is the same unless an operation knows places.
        let earlier = parsed(pixels.clone())?;
        let is_free = !earlier.iter().any(|step| step.knows_places());
        match flips.get_mut(nth) {
            Some(flip) if flip.is_none() && is_free => *flip = Some(p),
            _ => return Err(order()),
        }
    }
    let [flip, flip_down] = flips.map(Option::unwrap_or_default);
    ([spec.height, spec.width], spec.framing) = framed(&framing).ok_or_else(order)?;
    Ok(ImageSpec { flip, flip_down, pixels: parsed(pixels)?, ..spec })
}

/// Whether a step is one of [`Transform`], well-formed or not.
fn is_geometry(step: &Value) -> bool {
    const NAMES: [&str; 6] = [
        "Resize",
        "CenterCrop",
        "RandomCrop",
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "RandomVerticalFlip",
    ];
    NAMES.iter().any(|name| step.get(name).is_some())
}

fn parsed(pixels: Vec<Value>) -> Result<PixelSteps, Fault> {
    pixel_steps(Value::Array(pixels)).map_err(|text| Fault::usage(format!("decode: {text}")))
}

/// Size and framing; `None` for transforms that give no rows of one size.
fn framed(steps: &[Transform]) -> Option<([u32; 2], Framing)> {
    let (short, last) = match *steps {
        [Transform::Resize { size: Size::Side(short) }, last] => (short, last),
        [last] => (0, last),
        _ => return None,
    };
    match last {
        Transform::Resize { size: Size::Pair(size) } if short == 0 => Some((size, Framing::Stretch)),
        Transform::CenterCrop { size } => Some((size.pair(), Framing::Center { short })),
        Transform::RandomCrop { size, padding } => Some((size.pair(), Framing::Random { short, padding })),
        Transform::RandomResizedCrop { size, scale, ratio } if short == 0 => {
            Some((size.pair(), Framing::RandomResized { scale, ratio }))
        }
        _ => None,
    }
}

const ORDER: &str = "expected Resize to [height, width], CenterCrop, RandomCrop or RandomResizedCrop; Resize to a side may \
                     come before CenterCrop or RandomCrop. RandomHorizontalFlip and RandomVerticalFlip follow, each \
                     once, then operations on pixels; flips may stand behind those that know no places, all but \
                     RandomErasing, RandAugment and TrivialAugmentWide";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec_of(list: Value) -> ImageSpec {
        match output(None, Some(list), false, false) {
            Ok(Output::Decoded(spec)) => spec,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pixels_and_flips_follow_what_frames_the_row() {
        let crop = json!({"RandomResizedCrop": {"size": 8}});
        let flips = [json!({"RandomHorizontalFlip": {"p": 0.25}}), json!({"RandomVerticalFlip": {}})];
        let jitter = json!({"ColorJitter": {"brightness": 0.5}});
        let erasing = json!({"RandomErasing": {}});
        let spec = spec_of(json!([crop, flips[0], jitter, flips[1], erasing]));
        assert_eq!((spec.height, spec.flip, spec.flip_down), (8, 0.25, 0.5));
        assert_eq!(spec.pixels.iter().count(), 2);
        for (list, expected) in [
            (json!([crop, erasing, flips[0]]), "flips may stand behind"),
            (json!([crop, flips[0], flips[0]]), "each once"),
            (json!([jitter, crop]), "expected Resize"),
            (json!([crop, {"ColourJitter": {}}]), "unknown variant `ColourJitter`"),
            (json!([crop, {"RandomVerticalFlip": {"q": 1}}]), "unknown field `q`"),
            (json!([crop, 7]), "decode: invalid type"),
            (json!(7), "expected Resize"),
        ] {
            let fault = output(None, Some(list.clone()), false, false).unwrap_err();
            let text = format!("{fault:?}");
            assert!(text.contains(expected), "{list}: {text}");
        }
    }
}
