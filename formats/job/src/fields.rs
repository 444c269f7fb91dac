//! The extra fields that a batch has: captions, embeddings, boxes, masks.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use shade_formats::ViewShape;
use shade_formats::limits::{FIELDS_BYTES_MAX, FIELDS_MAX};
use shade_formats::ring::FieldWidth;
use shade_formats::shard::field_name_is_valid;

use crate::SpecError;
use crate::boxes::BoxFormat;
use crate::npy;
use crate::numbers::NumberType;
use crate::output::Output;

/// How the names of fields end that are files of NumPy.
const NUMPY: &str = ".npy";

/// The word for a first dimension that differs from sample to sample.
const ANY: &str = "*";

/// The words of kinds that follow the image.
const MASK: &str = "mask";
const BOXES: &str = "boxes";
const KEYPOINTS: &str = "keypoints";

/// What a field is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FieldKind {
    /// Its bytes, as packed: `bytes`.
    #[default]
    Bytes,
    /// Text in UTF-8: `text`.
    Text,
    /// JSON: `json`.
    Json,
    /// Numbers of one shape in all samples: `float32[512]`.
    Fixed {
        /// Their type.
        number: NumberType,
        /// Their shape; none for a single number.
        shape: Vec<u32>,
    },
    /// Rows of numbers, as many as the sample has: `float32[*, 4]`.
    Rows {
        /// Their type.
        number: NumberType,
        /// The shape of a row; none for a single number.
        shape: Vec<u32>,
        /// The field of boxes of which each has a row here, and with which it is left out:
        /// `int64[NAME]`.
        beside: Option<String>,
    },
    /// A level for each pixel of the image, as a PNG with one channel of at most 8 bits: `mask`. It
    /// is cropped, resized and mirrored with its image.
    Mask {
        /// The level of what lies outside the image: `mask[255]`.
        fill: u8,
    },
    /// Boxes in pixels of the image, float32, of this format: `boxes[xyxy]`. They move with their
    /// image, and those are left out that nothing is left of.
    Boxes(BoxFormat),
    /// Points in pixels of the image, float32, x first: `keypoints`, or `keypoints[*, 17]` for rows
    /// of 17. They move with their image, also to places outside.
    Keypoints {
        /// The shape of a row, of which 2 is the last number.
        shape: Vec<u32>,
        /// The boxes of which each has a row here, and with which it is left out:
        /// `keypoints[NAME, 17]`.
        beside: Option<String>,
    },
}

impl FieldKind {
    /// Whether it follows the image: a batch has it once for each view.
    #[must_use]
    pub fn follows(&self) -> bool {
        matches!(self, Self::Mask { .. } | Self::Boxes(_) | Self::Keypoints { .. }) || self.beside().is_some()
    }

    /// The field of boxes of which each has a row here.
    #[must_use]
    pub fn beside(&self) -> Option<&str> {
        match self {
            Self::Rows { beside, .. } | Self::Keypoints { beside, .. } => beside.as_deref(),
            _ => None,
        }
    }

    /// Bytes that it has in each sample, in a view of this shape if it follows the image.
    fn width(&self, view: Option<&ViewShape>) -> FieldWidth {
        match self {
            Self::Bytes
            | Self::Text
            | Self::Json
            | Self::Rows { .. }
            | Self::Boxes(_)
            | Self::Keypoints { .. } => FieldWidth::Varying,
            Self::Fixed { number, shape } => FieldWidth::Fixed(shape_bytes(*number, shape)),
            Self::Mask { .. } => {
                FieldWidth::Fixed(view.map_or(0, |view| view.height.saturating_mul(view.width)))
            }
        }
    }

    /// Columns that a batch with this number of views has of it.
    fn columns(&self, views: usize) -> usize {
        if self.follows() { views } else { 1 }
    }

    /// Type and shape of a row of numbers, if each sample has as many rows as it likes.
    #[must_use]
    pub fn row(&self) -> Option<(NumberType, &[u32])> {
        match self {
            Self::Rows { number, shape, .. } => Some((*number, shape)),
            Self::Boxes(_) => Some((NumberType::Float32, &[4])),
            Self::Keypoints { shape, .. } => Some((NumberType::Float32, shape)),
            Self::Bytes | Self::Text | Self::Json | Self::Fixed { .. } | Self::Mask { .. } => None,
        }
    }

