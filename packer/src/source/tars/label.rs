//! What a sample's label is read from: its `.cls`, its `.json` or its `.txt`.

use serde::Deserialize;
use serde_json::Value;
use shade_formats::limits::NAME_BYTES_MAX;

use crate::source::labels::checked;

/// Largest `.json` that is parsed for its label.
pub(super) const JSON_BYTES_MAX: u64 = 64 << 20;

/// The member that holds the label. All samples of a dataset have theirs from the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelSource {
    /// The label, a number or a text.
    Cls,
    /// An object with the label at `label`, `cls` or `class`, whichever comes first here.
    Json,
    /// The label, if it is one line.
    Txt,
}

/// What such a member says; `None` if it does not speak of a label.
pub(super) type Told = Result<Option<String>, String>;

impl LabelSource {
    /// All, the one that counts most first.
    pub(super) const ALL: [Self; 3] = [Self::Cls, Self::Json, Self::Txt];

    /// The member's extension.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Json => "json",
            Self::Txt => "txt",
        }
    }

    /// What to read of the member at most; one byte more says that it is too large.
    pub(super) fn bytes_max(self) -> u64 {
        match self {
            Self::Json => JSON_BYTES_MAX,
            Self::Cls | Self::Txt => NAME_BYTES_MAX as u64,
        }
    }

    /// Reads the label from the member's content.
    pub(super) fn read(self, content: &[u8]) -> Told {
        let is_large = content.len() as u64 > self.bytes_max();
        match self {
            Self::Cls if is_large => Err(format!("its cls has more than {NAME_BYTES_MAX} bytes")),
            Self::Cls => {
                let text = str::from_utf8(content).map_err(|_| "its cls is not text".to_owned())?;
                checked(text).map(|text| Some(text.to_owned()))
            }
            Self::Json if is_large => Err(format!("its json has more than {JSON_BYTES_MAX} bytes")),
            Self::Json => from_json(content),
            // A longer text is a caption, or something else that is no label.
            Self::Txt if is_large => Ok(None),
            Self::Txt => {
                Ok(str::from_utf8(content).ok().and_then(|text| checked(text).ok()).map(str::to_owned))
            }
        }
    }

    /// What is wrong with a member that does not speak of a label.
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
        return Err("its json is not an object".to_owned());
    }
    let keys: Keys = serde_json::from_slice(content).map_err(|fault| format!("its json: {fault}"))?;
    let Some(label) = keys.label.or(keys.cls).or(keys.class) else { return Ok(None) };
    match &label {
        Value::String(text) => checked(text).map(|text| Some(text.to_owned())),
        Value::Number(number) if !number.is_f64() => Ok(Some(number.to_string())),
        other => Err(format!("its label {other} is neither a whole number nor a text")),
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
