//! What a batch holds: as a document says it, and as the daemon makes it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shade_formats::ViewShape;
use shade_formats::limits::VIEWS_MAX;

use crate::transforms::{InTurn, Pair, Transform};
use crate::{Floats, ImageSpec, SpecError};

/// The word for images of their own sizes.
const WHOLE: &str = "none";

/// What becomes of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Decode {
    /// Its bytes, as packed: `null`.
    #[default]
    Raw,
    /// An image in its own size: `"none"`.
    Whole,
    /// An image for each list of transforms: a list of lists. One view may also be a list of
    /// transforms, or one transform.
    Views(Vec<InTurn>),
}

impl Decode {
    /// One view: the middle of each image, resized so that it just covers `height` x `width`
    /// pixels.
    #[must_use]
    pub fn cover(height: u32, width: u32) -> Self {
        vec![Transform::Cover { size: Pair([height, width]) }].into()
    }

    /// With rows of this height and width.
    ///
    /// # Errors
    /// A view's size goes with other numbers.
    pub(crate) fn of_size(&self, size: [u32; 2]) -> Result<Self, SpecError> {
        let Self::Views(views) = self else { return Ok(self.clone()) };
        let of_step = |step: &Transform| step.of_size(size).ok_or_else(|| step.name());
        let of_view = |view: &InTurn| view.0.iter().map(of_step).collect::<Result<_, _>>().map(InTurn);
        views.iter().map(of_view).collect::<Result<_, _>>().map(Self::Views).map_err(|name| {
            wrong(format!(
                "decode: got {name} with Plan(bucket=...), which gives images other sizes: expected image_size, \
                 RandomResizedCrop, Resize((height, width)), or no crop"
            ))
        })
    }

    /// With the size of all images, which is asked for, in views that have no crop; or with that of
    /// a bucket.
    pub(crate) fn sized(
        mut self,
        bucket: Option<[u32; 2]>,
        image_size: impl FnOnce() -> Result<[u32; 2], String>,
    ) -> Result<Self, SpecError> {
        let Self::Views(views) = &mut self else { return Ok(self) };
        let whole: Vec<_> =
            views.iter_mut().filter(|view| view.0.iter().all(Transform::keeps_size)).collect();
        if !whole.is_empty() {
            let text = |text| wrong(format!("decode: it has no Resize and no crop, and {text}"));
            let step = match bucket {
                Some(size) => Transform::Cover { size: Pair(size) },
                None => Transform::Whole { size: Pair(image_size().map_err(text)?) },
            };
            whole.into_iter().for_each(|view| view.0.insert(0, step.clone()));
        }
        Ok(self)
    }
}

impl From<Vec<Transform>> for Decode {
    /// One view.
    fn from(transforms: Vec<Transform>) -> Self {
        Self::Views(vec![InTurn(transforms)])
    }
}

impl TryFrom<Value> for Decode {
    type Error = SpecError;

    fn try_from(value: Value) -> Result<Self, SpecError> {
        let in_turn =
            |value: Value| InTurn::try_from(value).map_err(|error| wrong(format!("decode: {error}")));
        match value {
            Value::Null => Ok(Self::Raw),
            Value::String(word) if word == WHOLE => Ok(Self::Whole),
            Value::Array(views) if views.iter().any(Value::is_array) => {
                if let Some(view) = views.iter().find(|view| !view.is_array()) {
                    let text = format!(
                        "decode: got {view} beside a list of transforms: give one list, or a list of lists for several views"
                    );
                    return Err(wrong(text));
                }
                views.into_iter().map(in_turn).collect::<Result<_, _>>().map(Self::Views)
            }
            Value::Array(_) | Value::Object(_) => Ok(Self::Views(vec![in_turn(value)?])),
            other => {
                let expected = format!("transforms, a list of views, \"{WHOLE}\" or null");
                Err(wrong(format!("decode: got {other}, expected {expected}")))
            }
        }
    }
}