    /// Bytes of such a row.
    #[must_use]
    pub fn row_bytes(&self) -> Option<usize> {
        self.row().map(|(number, shape)| shape_bytes(number, shape) as usize)
    }

    /// What a sample has of the field `name` with these bytes: all of them, or the numbers of a
    /// file of NumPy (`NAME.npy`).
    ///
    /// # Errors
    /// They are not of this kind; the text says what they are.
    pub fn content<'a>(&self, name: &str, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (number, own, has_rows): (_, &[u32], _) = match self {
            // Whether it is a mask its decoder says.
            Self::Bytes | Self::Mask { .. } => return Ok(bytes),
            Self::Text => {
                return std::str::from_utf8(bytes)
                    .map(|_| bytes)
                    .map_err(|error| format!("no UTF-8: {error}"));
            }
            Self::Json => {
                return serde_json::from_slice::<IgnoredAny>(bytes)
                    .map(|_| bytes)
                    .map_err(|error| format!("no JSON: {error}"));
            }
            Self::Fixed { number, shape } => (*number, shape, false),
            Self::Rows { number, shape, .. } => (*number, shape, true),
            Self::Boxes(_) => (NumberType::Float32, &[4], true),
            Self::Keypoints { shape, .. } => (NumberType::Float32, shape, true),
        };
        if name.ends_with(NUMPY) {
            let array = npy::read(bytes)?;
            let rows_of = array.shape.get(usize::from(has_rows)..);
            return if array.number == number && rows_of == Some(own) {
                Ok(array.numbers)
            } else {
                Err(Self::Fixed { number: array.number, shape: array.shape }.to_string())
            };
        }
        let (len, row) = (bytes.len() as u64, u64::from(shape_bytes(number, own)));
        let is_whole = if has_rows { len.is_multiple_of(row) } else { len == row };
        if is_whole { Ok(bytes) } else { Err(format!("{len} bytes")) }
    }
}

/// Bytes of numbers of this shape; all shapes of a kind were checked, and fit.
fn shape_bytes(number: NumberType, shape: &[u32]) -> u32 {
    shape.iter().fold(number.bytes(), |bytes, &side| bytes.saturating_mul(side))
}

impl FromStr for FieldKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "bytes" => return Ok(Self::Bytes),
            "text" => return Ok(Self::Text),
            "json" => return Ok(Self::Json),
            MASK => return Ok(Self::Mask { fill: 0 }),
            _ => {}
        }
        let wrong = || {
            format!(
                "got {text:?}, expected bytes, text, json, numbers as float32[512] and float32[*, 4], where * is as \
                 many as the sample has, or mask, boxes[xyxy], keypoints, and int64[NAME] for numbers of the boxes NAME"
            )
        };
        let (number, shape) = match text.split_once('[') {
            Some((number, shape)) => (number, shape.strip_suffix(']').ok_or_else(wrong)?),
            None => (text, ""),
        };
        match number.trim() {
            MASK => return shape.trim().parse().map(|fill| Self::Mask { fill }).map_err(|_| wrong()),
            BOXES => return shape.trim().parse().map(Self::Boxes).map_err(|error| format!("boxes: {error}")),
            _ => {}
        }
        let are_points = number.trim() == KEYPOINTS;
        let number = if are_points { "float32" } else { number.trim() };
        let number: NumberType = number.parse().map_err(|_| wrong())?;
        let mut sides: Vec<&str> = shape.split(',').map(str::trim).filter(|side| !side.is_empty()).collect();
        if are_points && sides.is_empty() {
            sides.push(ANY);
        }
        let is_name =
            |side: &&&str| side.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let beside = sides.first().filter(is_name).map(|&name| name.to_owned());
        let has_rows = beside.is_some() || sides.first() == Some(&ANY);
        if has_rows {
            sides.remove(0);
        }
        let mut shape: Vec<u32> =
            sides.iter().map(|side| side.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        if are_points {
            shape.push(2);
        }
        let bytes = u64::from(shape_bytes(number, &shape));
        if !(1..=FIELDS_BYTES_MAX).contains(&bytes) {
            return Err(format!("got {text:?} of {bytes} bytes, expected 1 to {FIELDS_BYTES_MAX} bytes"));
        }
        match (has_rows, are_points) {
            (true, true) => Ok(Self::Keypoints { shape, beside }),
            (true, false) => Ok(Self::Rows { number, shape, beside }),
            (false, false) => Ok(Self::Fixed { number, shape }),
            (false, true) => Err(wrong()),
        }
    }
}

