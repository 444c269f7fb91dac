//! Reads a sample's label from its `.cls`, its `.json` or its `.txt`.

use serde::Deserialize;
use serde_json::Value;
use shade_formats::limits::NAME_BYTES_MAX;

use crate::source::labels::{LabelFault, checked, whole};

/// Largest `.json` that is parsed for its label.
pub(super) const JSON_BYTES_MAX: u64 = 64 << 20;

/// The member that holds the label. All samples of a dataset have theirs from the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelSource {
    /// The label, a number or a text.
    Cls,
    /// An object with the label at `label`, else at `cls`, else at `class`.
    Json,
    /// The label, if it is one line.
    Txt,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TarLabelFault {
    #[error(transparent)]
    Label(#[from] LabelFault),
    #[error("its {0} has more than {1} bytes")]
    Bytes(&'static str, u64),
    #[error("its cls is not text")]
    NotText,
    #[error(
        "it has a cls, but the first sample has a txt and no label. --labels none packs all without labels; \
         otherwise leave out the samples that have none (--exclude)"
    )]
    AmongCaptions,
    #[error("its json is not an object")]
    NoObject,
    #[error("its json: {0}")]
    Json(String),
    #[error("its label {0} is neither a whole number nor a text")]
    NoLabel(Value),
}

/// What such a member says; `None` if it has no label.
pub(super) type Told = Result<Option<String>, TarLabelFault>;

impl LabelSource {
    /// All, the preferred one first.
    pub(super) const ALL: [Self; 3] = [Self::Cls, Self::Json, Self::Txt];

    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Json => "json",
            Self::Txt => "txt",
        }
    }

    /// Most bytes of the member; one byte more says that it is too large.
    pub(super) fn bytes_max(self) -> u64 {
        match self {
            Self::Json => JSON_BYTES_MAX,
            Self::Cls | Self::Txt => NAME_BYTES_MAX as u64,
        }
    }

    pub(super) fn read(self, content: &[u8]) -> Told {
        let is_large = content.len() as u64 > self.bytes_max();
        match self {
            // A longer text is a caption, or something else that is no label.
            Self::Txt if is_large => Ok(None),
            Self::Txt => {
                Ok(str::from_utf8(content).ok().and_then(|text| checked(text).ok()).map(str::to_owned))
            }
            Self::Cls | Self::Json if is_large => {
                Err(TarLabelFault::Bytes(self.extension(), self.bytes_max()))
            }
            Self::Cls => {
                let text = str::from_utf8(content).map_err(|_| TarLabelFault::NotText)?;
                Ok(Some(checked(text)?.to_owned()))
            }
            Self::Json => from_json(content),
        }
    }

    /// What is wrong with a member that has no label.
    pub(super) fn silence(self) -> &'static str {
        match self {
            Self::Cls => "its cls has no label",
            Self::Json => "its json has no \"label\", \"cls\" or \"class\"",
            Self::Txt => "its txt is not one line, so it is no label",
        }
    }
}

#[derive(Deserialize)]
struct Keys {
    label: Option<Value>,
    cls: Option<Value>,
    class: Option<Value>,
}

fn from_json(content: &[u8]) -> Told {
    // Serde would take a list for the fields in order.
    if content.trim_ascii_start().first() != Some(&b'{') {
        return Err(TarLabelFault::NoObject);
    }
    let keys: Keys =
        serde_json::from_slice(content).map_err(|fault| TarLabelFault::Json(fault.to_string()))?;
    let Some(label) = keys.label.or(keys.cls).or(keys.class) else { return Ok(None) };
    match label {
        Value::String(text) => Ok(Some(checked(&text)?.to_owned())),
        // A fraction is no label of a class; 2.0 is the number 2.
        Value::Number(number) if !number.is_f64() || whole(&number.to_string()).is_some() => {
            Ok(Some(number.to_string()))
        }
        other => Err(TarLabelFault::NoLabel(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::LabelSource::{Cls, Json, Txt};

    #[test]
    fn each_member_gives_its_label() {
        for (source, content, label) in [
            (Cls, "7\n", "7"),
            (Cls, " cat ", "cat"),
            (Json, r#"{"class": 1, "cls": 2, "label": 3, "more": [4]}"#, "3"),
            (Json, r#" {"class": 1, "cls": "two"}"#, "two"),
            (Json, r#"{"label": null, "class": -1}"#, "-1"),
            (Txt, "a cat\r\n", "a cat"),
        ] {
            assert_eq!(source.read(content.as_bytes()), Ok(Some(label.to_owned())), "{content}");
        }
    }

    #[test]
    fn what_is_no_label_is_told_from_what_is_broken() {
        for (source, content) in [(Json, "{}"), (Txt, "two\nlines"), (Txt, ""), (Txt, &"x".repeat(5000))] {
            assert_eq!(source.read(content.as_bytes()), Ok(None), "{content}");
        }
        for (source, content) in [
            (Cls, &b""[..]),
            (Cls, b"\x80\x04K\x05."),
            (Cls, b"1\n2"),
            (Cls, &[b'x'; 5000]),
            (Json, b""),
            (Json, b"[3]"),
            (Json, b"{\"label\": 1"),
            (Json, b"{\"label\": 1, \"label\": 2}"),
            (Json, b"{\"label\": 1.5}"),
            (Json, b"{\"label\": true}"),
        ] {
            assert!(source.read(content).is_err(), "{}", String::from_utf8_lossy(content));
        }
        assert_eq!(Txt.read(b"\xff"), Ok(None));
    }
}
