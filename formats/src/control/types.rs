//! What a job asks for, in the words that every front end uses.

use std::fmt;

use super::ImageSpec;
use crate::limits::{BATCH_SAMPLES_MAX, PAYLOAD_ALIGN_BYTES, PAYLOAD_BYTES_MAX, RANKS_MAX};

/// Version of the conversation as a whole. Both sides must speak the same one.
pub const PROTOCOL: u32 = 4;

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

/// A specification that no daemon can serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {got}, but must be {expected}")]
pub struct SpecError {
    /// The field, such as "batch_size".
    pub field: &'static str,
    /// Its value.
    pub got: String,
    /// What it may be.
    pub expected: String,
}

/// Declares a choice: its enum and its names in options.
macro_rules! names {
    ($(#[$meta:meta])* $name:ident, $what:literal, $expected:literal,
     $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

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

/// Declares a choice that is sent, too: with its codes on the wire.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident, $what:literal, $expected:literal,
     $($(#[$variant_meta:meta])* $variant:ident = $code:literal $text:literal),+) => {
        names! { $(#[$meta])* $name, $what, $expected, $($(#[$variant_meta])* $variant = $text),+ }

        impl $name {
            pub(super) fn code(self) -> u8 {
                match self { $(Self::$variant => $code),+ }
            }

            pub(super) fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

choice! {
    /// How an epoch's samples are drawn.
    Sampler, "sampler", "uniform, pads, iis, cis or sequential",
    /// A permutation: each sample once.
    #[default]
    Uniform = 1 "uniform",
    /// By importance, with repetition (SHADE's PADS).
    Pads = 2 "pads",
    /// Without samples of low importance, which are left out before they are read (iCACHE's importance sampling).
    Iis = 3 "iis",
    /// As many samples as `iis` are trained on, the others only forwarded: all are delivered, those with weight 0
    /// (computing-bound importance sampling).
    Cis = 4 "cis",
    /// Each sample once, in the order of the samples: for validation. Orders and pacing do not apply.
    Sequential = 5 "sequential"
}

impl Sampler {
    /// Whether it draws by the losses that trainers report.
    #[must_use]
    pub fn is_by_importance(self) -> bool {
        matches!(self, Self::Pads | Self::Iis | Self::Cis)
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
    /// Drawn from what is in memory while the rest streams in (DeepIO); for comparison, as it is less random.
    Opportunistic = 4 "opportunistic"
}

choice! {
    /// What becomes of an epoch's last samples when they do not fill a batch on every rank.
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Output {
    /// The record's bytes, as packed.
    #[default]
    Raw,
    /// Images of one size.
    Decoded(ImageSpec),
    /// Images, each in its own size.
    Ragged {
        /// Colours of a pixel side by side (height x width x 3) instead of a plane for each colour.
        channels_last: bool,
    },
}

/// How the plan of each epoch is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanSpec {
    /// How samples are drawn.
    pub sampler: Sampler,
    /// In which order they are delivered.
    pub order: Order,
    /// Seed of every random choice.
    pub seed: u64,
    /// Factor on the draws of resident samples, at least 1; 1 is off.
    pub rep: f64,
    /// Largest share of an epoch that replicated draws of residents may take, 0 to 1.
    pub hit_cap: f64,
    /// A sample not delivered for this many epochs is put into the plan; 0 is off.
    pub cover: u32,
    /// Share of draws made uniformly instead of by importance, 0 to 1.
    pub explore: f64,
    /// Even out the expected misses of batches and ranks by moving samples a few batches.
    pub pace: bool,
    /// Draw each plan an epoch early, from importance as it was then, so that the cache sees a whole epoch ahead at all
    /// times.
    pub draw_ahead: bool,
}

impl Default for PlanSpec {
    fn default() -> Self {
        Self {
            sampler: Sampler::default(),
            order: Order::default(),
            seed: 0,
            rep: 1.0,
            hit_cap: 0.6,
            cover: 5,
            explore: 0.0,
            pace: false,
            draw_ahead: false,
        }
    }
}

impl PlanSpec {
    /// Refuses numbers that make no plan.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        if !(self.rep.is_finite() && self.rep >= 1.0) {
            return Err(refused("rep", self.rep, "a finite number of at least 1"));
        }
        for (field, share) in [("hit_cap", self.hit_cap), ("explore", self.explore)] {
            in_share(field, share)?;
        }
        Ok(())
    }
}

/// What one job asks of the daemon. Every rank of a job must send an equal one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobSpec {
    /// How epochs are drawn.
    pub plan: PlanSpec,
    /// Rows in each rank's batch.
    pub batch_size: u32,
    /// Ranks of the job.
    pub world_size: u32,
    /// What becomes of an incomplete last batch.
    pub tail: Tail,
    /// What a batch holds.
    pub output: Output,
    /// What happens to a bad record.
    pub on_error: OnError,
    /// Largest share of an epoch's samples that may be skipped or substituted, 0 to 1; more end the epoch.
    pub bad_max: f64,
    /// Length of each rank's payload segment in bytes; 0 leaves it to the daemon.
    pub ring_bytes: u64,
}

impl JobSpec {
    /// Refuses what no daemon can serve.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.plan.validate()?;
        in_share("bad_max", self.bad_max)?;
        in_range("batch_size", self.batch_size, BATCH_SAMPLES_MAX)?;
        in_range("world_size", self.world_size, RANKS_MAX)?;
        if let Output::Decoded(images) = self.output {
            images.validate()?;
            let ImageSpec { height, width, .. } = images;
            // Below 2^45: 2^15 rows of 3 x 2^28 bytes.
            let batch_bytes = u64::from(self.batch_size) * images.bytes();
            if batch_bytes >= PAYLOAD_BYTES_MAX {
                let got =
                    format_args!("{} of {height} x {width} pixels, {batch_bytes} bytes", self.batch_size);
                let expected = format_args!("less than {PAYLOAD_BYTES_MAX} bytes a batch");
                return Err(refused("batch_size", got, expected));
            }
        }
        if self.ring_bytes > PAYLOAD_BYTES_MAX || !self.ring_bytes.is_multiple_of(PAYLOAD_ALIGN_BYTES) {
            let expected = format_args!("0 or a multiple of {PAYLOAD_ALIGN_BYTES} up to {PAYLOAD_BYTES_MAX}");
            return Err(refused("ring_bytes", self.ring_bytes, expected));
        }
        Ok(())
    }
}

fn in_range(field: &'static str, value: u32, most: u32) -> Result<(), SpecError> {
    if value == 0 || value > most {
        return Err(refused(field, value, format_args!("1 to {most}")));
    }
    Ok(())
}

fn in_share(field: &'static str, share: f64) -> Result<(), SpecError> {
    // Written so that NaN fails.
    if !(0.0..=1.0).contains(&share) {
        return Err(refused(field, share, "0 to 1"));
    }
    Ok(())
}

fn refused(field: &'static str, got: impl fmt::Display, expected: impl fmt::Display) -> SpecError {
    SpecError { field, got: got.to_string(), expected: expected.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JobSpec {
        JobSpec {
            plan: PlanSpec::default(),
            batch_size: 256,
            world_size: 8,
            tail: Tail::Drop,
            output: Output::Decoded(ImageSpec::cover(224, 224)),
            on_error: OnError::Raise,
            bad_max: 0.01,
            ring_bytes: 0,
        }
    }

    #[test]
    fn names_are_read_back_and_strange_ones_are_refused_with_the_choice() {
        assert!(Sampler::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(Order::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(Tail::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(OnError::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        let error = "Pads".parse::<Sampler>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "sampler \"Pads\" is unknown: use uniform, pads, iis, cis or sequential"
        );
    }

    #[test]
    fn every_bad_field_is_named() {
        spec().validate().unwrap();
        let plan = spec().plan;
        let bad = [
            ("rep", JobSpec { plan: PlanSpec { rep: 0.9, ..plan }, ..spec() }),
            ("rep", JobSpec { plan: PlanSpec { rep: f64::NAN, ..plan }, ..spec() }),
            ("rep", JobSpec { plan: PlanSpec { rep: f64::INFINITY, ..plan }, ..spec() }),
            ("hit_cap", JobSpec { plan: PlanSpec { hit_cap: 1.1, ..plan }, ..spec() }),
            ("hit_cap", JobSpec { plan: PlanSpec { hit_cap: f64::NAN, ..plan }, ..spec() }),
            ("explore", JobSpec { plan: PlanSpec { explore: -0.1, ..plan }, ..spec() }),
            ("bad_max", JobSpec { bad_max: -0.01, ..spec() }),
            ("bad_max", JobSpec { bad_max: 1.5, ..spec() }),
            ("bad_max", JobSpec { bad_max: f64::NAN, ..spec() }),
            ("batch_size", JobSpec { batch_size: 0, ..spec() }),
            ("batch_size", JobSpec { batch_size: 32_769, ..spec() }),
            ("world_size", JobSpec { world_size: 0, ..spec() }),
            ("world_size", JobSpec { world_size: RANKS_MAX + 1, ..spec() }),
            ("height", JobSpec { output: Output::Decoded(ImageSpec::cover(0, 1)), ..spec() }),
            ("width", JobSpec { output: Output::Decoded(ImageSpec::cover(1, 20_000)), ..spec() }),
            (
                "batch_size",
                JobSpec {
                    batch_size: 32_768,
                    output: Output::Decoded(ImageSpec::cover(16_384, 16_384)),
                    ..spec()
                },
            ),
            ("ring_bytes", JobSpec { ring_bytes: 100, ..spec() }),
            ("ring_bytes", JobSpec { ring_bytes: PAYLOAD_BYTES_MAX + 4096, ..spec() }),
        ];
        for (field, spec) in bad {
            assert_eq!(spec.validate().unwrap_err().field, field, "{spec:?}");
        }
    }
}