impl TryFrom<String> for FieldKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FieldKind> for String {
    fn from(kind: FieldKind) -> Self {
        kind.to_string()
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = Some(self.beside().unwrap_or(ANY).to_owned());
        let (number, any, shape): (_, _, &[u32]) = match self {
            Self::Bytes => return f.write_str("bytes"),
            Self::Text => return f.write_str("text"),
            Self::Json => return f.write_str("json"),
            Self::Mask { fill: 0 } => return f.write_str(MASK),
            Self::Mask { fill } => return write!(f, "{MASK}[{fill}]"),
            Self::Boxes(format) => return write!(f, "{BOXES}[{format}]"),
            Self::Fixed { number, shape } => (number.as_str(), None, shape),
            Self::Rows { number, shape, .. } => (number.as_str(), first, shape),
            Self::Keypoints { shape, .. } => {
                (KEYPOINTS, first, shape.split_last().map_or(&[][..], |(_, sides)| sides))
            }
        };
        let sides: Vec<String> = any.into_iter().chain(shape.iter().map(u32::to_string)).collect();
        write!(f, "{number}[{}]", sides.join(","))
    }
}

/// The fields that a batch has, by name. Their order is that of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fields(BTreeMap<String, FieldKind>);

impl Fields {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and kinds, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &FieldKind)> {
        self.0.iter().map(|(name, kind)| (name.as_str(), kind))
    }

    /// Position and kind of the field of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(usize, &FieldKind)> {
        self.iter().enumerate().find(|(_, (of, _))| *of == name).map(|(at, (_, kind))| (at, kind))
    }

    /// The width of each column of a batch with these views: fields are in order, and one that
    /// follows the image has a column for each view.
    #[must_use]
    pub fn widths(&self, views: &[ViewShape]) -> Vec<FieldWidth> {
        let of_kind = |kind: &FieldKind| -> Vec<FieldWidth> {
            if kind.follows() {
                views.iter().map(|view| kind.width(Some(view))).collect()
            } else {
                vec![kind.width(None)]
            }
        };
        self.0.values().flat_map(of_kind).collect()
    }

    /// The column of a field, by its position, in a batch with this number of views. `view` is 0
    /// for one that does not follow the image.
    #[must_use]
    pub fn column(&self, field: usize, view: usize, views: usize) -> Option<usize> {
        let kind = self.0.values().nth(field)?;
        let before: usize = self.0.values().take(field).map(|kind| kind.columns(views)).sum();
        (view < kind.columns(views)).then_some(before + view)
    }

    /// Whether the field `name` has another number of bytes from sample to sample.
    #[must_use]
    pub fn varies(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(_, kind)| kind.width(None) == FieldWidth::Varying)
    }

    /// How many times a batch with this number of views has those bytes of a sample at most that
    /// vary: 0 where none do.
    #[must_use]
    pub fn copies(&self, views: usize) -> u64 {
        let varying = self.0.values().filter(|kind| kind.width(None) == FieldWidth::Varying);
        varying.map(|kind| kind.columns(views) as u64).max().unwrap_or(0)
    }

    /// Refuses what no batch of this output can have.
    pub(crate) fn check(&self, output: &Output) -> Result<(), SpecError> {
        let wrong = |text: String| Err(SpecError::told("fields", format!("fields: {text}")));
        if self.0.len() > FIELDS_MAX {
            return wrong(format!("got {} of them, expected at most {FIELDS_MAX}", self.0.len()));
        }
        match self.0.keys().find(|name| !field_name_is_valid(name)) {
            Some(name) => wrong(format!(
                "got the name {name:?}, expected 1 to 64 of A-Z a-z 0-9 _ . -, without a dot at either end, and not \
                 \"cls\", which is the label"
            )),
            None => self.0.iter().try_for_each(|(name, kind)| self.check_following(name, kind, output)),
        }
    }

    /// Refuses a field that could not follow the image.
    fn check_following(&self, name: &str, kind: &FieldKind, output: &Output) -> Result<(), SpecError> {
        if !kind.follows() {
            return Ok(());
        }
        let wrong = |text: String| Err(SpecError::told("fields", format!("fields: {name:?}: {text}")));
        if let Some(boxes) = kind.beside()
            && !matches!(self.0.get(boxes), Some(FieldKind::Boxes(_)))
        {
            return wrong(format!("got {kind}, but no field {boxes:?} of boxes, such as boxes[xyxy]"));
        }
        if output.views().is_empty() {
            return wrong(format!(
                "got {kind}, which follows images of one size: give image_size or decode, or name it bytes"
            ));
        }
        for view in output.views() {
            if let Some(step) = view.before.iter().chain(&view.pixels).find(|step| step.moves_pixels()) {
                return wrong(format!(
                    "got {kind}, which follows crops, resizes and flips, but not {}: leave one of the two out",
                    step.name()
                ));
            }
        }
        Ok(())
    }
}

