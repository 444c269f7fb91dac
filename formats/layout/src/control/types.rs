//! The choices of a job, by the names that every front end uses.

use super::codec::{Coded, Reader, Writer};
use super::image_spec::ImageSpec;
use super::views::Views;
use crate::FormatError;

/// A text that names none of a choice's values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {got:?} is unknown: use {expected}")]
pub struct UnknownName {
    /// The choice, such as "sampler".
    pub what: &'static str,
    /// What was asked for.
    pub got: String,
    /// The names that there are.
    pub expected: &'static str,
}

/// Declares a choice: its enum and its names in options.
macro_rules! names {
    ($(#[$meta:meta])* $name:ident, $what:literal, $expected:literal,
     $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// The name in options and reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl std::str::FromStr for $name {
            type Err = $crate::control::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(Self::Err { what: $what, got: text.to_owned(), expected: $expected }),
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

pub(super) use names;

/// Declares a choice that is also sent, with its codes on the wire.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident, $what:literal, $expected:literal,
     $($(#[$variant_meta:meta])* $variant:ident = $code:literal $text:literal),+) => {
        names! { $(#[$meta])* $name, $what, $expected, $($(#[$variant_meta])* $variant = $text),+ }

        impl Coded for $name {
            type Code = u8;

            fn code(&self) -> u8 {
                match self { $(Self::$variant => $code),+ }
            }

            fn write_fields(&self, _writer: &mut Writer) {}

            fn read_fields(code: u8, _reader: &mut Reader<'_>) -> Result<Option<Self>, FormatError> {
                Ok(match code { $($code => Some(Self::$variant),)+ _ => None })
            }
        }
    };
}

choice! {
    /// How an epoch's samples are drawn.
    Sampler, "sampler", "uniform, pads, iis, cis, sequential, replacement, echo, infobatch, weighted or balanced",
    /// A permutation: each sample once.
    #[default]
    Uniform = 1 "uniform",
    /// By importance, with repetition (SHADE's PADS).
    Pads = 2 "pads",
    /// Without samples of low importance, which are left out before they are read (iCACHE's
    /// importance sampling).
    Iis = 3 "iis",
    /// As many samples as `iis` are trained on, the others only forwarded: all are delivered, those
    /// with weight 0 (computing-bound importance sampling).
    Cis = 4 "cis",
    /// Each sample once, in the order of the samples: for validation. Orders and pacing do not
    /// apply.
    Sequential = 5 "sequential",
    /// Uniform draws with replacement: as many repeats as `pads`, without importance.
    Replacement = 6 "replacement",
    /// Each sample that is read comes several times in an epoch (data echoing).
    Echo = 7 "echo",
    /// A share of the samples of low loss is left out, and the rest of them weighted (InfoBatch).
    Infobatch = 8 "infobatch",
    /// By a table with a weight for each sample, which the user gives.
    Weighted = 9 "weighted",
    /// By 1 / number of samples of the class: all classes are equally frequent.
    Balanced = 10 "balanced"
}

impl Sampler {
    /// Whether it draws by the losses that trainers report.
    #[must_use]
    pub fn is_by_importance(self) -> bool {
        matches!(self, Self::Pads | Self::Iis | Self::Cis | Self::Infobatch)
    }
}

choice! {
    /// In which order a plan is delivered.
    Order, "order", "shuffled, hits_first, spaced or opportunistic",
    /// A seeded global shuffle.
    #[default]
    Shuffled = 1 "shuffled",
    /// Residents first, as published; for reproduction, as it starves the GPU at the epoch's end.
    HitsFirst = 2 "hits_first",
    /// Repeats of a sample 20 to 60 batches apart, so that a small cache serves them.
    Spaced = 3 "spaced",
    /// Drawn from what is in memory while the rest streams in (DeepIO); for comparison, as it is
    /// less random.
    Opportunistic = 4 "opportunistic"
}

impl Order {
    /// Whether it goes by what is cached when the plan is drawn.
    #[must_use]
    pub fn asks_for_residents(self) -> bool {
        matches!(self, Self::HitsFirst | Self::Opportunistic)
    }
}

choice! {
    /// What happens to an epoch's last samples when they do not fill a batch on every rank.
    Tail, "tail", "drop, pad or even",
    /// They are left out.
    #[default]
    Drop = 1 "drop",
    /// The batch is filled up with rows flagged as padding.
    Pad = 2 "pad",
    /// The last batch is shorter, equally on every rank.
    Even = 3 "even"
}

choice! {
    /// What happens when a record cannot be read or decoded.
    OnError, "on_error", "raise, skip or substitute",
    /// The epoch ends with an error that names it.
    #[default]
    Raise = 1 "raise",
    /// The batch goes without it.
    Skip = 2 "skip",
    /// Another sample stands in, flagged.
    Substitute = 3 "substitute"
}

/// What a batch holds.
#[expect(
    clippy::large_enum_variant,
    reason = "a job has one, and its orders share another: there is no collection of them"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Output {
    /// The record's bytes, as packed.
    #[default]
    Raw,
    /// Images of one size in each view.
    Decoded(Views),
    /// Images, each in its own size.
    Ragged {
        /// Colours of a pixel side by side (height x width x 3) instead of a plane for each colour.
        channels_last: bool,
    },
}

/// Codes of [`Output`].
const OUTPUT_RAW: u8 = 1;
const OUTPUT_DECODED: u8 = 2;
const OUTPUT_RAGGED: u8 = 3;

impl From<ImageSpec> for Output {
    /// Decoded, one view.
    fn from(view: ImageSpec) -> Self {
        Self::Decoded(view.into())
    }
}

impl Output {
    /// The views of each image; none of records, and of images of their own sizes.
    #[must_use]
    pub fn views(&self) -> &[ImageSpec] {
        match self {
            Self::Decoded(views) => views.specs(),
            Self::Raw | Self::Ragged { .. } => &[],
        }
    }
}

impl Coded for Output {
    type Code = u8;

    fn code(&self) -> u8 {
        match self {
            Self::Raw => OUTPUT_RAW,
            Self::Decoded(_) => OUTPUT_DECODED,
            Self::Ragged { .. } => OUTPUT_RAGGED,
        }
    }

    fn write_fields(&self, writer: &mut Writer) {
        match self {
            Self::Raw => {}
            Self::Decoded(views) => writer.put(views),
            Self::Ragged { channels_last } => writer.put(channels_last),
        }
    }

    fn read_fields(code: u8, reader: &mut Reader<'_>) -> Result<Option<Self>, FormatError> {
        Ok(Some(match code {
            OUTPUT_RAW => Self::Raw,
            OUTPUT_DECODED => Self::Decoded(reader.get("views")?),
            OUTPUT_RAGGED => Self::Ragged { channels_last: reader.get("channels_last")? },
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_strange_ones_are_refused_with_the_choice() {
        assert!(Sampler::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(Order::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(Tail::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(OnError::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        let error = "Pads".parse::<Sampler>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "sampler \"Pads\" is unknown: use uniform, pads, iis, cis, sequential, replacement, echo, \
             infobatch, weighted or balanced"
        );
    }
}
