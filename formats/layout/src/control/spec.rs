//! What a job asks for. Each parameter is declared here once: its type, default, limits, help and
//! place in a message.
//!
//! Trace lines and the texts of command lines derive from the declarations by field name (serde).
//! The byte table is in `CONTROL.md`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::codec::{Field, Reader, Writer, from_q16, to_q16};
use super::spec_error::SpecError;
use super::types::{OnError, Order, Output, Sampler, Tail};
use crate::FormatError;
use crate::limits::{BATCH_SAMPLES_MAX, PAYLOAD_ALIGN_BYTES, PAYLOAD_BYTES_MAX, RANKS_MAX, STRATA_MAX};

/// A parameter of [`PlanSpec`] as a command line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the field.
    pub name: &'static str,
    /// Name of the option and, unless it is a flag, of its value: "hit-cap SHARE".
    pub usage: &'static str,
    /// Default value, as Rust source.
    pub default: &'static str,
    /// Meaning of the parameter.
    pub help: &'static str,
}

/// Declares [`PlanSpec`]: `/// help`, then `field: type = default, "usage";` for each parameter.
macro_rules! plan_spec {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $default:expr, $usage:literal;)+) => {
        /// How the plan of each epoch is drawn.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        pub struct PlanSpec {
            $($(#[doc = $help])+ pub $name: $type,)+
            /// Digest of the sampler `weighted`'s table, [`WeightTable::digest`]; 0 without one.
            ///
            /// [`WeightTable::digest`]: super::WeightTable::digest
            // No command line has it: it follows from the table.
            pub weights_digest: u64,
            /// Digest of the samples that the job delivers, [`Subset::digest`]; 0 for all of the
            /// dataset.
            ///
            /// [`Subset::digest`]: super::Subset::digest
            // As above.
            pub subset_digest: u64,
            /// Digest of the group's name, [`group_digest`](super::group_digest); 0 without one.
            /// The jobs of a group draw coupled plans: each its own, and as alike as they can be.
            // The command lines take a name.
            pub group: u64,
        }

        impl Default for PlanSpec {
            fn default() -> Self {
                Self { $($name: $default,)+ weights_digest: 0, subset_digest: 0, group: 0 }
            }
        }

        impl PlanSpec {
            /// Every parameter that is set by its text, in the order of declaration.
            pub const PARAMETERS: &'static [Parameter] = &[$(Parameter {
                name: stringify!($name),
                usage: $usage,
                default: stringify!($default),
                help: concat!($($help),+),
            }),+];
        }
    };
}

plan_spec! {
    /// How samples are drawn. `pads` draws by importance from the second epoch on, `uniform` takes
    /// each sample once an epoch, `iis` leaves out samples of low importance, `cis` delivers them
    /// with weight 0, and `sequential` takes each sample once, in the dataset's order.
    /// `replacement` draws uniformly with replacement, `echo` delivers each sample that is read
    /// several times, and `infobatch` leaves out a share of the samples of low loss. `weighted`
    /// draws by a table of weights, and `balanced` draws all classes equally often.
    sampler: Sampler = Sampler::Uniform, "sampler SAMPLER";

    /// Order of delivery. `shuffled` is a seeded shuffle, `spaced` has repeats of a sample 20 to 60
    /// batches apart, `hits_first` has cached samples first (SHADE as published), and
    /// `opportunistic` draws from what is in memory (DeepIO).
    order: Order = Order::Shuffled, "order ORDER";

    /// Seed of every random choice.
    seed: u64 = 0, "seed N";

    /// PADS: factor on the draws of resident samples, at least 1; 1 is off. The plan then depends
    /// on the cache's content.
    rep: f64 = 1.0, "rep FACTOR";

    /// PADS: largest share of an epoch that such replicated draws may take, 0 to 1.
    hit_cap: f64 = 0.6, "hit-cap SHARE";

    /// PADS, replacement, iis, infobatch: a sample that was not delivered for this many epochs is
    /// put into the plan; 0 is off.
    cover: u32 = 5, "cover EPOCHS";

    /// PADS: share of draws that ignore importance, 0 to 1.
    explore: f64 = 0.0, "explore SHARE";

    /// Echo: how often a sample that is read comes in an epoch, at least 1; it need not be whole.
    echo: f64 = 2.0, "echo TIMES";

    /// InfoBatch: share of the samples with a score below the mean that an epoch leaves out, 0 to
    /// 1.
    prune: f64 = 0.5, "prune SHARE";

    /// InfoBatch: from this epoch on nothing is left out; 0 is never. The paper: the last eighth of
    /// all epochs.
    whole_from: u32 = 0, "whole-from EPOCH";

    /// Weighted, balanced: draw with replacement. Without it each sample comes as often as
    /// expected, rounded up or down.
    replacement: bool = true, "replacement BOOL";

    /// Move samples by a few batches, so that batches and ranks have equally many expected misses.
    pace: bool = false, "pace";

    /// Draw each plan an epoch early, from importance as it was then. The cache then sees a whole
    /// epoch ahead at all times.
    draw_ahead: bool = false, "draw-ahead";

    /// Equal parts of the dataset that are drawn each on its own, so that no node needs what
    /// another knows. Every rank has its parts to itself if their number is a multiple of the
    /// ranks'. 1 draws the dataset as a whole, which needs all ranks on one node.
    strata: u32 = 1, "strata N";

    /// Share of the strata that change seats at each epoch, and so perhaps ranks and nodes, which
    /// read them anew: 0 to 1, in steps of 1/65,536. 0 leaves each sample at its rank for ever.
    mix: f64 = 0.0, "mix SHARE";
}

