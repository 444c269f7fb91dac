//! The transforms of `decode`, in the names and arguments of `shade_load.transforms`.

use serde::Deserialize;
use serde_json::Value;
use shade_client::{Framing, ImageSpec, Output};

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
    let (size, framing, flip) = match (image_size, decode) {
        (Some(_), Some(_)) => return Err(Fault::usage("decode: image_size is given as well; give only one")),
        (None, None) if channels_last || exact => {
            return Err(Fault::usage(
                "channels_last, exact: raw records are delivered; give image_size or decode",
            ));
        }
        (None, None) => return Ok(Output::Raw),
        (None, Some(Value::String(none))) if none == "none" => return Ok(Output::Ragged { channels_last }),
        (Some(size), None) => (size.pair(), Framing::Cover, 0.0),
        (None, Some(steps)) => framed(steps)?,
    };
    let [height, width] = size;
    Ok(Output::Decoded(ImageSpec { height, width, framing, flip, channels_last, exact }))
}

/// Size, framing and chance of mirroring of a list of transforms.
fn framed(steps: Value) -> Result<([u32; 2], Framing, f64), Fault> {
    let given = format!("decode: got {steps}");
    let steps: Vec<Transform> =
        serde_json::from_value(steps).map_err(|error| Fault::usage(format!("decode: {error}")))?;
    let (steps, flip) = match steps.as_slice() {
        [first @ .., Transform::RandomHorizontalFlip { p }] => (first, *p),
        all => (all, 0.0),
    };
    let (short, last) = match *steps {
        [Transform::Resize { size: Size::Side(short) }, last] => (short, last),
        [last] => (0, last),
        _ => return Err(Fault::usage(format!("{given}, {ORDER}"))),
    };
    match last {
        Transform::Resize { size: Size::Pair(size) } if short == 0 => Ok((size, Framing::Stretch, flip)),
        Transform::CenterCrop { size } => Ok((size.pair(), Framing::Center { short }, flip)),
        Transform::RandomCrop { size, padding } => {
            Ok((size.pair(), Framing::Random { short, padding }, flip))
        }
        Transform::RandomResizedCrop { size, scale, ratio } if short == 0 => {
            Ok((size.pair(), Framing::RandomResized { scale, ratio }, flip))
        }
        _ => Err(Fault::usage(format!("{given}, {ORDER}"))),
    }
}

const ORDER: &str = "expected Resize to [height, width], CenterCrop, RandomCrop or RandomResizedCrop; Resize to a side may \
                     come before CenterCrop or RandomCrop, and RandomHorizontalFlip last";
