//! Which extra fields of samples a daemon reads with their records.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use shade_formats::shard::field_name_is_valid;

const ALL: &str = "all";
const NONE: &str = "none";

/// The extra fields that are read with their records. As text: `none`, `all`, or names with commas
/// between them (`caption,mask.png`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldsRead {
    /// Records alone.
    #[default]
    None,
    /// All that a sample has.
    All,
    /// Those with these names: one or more.
    Named(BTreeSet<String>),
}

impl FieldsRead {
    /// Whether the field of this name is read.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }

    /// Whether all is read that `wanted` is, and that is something.
    #[must_use]
    pub fn serves(&self, wanted: &Self) -> bool {
        match wanted {
            Self::None => false,
            Self::All => *self == Self::All,
            Self::Named(names) => names.iter().all(|name| self.has(name)),
        }
    }

    /// These fields, and those with these names.
    #[must_use]
    pub fn with<'a>(self, more: impl Iterator<Item = &'a str>) -> Self {
        let more = more.map(str::to_owned);
        let names: BTreeSet<String> = match self {
            Self::All => return Self::All,
            Self::None => more.collect(),
            Self::Named(names) => names.into_iter().chain(more).collect(),
        };
        if names.is_empty() { Self::None } else { Self::Named(names) }
    }
}

impl FromStr for FieldsRead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            ALL => return Ok(Self::All),
            NONE => return Ok(Self::None),
            _ => {}
        }
        let names: BTreeSet<String> =
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        match names.iter().find(|name| !field_name_is_valid(name)) {
            Some(name) => Err(format!("{name:?} is no field's name: give some as caption,mask.png, or all")),
            None if names.is_empty() => Err("no name: give some as caption,mask.png, or all".to_owned()),
            None => Ok(Self::Named(names)),
        }
    }
}

impl fmt::Display for FieldsRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(NONE),
            Self::All => f.write_str(ALL),
            Self::Named(names) => {
                let text = names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
                // A field may be called so.
                let end = if matches!(text.as_str(), ALL | NONE) { "," } else { "" };
                write!(f, "{text}{end}")
            }
        }
    }
}

impl Serialize for FieldsRead {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FieldsRead {
    /// Reads the text, or true for all fields and false for none.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(true) => Ok(Self::All),
            Value::Bool(false) => Ok(Self::None),
            Value::String(text) => text.parse().map_err(D::Error::custom),
            other => {
                Err(D::Error::custom(format_args!("got {other}, expected all, none or names of fields")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> FieldsRead {
        text.parse().unwrap()
    }

    #[test]
    fn a_text_says_which() {
        assert_eq!(read("all"), FieldsRead::All);
        assert_eq!(read("none"), FieldsRead::None);
        assert_eq!(read(" b, a ,b").to_string(), "a,b");
        assert!(read("none,").has("none") && !read("none").has("none"));
        for text in ["", " , ", "a/b", "cls", "a,.b"] {
            assert!(text.parse::<FieldsRead>().unwrap_err().contains("caption"), "{text}");
        }
        assert_eq!(serde_json::from_str::<FieldsRead>("true").unwrap(), FieldsRead::All);
        assert_eq!(serde_json::from_str::<FieldsRead>("false").unwrap(), FieldsRead::None);
        assert!(serde_json::from_str::<FieldsRead>("1").is_err());
    }

    #[test]
    fn who_reads_more_serves_who_wants_less() {
        for (own, wanted, serves) in [
            ("all", "a,b", true),
            ("a,b", "a", true),
            ("a", "a,b", false),
            ("a,b", "all", false),
            ("none", "a", false),
            ("all", "all", true),
            ("all", "none", false),
        ] {
            assert_eq!(read(own).serves(&read(wanted)), serves, "{own} {wanted}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            names in prop::collection::btree_set("all|none|[a-z][a-z0-9_.-]{0,5}[a-z]", 0..4),
        ) {
            let fields = FieldsRead::None.with(names.iter().map(String::as_str).filter(|name| *name != "cls"));
            prop_assert_eq!(read(&fields.to_string()), fields.clone());
            prop_assert!(names.iter().filter(|name| *name != "cls").all(|name| fields.has(name)));
            prop_assert_eq!(FieldsRead::All.with(names.iter().map(String::as_str)), FieldsRead::All);
        }
    }
}