impl PlanSpec {
    /// Sets a parameter from its text, as a command line has it.
    ///
    /// # Errors
    /// There is no such parameter, or it cannot have this value.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), FieldError> {
        let spec: Self = with_field(self, name, value(text))?;
        spec.validate().map_err(|error| FieldError(error.to_string()))?;
        *self = spec;
        Ok(())
    }

    /// Refuses numbers that make no plan.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        if !(self.rep.is_finite() && self.rep >= 1.0) {
            return Err(SpecError::new("rep", self.rep, "a finite number of at least 1"));
        }
        if !(self.echo.is_finite() && self.echo >= 1.0) {
            return Err(SpecError::new("echo", self.echo, "a finite number of at least 1"));
        }
        for (field, share) in
            [("hit_cap", self.hit_cap), ("explore", self.explore), ("prune", self.prune), ("mix", self.mix)]
        {
            SpecError::check_share(field, share)?;
        }
        in_range("strata", self.strata, STRATA_MAX)?;
        if self.group != 0 && self.depends_on_residents() {
            let expected = "rep 1, no pace, and the order shuffled or spaced in a group: coupled plans do not \
                            depend on what is cached";
            return Err(SpecError::new("group", "rep, pace or an order that does", expected));
        }
        Ok(())
    }

    /// Whether a plan depends on what is cached when it is drawn, and so on when reads came back.
    /// No order, pacing or replication applies to `sequential`.
    #[must_use]
    pub fn depends_on_residents(&self) -> bool {
        let asks = self.rep > 1.0 || self.pace || self.order.asks_for_residents();
        asks && self.sampler != Sampler::Sequential
    }
}

/// The digest of a group's name, never 0.
#[must_use]
pub fn group_digest(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes()).max(1)
}

/// What one job asks of the daemon. Every rank of a job must send an equal one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// How epochs are drawn.
    #[serde(flatten)]
    pub plan: PlanSpec,
    /// Rows in each rank's batch.
    pub batch_size: u32,
    /// Ranks of the job, on all nodes together.
    pub world_size: u32,
    /// Ranks of the job that attach to this daemon; 0 means all of them. They say themselves which
    /// ones they are. Every node has its own number.
    pub ranks_here: u32,
    /// What happens to an incomplete last batch.
    pub tail: Tail,
    /// What a batch holds. It has no text form.
    #[serde(skip)]
    pub output: Output,
    /// Whether records that the job reads may stay in the cache, and its uses count there. A job
    /// that validates leaves the cache to those that train.
    pub admit: bool,
    /// What happens to a bad record.
    pub on_error: OnError,
    /// Largest share of an epoch's samples that may be skipped or substituted, 0 to 1; more end the
    /// epoch. Each daemon counts those of its ranks.
    pub bad_max: f64,
    /// Length of each rank's payload segment in bytes; 0 leaves it to the daemon.
    pub ring_bytes: u64,
}

impl Default for JobSpec {
    /// One rank, batches of one raw record.
    fn default() -> Self {
        Self {
            plan: PlanSpec::default(),
            batch_size: 1,
            world_size: 1,
            ranks_here: 0,
            tail: Tail::default(),
            output: Output::default(),
            admit: true,
            on_error: OnError::default(),
            bad_max: 0.01,
            ring_bytes: 0,
        }
    }
}

