//! The extra fields that a batch has: captions, embeddings, boxes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use shade_formats::limits::{FIELDS_BYTES_MAX, FIELDS_MAX};
use shade_formats::ring::FieldWidth;
use shade_formats::shard::field_name_is_valid;

use crate::SpecError;
use crate::npy;
use crate::numbers::NumberType;

/// How the names of fields end that are files of NumPy.
const NUMPY: &str = ".npy";

/// The word for a first dimension that differs from sample to sample.
const ANY: &str = "*";

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
    },
}

impl FieldKind {
    /// Bytes that it has in each sample.
    #[must_use]
    pub fn width(&self) -> FieldWidth {
        match self {
            Self::Bytes | Self::Text | Self::Json | Self::Rows { .. } => FieldWidth::Varying,
            Self::Fixed { number, shape } => FieldWidth::Fixed(shape_bytes(*number, shape)),
        }
    }

    /// Bytes of a row of numbers, if each sample has as many rows as it likes.
    #[must_use]
    pub fn row_bytes(&self) -> Option<usize> {
        match self {
            Self::Rows { number, shape } => Some(shape_bytes(*number, shape) as usize),
            Self::Bytes | Self::Text | Self::Json | Self::Fixed { .. } => None,
        }
    }

    /// What a batch has of the field `name` with these bytes: all of them, or the numbers of a file
    /// of NumPy (`NAME.npy`).
    ///
    /// # Errors
    /// They are not of this kind; the text says what they are.
    pub fn content<'a>(&self, name: &str, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (number, own, has_rows) = match self {
            Self::Bytes => return Ok(bytes),
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
            Self::Rows { number, shape } => (*number, shape, true),
        };
        if name.ends_with(NUMPY) {
            let array = npy::read(bytes)?;
            let rows_of = if has_rows { array.shape.get(1..) } else { Some(array.shape.as_slice()) };
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
            _ => {}
        }
        let wrong = || {
            format!(
                "got {text:?}, expected bytes, text, json, or numbers as float32[512] and float32[*, 4], where * is as \
                 many as the sample has"
            )
        };
        let (number, shape) = match text.split_once('[') {
            Some((number, shape)) => (number, shape.strip_suffix(']').ok_or_else(wrong)?),
            None => (text, ""),
        };
        let number: NumberType = number.trim().parse().map_err(|_| wrong())?;
        let mut sides: Vec<&str> = shape.split(',').map(str::trim).filter(|side| !side.is_empty()).collect();
        let has_rows = sides.first() == Some(&ANY);
        if has_rows {
            sides.remove(0);
        }
        let shape: Vec<u32> =
            sides.iter().map(|side| side.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        let bytes = u64::from(shape_bytes(number, &shape));
        if !(1..=FIELDS_BYTES_MAX).contains(&bytes) {
            return Err(format!("got {text:?} of {bytes} bytes, expected 1 to {FIELDS_BYTES_MAX} bytes"));
        }
        Ok(if has_rows { Self::Rows { number, shape } } else { Self::Fixed { number, shape } })
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
        let (number, any, shape) = match self {
            Self::Bytes => return f.write_str("bytes"),
            Self::Text => return f.write_str("text"),
            Self::Json => return f.write_str("json"),
            Self::Fixed { number, shape } => (number, None, shape),
            Self::Rows { number, shape } => (number, Some(ANY.to_owned()), shape),
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

    /// The width of each, in order.
    #[must_use]
    pub fn widths(&self) -> Vec<FieldWidth> {
        self.0.values().map(FieldKind::width).collect()
    }

    /// Whether some field has another number of bytes from sample to sample.
    #[must_use]
    pub fn vary(&self) -> bool {
        self.0.values().any(|kind| kind.width() == FieldWidth::Varying)
    }

    /// Refuses what no batch can have.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let wrong = |text: String| Err(SpecError::told("fields", format!("fields: {text}")));
        if self.0.len() > FIELDS_MAX {
            return wrong(format!("got {} of them, expected at most {FIELDS_MAX}", self.0.len()));
        }
        match self.0.keys().find(|name| !field_name_is_valid(name)) {
            Some(name) => wrong(format!(
                "got the name {name:?}, expected 1 to 64 of A-Z a-z 0-9 _ . -, without a dot at either end, and not \
                 \"cls\", which is the label"
            )),
            None => Ok(()),
        }
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
        ] {
            let kind: FieldKind = given.parse().unwrap();
            assert_eq!((kind.to_string().as_str(), kind.width()), (canonical, width), "{given}");
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
        assert!(fields.find("mask").is_none() && fields.vary());
        fields.check().unwrap();
        for (bad, part) in [(r#"{"a/b": "text"}"#, "a/b"), (r#"{"cls": "text"}"#, "the label")] {
            let fields: Fields = serde_json::from_str(bad).unwrap();
            assert!(fields.check().unwrap_err().to_string().contains(part), "{bad}");
        }
        let error = serde_json::from_str::<Fields>(r#"{"a": "tensor"}"#).unwrap_err().to_string();
        assert!(error.contains("float32[*, 4]"), "{error}");
    }
}
