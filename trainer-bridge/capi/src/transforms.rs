//! The transforms of `decode`, in the names and arguments of `shade_load.transforms`.

use serde::Deserialize;
use serde_json::Value;
use shade_client::{Framing, ImageSpec, Output, Views};

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
    Grayscale {},
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
                views.into_iter().map(|steps| framed(steps).map(finished)).collect::<Result<_, _>>()?;
            let views = Views::new(&specs).map_err(|error| Fault::usage(format!("decode: {error}")))?;
            Ok(Output::Decoded(views))
        }
        (None, Some(steps)) => Ok(finished(framed(steps)?).into()),
    }
}

/// The view that a list of transforms makes.
fn framed(steps: Value) -> Result<ImageSpec, Fault> {
    let given = format!("decode: got {steps}");
    let steps: Vec<Transform> =
        serde_json::from_value(steps).map_err(|error| Fault::usage(format!("decode: {error}")))?;
    // Mirroring and grey may come in either order.
    let (steps, flip, grey) = match steps.as_slice() {
        [first @ .., Transform::RandomHorizontalFlip { p }, Transform::Grayscale {}]
        | [first @ .., Transform::Grayscale {}, Transform::RandomHorizontalFlip { p }] => (first, *p, true),
        [first @ .., Transform::RandomHorizontalFlip { p }] => (first, *p, false),
        [first @ .., Transform::Grayscale {}] => (first, 0.0, true),
        all => (all, 0.0, false),
    };
    let (short, last) = match *steps {
        [Transform::Resize { size: Size::Side(short) }, last] => (short, last),
        [last] => (0, last),
        _ => return Err(Fault::usage(format!("{given}, {ORDER}"))),
    };
    let ([height, width], framing) = match last {
        Transform::Resize { size: Size::Pair(size) } if short == 0 => (size, Framing::Stretch),
        Transform::CenterCrop { size } => (size.pair(), Framing::Center { short }),
        Transform::RandomCrop { size, padding } => (size.pair(), Framing::Random { short, padding }),
        Transform::RandomResizedCrop { size, scale, ratio } if short == 0 => {
            (size.pair(), Framing::RandomResized { scale, ratio })
        }
        _ => return Err(Fault::usage(format!("{given}, {ORDER}"))),
    };
    Ok(ImageSpec { framing, flip, grey, ..ImageSpec::cover(height, width) })
}

const ORDER: &str = "expected Resize to [height, width], CenterCrop, RandomCrop or RandomResizedCrop; Resize to a side may \
                     come before CenterCrop or RandomCrop, and RandomHorizontalFlip and Grayscale last; \
                     a list of such lists makes several views";