impl JobSpec {
    /// Checks a value for one field, of the job itself or of its plan.
    ///
    /// # Errors
    /// There is no such field, or it cannot have this value.
    pub fn check_field(name: &str, value: Value) -> Result<(), FieldError> {
        let spec: Self = with_field(&Self::default(), name, value)?;
        spec.validate().map_err(|error| FieldError(error.to_string()))
    }

    /// Refuses what no daemon can serve.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.plan.validate()?;
        SpecError::check_share("bad_max", self.bad_max)?;
        in_range("batch_size", self.batch_size, BATCH_SAMPLES_MAX)?;
        in_range("world_size", self.world_size, RANKS_MAX)?;
        self.check_strata()?;
        if let Output::Decoded(views) = self.output {
            views.validate()?;
            // Below 2^49: 2^15 rows of 16 views of 3 x 2^28 bytes.
            let batch_bytes = u64::from(self.batch_size) * views.bytes();
            if batch_bytes >= PAYLOAD_BYTES_MAX {
                let got =
                    format_args!("{} of {} pixels, {batch_bytes} bytes", self.batch_size, views.sizes());
                let expected = format_args!("less than {PAYLOAD_BYTES_MAX} bytes a batch");
                return Err(SpecError::new("batch_size", got, expected));
            }
        }
        if self.ring_bytes > PAYLOAD_BYTES_MAX || !self.ring_bytes.is_multiple_of(PAYLOAD_ALIGN_BYTES) {
            let expected = format_args!("0 or a multiple of {PAYLOAD_ALIGN_BYTES} up to {PAYLOAD_BYTES_MAX}");
            return Err(SpecError::new("ring_bytes", self.ring_bytes, expected));
        }
        Ok(())
    }

    /// Number of ranks that attach to this daemon.
    #[must_use]
    pub fn local_ranks(&self) -> u32 {
        if self.ranks_here == 0 { self.world_size } else { self.ranks_here }
    }
}

/// Writes and reads these fields of a [`JobSpec`], in this order.
macro_rules! fields_of_job {
    ($($($field:ident).+),+ $(,)?) => {
        impl JobSpec {
            fn write_numbers(&self, writer: &mut Writer) {
                $(writer.put(&self.$($field).+);)+
            }

            fn read_numbers(&mut self, reader: &mut Reader<'_>) -> Result<(), FormatError> {
                $(self.$($field).+ = reader.get(last!($($field).+))?;)+
                Ok(())
            }
        }
    };
}

/// The last of a path of fields: its name in errors.
macro_rules! last {
    ($field:ident) => { stringify!($field) };
    ($outer:ident.$($field:ident).+) => { last!($($field).+) };
}

fields_of_job! {
    plan.sampler, plan.order, tail, on_error, plan.seed,
    plan.rep, plan.hit_cap, plan.explore, plan.echo, plan.prune,
    plan.weights_digest, plan.subset_digest, plan.group,
    plan.whole_from, plan.cover, plan.strata,
    plan.replacement, plan.pace, plan.draw_ahead, admit,
    batch_size, world_size, ranks_here, ring_bytes, bad_max,
}

impl Field for JobSpec {
    fn write(&self, writer: &mut Writer) {
        self.write_numbers(writer);
        writer.put(&to_q16(self.plan.mix));
        writer.put(&self.output);
    }

    fn read(reader: &mut Reader<'_>, _name: &'static str) -> Result<Self, FormatError> {
        let mut spec = Self::default();
        spec.read_numbers(reader)?;
        spec.plan.mix = from_q16(reader.get("mix")?);
        spec.output = reader.get("output")?;
        Ok(spec)
    }
}

/// An impossible value of a field: names the field, the value and what it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldError(String);

/// `spec` with another value of the field `name`.
fn with_field<T: Serialize + DeserializeOwned>(spec: &T, name: &str, value: Value) -> Result<T, FieldError> {
    let wrong = |error: serde_json::Error| FieldError(format!("{name}: {error}"));
    let mut fields = serde_json::to_value(spec).map_err(wrong)?;
    let field = fields.get_mut(name).ok_or_else(|| FieldError(format!("{name}: there is no such field")))?;
    *field = value;
    serde_json::from_value(fields).map_err(wrong)
}