impl<const N: usize> From<[(&str, FieldKind); N]> for Fields {
    fn from(fields: [(&str, FieldKind); N]) -> Self {
        Self(fields.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_text_each() {
        for (given, canonical, width) in [
            ("bytes", "bytes", FieldWidth::Varying),
            ("text", "text", FieldWidth::Varying),
            ("json", "json", FieldWidth::Varying),
            ("float32[512]", "float32[512]", FieldWidth::Fixed(2048)),
            ("int64", "int64[]", FieldWidth::Fixed(8)),
            ("uint8[]", "uint8[]", FieldWidth::Fixed(1)),
            ("float16[ 3, 4 ]", "float16[3,4]", FieldWidth::Fixed(24)),
            ("float32[*, 4]", "float32[*,4]", FieldWidth::Varying),
            ("int32[*]", "int32[*]", FieldWidth::Varying),
            ("int64[ boxes.npy, 2 ]", "int64[boxes.npy,2]", FieldWidth::Varying),
            ("mask", "mask", FieldWidth::Fixed(0)),
            ("mask[255]", "mask[255]", FieldWidth::Fixed(0)),
            ("boxes[xywh]", "boxes[xywh]", FieldWidth::Varying),
            ("keypoints", "keypoints[*]", FieldWidth::Varying),
            ("keypoints[*, 17]", "keypoints[*,17]", FieldWidth::Varying),
            ("keypoints[a, 3]", "keypoints[a,3]", FieldWidth::Varying),
        ] {
            let kind: FieldKind = given.parse().unwrap();
            assert_eq!((kind.to_string().as_str(), kind.width(None)), (canonical, width), "{given}");
            assert_eq!(canonical.parse(), Ok(kind));
        }
        for wrong in [
            "",
            "float31",
            "float32[",
            "float32[0]",
            "float32[4,*]",
            "float32[-1]",
            "uint8[99999999999]",
            "uint8[65536,65536]",
            "complex64[2]",
            "mask[256]",
            "mask[",
            "int64[boxes",
            "keypoints[17]",
        ] {
            assert!(wrong.parse::<FieldKind>().unwrap_err().contains("expected"), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_of_their_kind_or_not() {
        let check = |kind: &str, bytes: &[u8]| -> Result<usize, String> {
            kind.parse::<FieldKind>().unwrap().content("field", bytes).map(<[u8]>::len)
        };
        for (kind, bytes) in [
            ("bytes", &b"\xff"[..]),
            ("text", "é".as_bytes()),
            ("json", b"{\"a\": [1]}"),
            ("int16[2]", &[0; 4]),
            ("int16[*,2]", &[0; 8]),
            ("int16[*,2]", &[]),
        ] {
            assert_eq!(check(kind, bytes), Ok(bytes.len()));
        }
        assert!(check("text", b"\xff").unwrap_err().contains("UTF-8"));
        assert!(check("json", b"{").unwrap_err().contains("JSON"));
        assert_eq!(check("int16[2]", &[0; 5]), Err("5 bytes".to_owned()));
        assert_eq!(check("int16[*,2]", &[0; 6]), Err("6 bytes".to_owned()));
        // An array of NumPy has a header, whose shape counts.
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }";
        let file = [
            b"\x93NUMPY\x01\0",
            &u16::try_from(header.len()).unwrap().to_le_bytes()[..],
            header.as_bytes(),
            &[5; 12],
        ]
        .concat();
        let content =
            |kind: &str| kind.parse::<FieldKind>().unwrap().content("a.npy", &file).map(<[u8]>::to_vec);
        for kind in ["int16[3,2]", "int16[*,2]"] {
            assert_eq!(content(kind), Ok(vec![5; 12]), "{kind}");
        }
        for kind in ["int16[2,3]", "int16[*]", "int16[6]", "float16[3,2]"] {
            assert_eq!(content(kind), Err("int16[3,2]".to_owned()), "{kind}");
        }
    }

    #[test]
    fn a_document_has_them_by_name() {
        let fields: Fields = serde_json::from_str(r#"{"caption": "text", "box": "float32[*, 4]"}"#).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), r#"{"box":"float32[*,4]","caption":"text"}"#);
        assert_eq!(fields.find("caption"), Some((1, &FieldKind::Text)));
        assert!(fields.find("mask").is_none() && fields.copies(2) == 1);
        fields.check(&Output::Raw).unwrap();
        for (bad, part) in [(r#"{"a/b": "text"}"#, "a/b"), (r#"{"cls": "text"}"#, "the label")] {
            let fields: Fields = serde_json::from_str(bad).unwrap();
            assert!(fields.check(&Output::Raw).unwrap_err().to_string().contains(part), "{bad}");
        }
        let error = serde_json::from_str::<Fields>(r#"{"a": "tensor"}"#).unwrap_err().to_string();
        assert!(error.contains("float32[*, 4]"), "{error}");
    }

    #[test]
    fn what_follows_the_image_has_a_column_for_each_view() {
        let text = r#"{"a": "int64[c]", "b": "mask", "c": "boxes[xyxy]", "d": "int16[3]"}"#;
        let fields: Fields = serde_json::from_str(text).unwrap();
        let view = |height, width| ViewShape { height, width, ..ViewShape::default() };
        let views = [view(2, 3), view(4, 5)];
        let (any, of) = (FieldWidth::Varying, FieldWidth::Fixed);
        assert_eq!(fields.widths(&views), [any, any, of(6), of(20), any, any, of(6)]);
        let columns = |field| (0..3).map_while(|view| fields.column(field, view, 2)).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3, 4].map(columns), [vec![0, 1], vec![2, 3], vec![4, 5], vec![6], vec![]]);
        assert_eq!((fields.copies(2), fields.varies("c"), fields.varies("b")), (2, true, false));
    }

    #[test]
    fn what_cannot_follow_the_image_is_refused_by_name() {
        let check = |fields: &str, decode: &str| {
            let decode: crate::Decode = serde_json::from_str(decode).unwrap();
            let output = Output::new(&decode, false, false, None).unwrap();
            let checked = serde_json::from_str::<Fields>(fields).unwrap().check(&output);
            checked.map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        let crop = r#"{"CenterCrop": {"size": 8}}"#;
        let mask = r#"{"a": "mask"}"#;
        for pixels in [r#"{"ColorJitter": {"hue": 0.1}}"#, r#"{"RandomErasing": {}}"#] {
            assert_eq!(check(mask, &format!("[{crop}, {pixels}]")), "");
        }
        for (fields, decode, part) in [
            (mask, "null".to_owned(), "which follows images of one size: give image_size or decode"),
            (mask, r#""none""#.to_owned(), "\"a\": got mask, which follows images of one size"),
            (mask, format!(r#"[{crop}, {{"RandAugment": {{}}}}]"#), "flips, but not RandAugment"),
            (
                r#"{"b": "boxes[xyxy]"}"#,
                format!(r#"[{{"RandomApply": {{"transforms": {{"ElasticTransform": {{}}}}}}}}, {crop}]"#),
                "\"b\": got boxes[xyxy], which follows crops, resizes and flips, but not RandomApply",
            ),
            (r#"{"a": "int64[b]", "b": "float32[*,4]"}"#, crop.to_owned(), "no field \"b\" of boxes"),
        ] {
            let error = check(fields, &decode);
            assert!(error.contains(part), "{fields} {decode}: {error}");
        }
    }
}