impl From<Decode> for Value {
    fn from(decode: Decode) -> Self {
        match decode {
            Decode::Raw => Self::Null,
            Decode::Whole => WHOLE.into(),
            Decode::Views(views) => serde_json::to_value(views).unwrap_or(Self::Null),
        }
    }
}

fn wrong(text: String) -> SpecError {
    SpecError::told("decode", text)
}

/// What a batch holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Output {
    /// The record's bytes, as packed.
    #[default]
    Raw,
    /// Images of one size in each view, of which there is at least one. All have the same order of
    /// bytes.
    Decoded(Vec<ImageSpec>),
    /// Images, each in its own size.
    Ragged {
        /// Colours of a pixel side by side (height x width x 3) instead of a plane for each colour.
        channels_last: bool,
    },
}

impl From<ImageSpec> for Output {
    /// Decoded, one view.
    fn from(view: ImageSpec) -> Self {
        Self::Decoded(vec![view])
    }
}

impl Output {
    /// What `decode` makes.
    ///
    /// # Errors
    /// There are too many views, or one of them makes no rows.
    pub(crate) fn new(
        decode: &Decode,
        channels_last: bool,
        exact: bool,
        floats: Option<Floats>,
    ) -> Result<Self, SpecError> {
        let views = match (decode, floats) {
            (Decode::Raw, None) => return Ok(Self::Raw),
            (Decode::Whole, None) => return Ok(Self::Ragged { channels_last }),
            (Decode::Views(views), _) => views,
            (Decode::Raw, Some(Floats { dtype, .. })) => {
                let what = "raw records are delivered; give image_size or decode as well";
                return Err(SpecError::told("dtype", format!("dtype: got {:?}, but {what}", dtype.as_str())));
            }
            (Decode::Whole, Some(Floats { dtype, .. })) => {
                let what = format!(
                    "images of their own sizes are bytes: make floats of each of a batch's, in Python with \
                     Loader(transform=...), or give transforms with a crop instead of \"{WHOLE}\""
                );
                return Err(SpecError::told("dtype", format!("dtype: got {:?}, but {what}", dtype.as_str())));
            }
        };
        let view = |(number, view): (usize, &InTurn)| {
            let spec = ImageSpec::new(&view.0).map_err(|error| match views.len() {
                1 => wrong(format!("decode: {error}")),
                _ => wrong(format!("view {number}: decode: {error}")),
            })?;
            if spec.grey && floats.is_some_and(|floats| !floats.are_of_grey()) {
                let text =
                    "normalize: an image of grey has one channel: give one number for mean, and one for std";
                return Err(SpecError::told("normalize", text.to_owned()));
            }
            Ok(ImageSpec { channels_last, exact, floats, ..spec }.views())
        };
        let made: Vec<Vec<ImageSpec>> = views.iter().enumerate().map(view).collect::<Result<_, _>>()?;
        let made = made.concat();
        if !(1..=VIEWS_MAX).contains(&made.len()) {
            let text = format!("decode: got {} views, expected 1 to {VIEWS_MAX}", made.len());
            return Err(wrong(text));
        }
        Ok(Self::Decoded(made))
    }

    /// The views of each image; none of records, and of images of their own sizes.
    #[must_use]
    pub fn views(&self) -> &[ImageSpec] {
        match self {
            Self::Decoded(views) => views,
            Self::Raw | Self::Ragged { .. } => &[],
        }
    }

    /// The views' shapes.
    #[must_use]
    pub fn shapes(&self) -> Vec<ViewShape> {
        self.views().iter().map(ImageSpec::shape).collect()
    }

    /// Bytes of one row of views, below 2^36; 0 without views.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.views().iter().map(ImageSpec::bytes).sum()
    }

    /// Whether colours lie side by side.
    #[must_use]
    pub fn channels_last(&self) -> bool {
        match self {
            Self::Raw => false,
            Self::Decoded(views) => views.iter().any(|view| view.channels_last),
            Self::Ragged { channels_last } => *channels_last,
        }
    }
}