/// A flag or a number, if the text is one, else the text.
fn value(text: &str) -> Value {
    let flag = text.parse::<bool>().map(Value::from).ok();
    let whole = || text.parse::<u64>().map(Value::from).ok();
    let number = || text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number);
    flag.or_else(whole).or_else(number).unwrap_or_else(|| Value::from(text))
}

fn in_range(field: &'static str, value: u32, most: u32) -> Result<(), SpecError> {
    if value == 0 || value > most {
        return Err(SpecError::new(field, value, format_args!("1 to {most}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ImageSpec;

    fn spec() -> JobSpec {
        JobSpec {
            batch_size: 256,
            world_size: 8,
            output: ImageSpec::cover(224, 224).into(),
            ..JobSpec::default()
        }
    }

    #[test]
    fn every_bad_field_is_named() {
        spec().validate().unwrap();
        JobSpec::default().validate().unwrap();
        let plan = spec().plan;
        let bad = [
            ("rep", JobSpec { plan: PlanSpec { rep: 0.9, ..plan }, ..spec() }),
            ("rep", JobSpec { plan: PlanSpec { rep: f64::NAN, ..plan }, ..spec() }),
            ("rep", JobSpec { plan: PlanSpec { rep: f64::INFINITY, ..plan }, ..spec() }),
            ("hit_cap", JobSpec { plan: PlanSpec { hit_cap: 1.1, ..plan }, ..spec() }),
            ("hit_cap", JobSpec { plan: PlanSpec { hit_cap: f64::NAN, ..plan }, ..spec() }),
            ("explore", JobSpec { plan: PlanSpec { explore: -0.1, ..plan }, ..spec() }),
            ("echo", JobSpec { plan: PlanSpec { echo: 0.5, ..plan }, ..spec() }),
            ("echo", JobSpec { plan: PlanSpec { echo: f64::NAN, ..plan }, ..spec() }),
            ("prune", JobSpec { plan: PlanSpec { prune: 1.5, ..plan }, ..spec() }),
            ("group", JobSpec { plan: PlanSpec { group: 1, pace: true, ..plan }, ..spec() }),
            ("group", JobSpec { plan: PlanSpec { group: 1, rep: 2.0, ..plan }, ..spec() }),
            ("bad_max", JobSpec { bad_max: -0.01, ..spec() }),
            ("bad_max", JobSpec { bad_max: 1.5, ..spec() }),
            ("bad_max", JobSpec { bad_max: f64::NAN, ..spec() }),
            ("batch_size", JobSpec { batch_size: 0, ..spec() }),
            ("batch_size", JobSpec { batch_size: 32_769, ..spec() }),
            ("world_size", JobSpec { world_size: 0, ..spec() }),
            ("world_size", JobSpec { world_size: RANKS_MAX + 1, ..spec() }),
            ("ranks_here", JobSpec { ranks_here: 9, ..spec() }),
            ("strata", JobSpec { plan: PlanSpec { strata: 0, ..plan }, ..spec() }),
            ("strata", JobSpec { plan: PlanSpec { strata: STRATA_MAX + 1, ..plan }, ..spec() }),
            (
                "strata",
                JobSpec { plan: PlanSpec { strata: 2, sampler: Sampler::Sequential, ..plan }, ..spec() },
            ),
            (
                "strata",
                JobSpec { plan: PlanSpec { strata: 2, sampler: Sampler::Infobatch, ..plan }, ..spec() },
            ),
            ("strata", JobSpec { plan: PlanSpec { strata: 2, sampler: Sampler::Iis, ..plan }, ..spec() }),
            (
                "strata",
                JobSpec { plan: PlanSpec { strata: 2, sampler: Sampler::Weighted, ..plan }, ..spec() },
            ),
            (
                "strata",
                JobSpec { plan: PlanSpec { strata: 2, sampler: Sampler::Balanced, ..plan }, ..spec() },
            ),
            ("strata", JobSpec { plan: PlanSpec { strata: 2, subset_digest: 1, ..plan }, ..spec() }),
            ("strata", JobSpec { plan: PlanSpec { strata: 2, pace: true, ..plan }, ..spec() }),
            ("height", JobSpec { output: ImageSpec::cover(0, 1).into(), ..spec() }),
            ("width", JobSpec { output: ImageSpec::cover(1, 20_000).into(), ..spec() }),
            (
                "batch_size",
                JobSpec { batch_size: 32_768, output: ImageSpec::cover(16_384, 16_384).into(), ..spec() },
            ),
            ("ring_bytes", JobSpec { ring_bytes: 100, ..spec() }),
            ("ring_bytes", JobSpec { ring_bytes: PAYLOAD_BYTES_MAX + 4096, ..spec() }),
        ];
        for (field, spec) in bad {
            assert_eq!(spec.validate().unwrap_err().field, field, "{spec:?}");
        }
    }

    #[test]
    fn nodes_draw_on_their_own_only_what_they_know() {
        let on_two_nodes = |plan| JobSpec { ranks_here: 4, plan, ..spec() };
        let plan = PlanSpec::default();
        let knows_all = [
            PlanSpec { sampler: Sampler::Uniform, ..plan },
            PlanSpec { sampler: Sampler::Sequential, ..plan },
            PlanSpec { sampler: Sampler::Balanced, ..plan },
            PlanSpec { sampler: Sampler::Replacement, cover: 0, ..plan },
            PlanSpec { sampler: Sampler::Sequential, rep: 2.0, order: Order::HitsFirst, pace: true, ..plan },
        ];
        for plan in knows_all {
            on_two_nodes(plan).validate().unwrap();
        }
        let needs_strata = [
            PlanSpec { sampler: Sampler::Pads, ..plan },
            PlanSpec { sampler: Sampler::Cis, ..plan },
            PlanSpec { sampler: Sampler::Replacement, ..plan },
            PlanSpec { rep: 2.0, ..plan },
            PlanSpec { order: Order::HitsFirst, ..plan },
        ];
        for plan in needs_strata {
            assert_eq!(on_two_nodes(plan).validate().unwrap_err().field, "strata", "{plan:?}");
            on_two_nodes(PlanSpec { strata: 4, ..plan }).validate().unwrap_err();
            on_two_nodes(PlanSpec { strata: 24, ..plan }).validate().unwrap();
            for ranks_here in [0, 8] {
                JobSpec { ranks_here, ..on_two_nodes(plan) }.validate().unwrap();
            }
        }
    }

    #[test]
    fn every_parameter_is_set_by_its_name_and_text() {
        let texts = [
            "pads",
            "spaced",
            "18446744073709551615",
            "2",
            "0.25",
            "3",
            ".5",
            "1.5",
            "0.25",
            "7",
            "false",
            "true",
            "true",
            "24",
            ".05",
        ];
        assert_eq!(texts.len(), PlanSpec::PARAMETERS.len());
        let mut spec = PlanSpec::default();
        for (parameter, text) in PlanSpec::PARAMETERS.iter().zip(texts) {
            let before = spec;
            spec.set(parameter.name, text).unwrap();
            assert_ne!(spec, before, "{}", parameter.name);
        }
        let expected = PlanSpec {
            sampler: Sampler::Pads,
            order: Order::Spaced,
            seed: u64::MAX,
            rep: 2.0,
            hit_cap: 0.25,
            cover: 3,
            explore: 0.5,
            echo: 1.5,
            prune: 0.25,
            whole_from: 7,
            replacement: false,
            pace: true,
            draw_ahead: true,
            strata: 24,
            mix: 0.05,
            weights_digest: 0,
            subset_digest: 0,
            group: 0,
        };
        assert_eq!(spec, expected);
    }

    #[test]
    fn a_bad_text_is_refused_by_name_and_changes_nothing() {
        let bad = [
            ("sampler", "random"),
            ("seed", "-1"),
            ("seed", "18446744073709551616"),
            ("rep", "0.5"),
            ("rep", "inf"),
            ("hit_cap", "nan"),
            ("hit_cap", "60%"),
            ("cover", "4294967296"),
            ("cover", "1.5"),
            ("pace", "1"),
            ("lookahead", "1"),
        ];
        for (name, text) in bad {
            let mut spec = PlanSpec::default();
            let error = spec.set(name, text).unwrap_err().to_string();
            assert!(error.starts_with(name), "{name}={text}: {error}");
            assert_eq!(spec, PlanSpec::default());
        }
    }

    #[test]
    fn fields_of_job_and_plan_are_checked_alike() {
        JobSpec::check_field("batch_size", 256.into()).unwrap();
        JobSpec::check_field("hit_cap", 1.into()).unwrap();
        for (name, value) in
            [("batch_size", Value::from(0)), ("tail", "keep".into()), ("hit_cap", "0.5".into())]
        {
            let error = JobSpec::check_field(name, value).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
