//! Choices by name.

/// A text that names none of a choice's values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {got:?} is unknown: use {expected}")]
pub struct UnknownName {
    /// The choice, such as "sampler".
    pub what: &'static str,
    /// What was asked for.
    pub got: String,
    /// The names that there are.
    pub expected: String,
}

impl UnknownName {
    /// The error of a choice of `names`, which are at least two.
    pub(crate) fn new(what: &'static str, got: &str, names: &[&str]) -> Self {
        let expected = match names {
            [names @ .., last] => format!("{} or {last}", names.join(", ")),
            [] => String::new(),
        };
        Self { what, got: got.to_owned(), expected }
    }
}

/// Declares a choice: `Value = "name": "its line in --help"`.
macro_rules! names {
    ($(#[$meta:meta])* $name:ident, $what:literal,
     $($(#[$variant_meta:meta])* $variant:ident = $text:literal: $about:literal),+ $(,)?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[doc = $about] #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Each name, with its line in `--help`.
            pub const CHOICES: &'static [(&'static str, &'static str)] = &[$(($text, $about)),+];

            /// The name in documents, options and reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Its line in `--help`.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::UnknownName::new($what, text, &[$($text),+])),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use names;
