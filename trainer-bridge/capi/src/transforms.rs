//! The transforms of `decode`, in the names and arguments of `shade_load.transforms`.

use serde::Deserialize;
use serde_json::Value;
use shade_client::{Framing, ImageSpec, Output, PixelSteps, Views, pixel_steps};

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
    Grayscale {
        #[serde(default = "one")]
        num_output_channels: u8,
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

fn one() -> u8 {
    1
}

/// What a batch holds: images by `image_size` or `decode`, else raw records.
pub(crate) fn output(
    image_size: Option<Size>,
    decode: Option<Value>,
    channels_last: bool,
    exact: bool,
) -> Result<Output, Fault> {
    let finished = |spec: ImageSpec| ImageSpec { channels_last, exact, ..spec };
    match (image_size, decode) {
        (Some(_), Some(_)) => Err(Fault::usage("decode: image_size is given as well; give only one")),
        (None, None) if channels_last || exact => {
            Err(Fault::usage("channels_last, exact: raw records are delivered; give image_size or decode"))
        }
        (None, None) => Ok(Output::Raw),
        (None, Some(Value::String(none))) if none == "none" => Ok(Output::Ragged { channels_last }),
        (Some(size), None) => {
            let [height, width] = size.pair();
            Ok(finished(ImageSpec::cover(height, width)).into())
        }
        (None, Some(Value::Array(views))) if views.iter().any(Value::is_array) => {
            let specs: Vec<_> =
                views.into_iter().map(|steps| specified(steps).map(finished)).collect::<Result<_, _>>()?;
            let views = Views::new(&specs).map_err(|error| Fault::usage(format!("decode: {error}")))?;
            Ok(Output::Decoded(views))
        }
        (None, Some(steps)) => Ok(finished(specified(steps)?).into()),
    }
}

/// The specification of the list of a view's transforms: what frames the row, then flips and
/// operations on pixels.
fn specified(list: Value) -> Result<ImageSpec, Fault> {
    let given = format!("decode: got {list}");
    let order = || Fault::usage(format!("{given}, {ORDER}"));
    let steps: Vec<Value> = match list {
        Value::Array(steps) => steps,
        _ => return Err(order()),
    };
    let mut spec = ImageSpec::default();
    // Grey of one channel comes behind all operations on pixels.
    let mut grey = false;
    let (mut framing, mut pixels, mut flips) = (Vec::new(), Vec::new(), [None; 2]);
    for step in steps {
        if !is_ours(&step) {
            if grey {
                return Err(order());
            }
            pixels.push(step);
            continue;
        }
        let transform: Transform =
            serde_json::from_value(step).map_err(|error| Fault::usage(format!("decode: {error}")))?;
        let (nth, p) = match transform {
            Transform::RandomHorizontalFlip { p } => (0, p),
            Transform::RandomVerticalFlip { p } => (1, p),
            Transform::Grayscale { num_output_channels: 1 } if !grey => {
                grey = true;
                continue;
            }
            Transform::Grayscale { .. } => return Err(order()),
            _ if pixels.is_empty() && !grey && flips == [None; 2] => {
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
    Ok(ImageSpec { flip, flip_down, grey, pixels: parsed(pixels)?, ..spec })
}

/// Whether a step is one of [`Transform`], well-formed or not. Grey in three channels is an
/// operation on pixels.
fn is_ours(step: &Value) -> bool {
    const NAMES: [&str; 6] = [
        "Resize",
        "CenterCrop",
        "RandomCrop",
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "RandomVerticalFlip",
    ];
    let grey = step.get("Grayscale").map(|options| options.get("num_output_channels"));
    NAMES.iter().any(|name| step.get(name).is_some())
        || grey.is_some_and(|channels| channels != Some(&3.into()))
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
                     once, then operations on pixels, Grayscale to one channel last; flips may stand behind those \
                     that know no places, all but RandomErasing, RandAugment and TrivialAugmentWide. \
                     A list of such lists makes several views";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec_of(list: Value) -> ImageSpec {
        match output(None, Some(list), false, false) {
            Ok(Output::Decoded(views)) => *views.first(),
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
        let grey = json!({"Grayscale": {}});
        let spec = spec_of(json!([crop, jitter, {"Grayscale": {"num_output_channels": 3}}, grey, flips[0]]));
        assert_eq!((spec.grey, spec.flip, spec.pixels.iter().count()), (true, 0.25, 2));
        let invert = json!({"RandomInvert": {"p": 1}});
        let choice = json!({"RandomChoice": {"transforms": [invert, [jitter, invert]], "p": [3, 1]}});
        let order = json!({"RandomOrder": {"transforms": [invert, jitter]}});
        let spec = spec_of(json!([crop, choice, order, flips[0]]));
        assert_eq!((spec.flip, spec.pixels.iter().count()), (0.25, 9));
        let of = |part: &Value| json!({"RandomChoice": {"transforms": [part]}});
        for (list, expected) in [
            (json!([crop, grey, jitter]), "Grayscale to one channel last"),
            (json!([crop, grey, grey]), "Grayscale to one channel last"),
            (json!([crop, {"Grayscale": {"num_output_channels": 2}}]), "Grayscale to one channel last"),
            (json!([crop, erasing, flips[0]]), "flips may stand behind"),
            (json!([crop, of(&erasing), flips[0]]), "flips may stand behind"),
            (json!([crop, of(&flips[0])]), "unknown variant `RandomHorizontalFlip`"),
            (json!([crop, of(&json!([invert, crop]))]), "unknown variant `RandomResizedCrop`"),
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
