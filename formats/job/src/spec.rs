//! A job, and how its plans are drawn.

use std::collections::HashSet;
use std::fmt::Display;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use shade_formats::Dtype;
use shade_formats::limits::{
    BATCH_SAMPLES_MAX, PAYLOAD_ALIGN_BYTES, PAYLOAD_BYTES_MAX, RANKS_MAX, SAMPLES_MAX, STRATA_MAX,
};
use shade_formats::ring::FieldColumns;
use xxhash_rust::xxh3::xxh3_64;

use crate::declared::{canonical, declared, with_field};
use crate::values::auto;
use crate::{
    Buckets, Declared, Decode, EpochLength, Fields, Floats, Normalize, OnError, Order, Output, Parameter,
    Parts, Sampler, SpecError, Tail,
};

pub use shade_formats::limits::JOB_BYTES_MAX;

declared! {
    /// How the plan of each epoch is drawn.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct PlanSpec {
        /// How samples are drawn. `pads` draws by importance from the second epoch on, `uniform`
        /// takes each sample once an epoch, `iis` leaves out samples of low importance, `cis`
        /// delivers them with weight 0, and `sequential` takes each sample once, in the dataset's
        /// order. `replacement` draws uniformly with replacement, `echo` delivers each sample that
        /// is read several times, `infobatch` leaves out a share of the samples of low loss, and
        /// `seta` samples of the highest or lowest losses.
        /// `weighted` draws by a table of weights, and `balanced` draws all classes equally often.
        sampler: Sampler = Sampler::Uniform, of Sampler, as "sampler SAMPLER";

        /// Order of delivery. `shuffled` is a seeded shuffle, `spaced` has repeats of a sample some
        /// batches apart (`gap`), `hits_first` has cached samples first (SHADE as published), and
        /// `opportunistic` draws from what is in memory (DeepIO).
        order: Order = Order::Shuffled, of Order, as "order ORDER";

        /// Seed of every random choice.
        seed: u64 = 0, as "seed N";

        /// PADS: factor on the draws of resident samples, at least 1; 1 is off. The plan then
        /// depends on the cache's content.
        rep: f64 = 1.0, in 1.0 to (f64::MAX) in_words "a finite number of at least 1", as "rep FACTOR";

        /// PADS: largest share of an epoch that such replicated draws may take, 0 to 1.
        hit_cap: f64 = 0.6, in 0.0 to 1.0, as "hit-cap SHARE";

        /// PADS, replacement, iis, infobatch, seta: a sample that was not delivered for this many
        /// epochs is put into the plan; 0 is off.
        cover: u32 = 5, as "cover EPOCHS";

        /// PADS: share of draws that ignore importance, 0 to 1.
        explore: f64 = 0.0, in 0.0 to 1.0, as "explore SHARE";

        /// Echo: how often a sample that is read comes in an epoch, at least 1; it need not be
        /// whole.
        echo: f64 = 2.0, in 1.0 to (f64::MAX) in_words "a finite number of at least 1", as "echo TIMES";

        /// Echo, and the order `spaced`: most batches of one rank from a use of a sample to the
        /// next; the fewest are a third of them. `auto` is 60. Where the cache holds less than that
        /// when the job begins it is four fifths of what it holds; not with ranks on several nodes.
        #[serde(with = "auto")]
        gap: Option<u32> = None, in 1 to (u32::MAX) in_words "auto, or batches, at least 1", as "gap auto|BATCHES";

        /// InfoBatch: share of the samples with a loss below the mean that an epoch leaves out, 0
        /// to 1.
        prune: f64 = 0.5, in 0.0 to 1.0, as "prune SHARE";

        /// InfoBatch, SeTa: from this epoch on nothing is left out; 0 is never. The papers: the
        /// last eighth of all epochs.
        whole_from: u32 = 0, as "whole-from EPOCH";

        /// Weighted, balanced: draw with replacement. Without it each sample comes as often as
        /// expected, rounded up or down.
        replacement: bool = true, as "replacement BOOL";

        /// Move samples by a few batches, so that batches and ranks have equally many expected
        /// misses.
        pace: bool = false, as "pace";

        /// Draw each plan an epoch early, from importance as it was then. The cache then sees a
        /// whole epoch ahead at all times.
        draw_ahead: bool = false, as "draw-ahead";

        /// Equal parts of the dataset that are drawn each on its own, so that no node needs what
        /// another knows. Every rank has its parts to itself if their number is a multiple of the
        /// ranks'. 1 draws the dataset as a whole: by losses with ranks on several nodes, these
        /// pool their scores (`pool_scores`).
        strata: u32 = 1, in 1 to STRATA_MAX, as "strata N";

        /// Share of the strata that change seats at each epoch, and so perhaps ranks and nodes,
        /// which read them anew: 0 to 1. 0 leaves each sample at its rank for ever.
        mix: f64 = 0.0, in 0.0 to 1.0, as "mix SHARE";

        /// Parts of the dataset that each batch has in one ratio: a list of `[samples, share]` or
        /// `[samples, share, sampler]`, in the order of their samples; none if the dataset is no
        /// mixture.
        parts: Parts = Parts::NONE;

        /// Length of an epoch of a mixture: `first`, until each sample of the first part has come,
        /// `longest`, of every part, or a number of samples.
        epoch_length: EpochLength = EpochLength::First;

        /// Heights and widths of images, of which each batch of all ranks has one: that whose
        /// aspect ratio is nearest to that of its images. None leaves all images at one size.
        bucket: Buckets = Buckets::NONE;

        /// Digest of the sampler `weighted`'s table, [`WeightTable::digest`](crate::WeightTable); 0
        /// without one.
        weights_digest: u64 = 0;

        /// Digest of the samples that the job delivers, [`Subset::digest`](crate::Subset); 0 for
        /// all of the dataset.
        subset_digest: u64 = 0;

        /// The group: its name, or the digest of it ([`group_digest`]); 0 without one. The jobs of
        /// a group draw coupled plans: each its own, and as alike as they can be.
        #[serde(deserialize_with = "name_or_digest")]
        group: u64 = 0;
    }
}

impl Declared for PlanSpec {
    const WHAT: &'static str = "training";
    const PARAMETERS: &'static [Parameter] = Self::DECLARED;

    fn validate(&self) -> Result<(), SpecError> {
        Self::validate(self)
    }
}

impl PlanSpec {
    /// Refuses numbers that make no plan.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.check_ranges()?;
        if self.group != 0 && self.depends_on_residents() {
            let expected = "rep 1, no pace, and the order shuffled or spaced in a group: coupled plans do not \
                            depend on what is cached";
            return Err(SpecError::new("group", "rep, pace or an order that does", expected));
        }
        Ok(())
    }

    /// Refuses what batches of one aspect ratio cannot have.
    fn check_buckets(&self) -> Result<(), SpecError> {
        let refused = [
            (!self.parts.is_empty(), "a mixture: its parts are in one ratio in each batch"),
            (self.pace, "pace: it moves samples to other batches"),
            (self.group != 0, "a group: its jobs have rows of one size"),
        ];
        match refused.into_iter().find(|(is_given, _)| *is_given && !self.bucket.is_empty()) {
            Some((_, why)) => Err(SpecError::new("bucket", "given", format_args!("left out with {why}"))),
            None => Ok(()),
        }
    }

    /// Refuses what a mixture cannot have, and what only a mixture has.
    fn check_parts(&self) -> Result<(), SpecError> {
        if self.parts.is_empty() {
            let expected =
                "\"first\" for a dataset that is no mixture: give the Loader a list of datasets and shares";
            let is_default = self.epoch_length == EpochLength::default();
            let given = || SpecError::new("epoch_length", "given", expected);
            return if is_default { Ok(()) } else { Err(given()) };
        }
        let expected = match (self.pace, self.subset_digest) {
            (true, _) => ("pace", "left out in a mixture: it moves samples to other batches"),
            (false, 0) => return self.parts.check_samplers(self.sampler),
            (false, _) => {
                ("indices", "left out in a mixture: make a dataset of them (shade-pack subset), and mix that")
            }
        };
        Err(SpecError::new(expected.0, "given", expected.1))
    }

    /// Whether a plan depends on what is cached when it is drawn, and so on when reads came back.
    /// No order, pacing or replication applies to `sequential`.
    #[must_use]
    pub fn depends_on_residents(&self) -> bool {
        let asks = self.rep > 1.0 || self.pace || self.order.asks_for_residents();
        asks && self.samplers().any(|sampler| sampler != Sampler::Sequential)
    }

    /// What draws: the plan's sampler, or those of a mixture's parts.
    pub fn samplers(&self) -> impl Iterator<Item = Sampler> {
        let of_one = self.parts.is_empty().then_some(self.sampler);
        of_one.into_iter().chain(self.parts.samplers(self.sampler))
    }

    /// Whether a sampler draws by the losses that trainers report.
    #[must_use]
    pub fn is_by_importance(&self) -> bool {
        self.samplers().any(Sampler::is_by_importance)
    }

    /// Whether what was delivered decides what is drawn.
    #[must_use]
    pub fn is_by_deliveries(&self) -> bool {
        self.cover > 0 && self.samplers().any(|sampler| sampler == Sampler::Replacement)
    }

    /// Whether repeats of a sample have a gap.
    #[must_use]
    pub fn spaces_repeats(&self) -> bool {
        self.samplers().any(|sampler| sampler == Sampler::Echo) || self.order == Order::Spaced
    }

    /// Digest of its canonical form without strata and gap, of which a state has its own. Plans
    /// with equal ones may go on from the same state.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let text = canonical(&Self { strata: 1, gap: None, ..*self });
        // States from before there were these fields have the digest of a document without them.
        let without = [r#""gap":"auto","#, r#""parts":[],"#, r#""epoch_length":"first","#, r#""bucket":[],"#];
        xxh3_64(without.iter().fold(text, |text, field| text.replace(field, "")).as_bytes())
    }
}

/// The digest of a group's name, never 0.
#[must_use]
pub fn group_digest(name: &str) -> u64 {
    xxh3_64(name.as_bytes()).max(1)
}

fn name_or_digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected the group's name, or its digest")]
    enum Group {
        Digest(u64),
        Name(String),
    }
    Ok(match Group::deserialize(deserializer)? {
        Group::Digest(digest) => digest,
        Group::Name(name) => group_digest(&name),
    })
}

declared! {
    /// What one job asks of the daemon. Every rank of a job must send an equal one.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct JobSpec {
        /// How epochs are drawn.
        plan: PlanSpec = PlanSpec::default();

        /// Rows in each rank's batch.
        batch_size: u32 = 1, in 1 to BATCH_SAMPLES_MAX;

        /// Ranks of the job, on all nodes together.
        world_size: u32 = 1, in 1 to RANKS_MAX;

        /// Ranks of the job that attach to this daemon; 0 means all of them. They say themselves
        /// which ones they are. Every node has its own number.
        ranks_here: u32 = 0;

        /// Whether the ranks of all nodes pool their scores before an epoch is drawn. Then nodes
        /// can draw one plan by losses together, which they need where the strata are not the
        /// ranks' own. Else it has no effect.
        pool_scores: bool = false;

        /// What happens to an incomplete last batch.
        tail: Tail = Tail::default(), of Tail;

        /// What becomes of a record.
        decode: Decode = Decode::Raw;

        /// Colours of a pixel side by side (height x width x 3) instead of a plane for each colour.
        channels_last: bool = false;

        /// Type of the images' values: bytes from 0 to 255, or floats, which the daemon makes of
        /// them: from 0 to 1, or as `normalize` says.
        dtype: Dtype = Dtype::Uint8, of Dtype;

        /// Mean and deviation of each colour for images from 0 to 1: floats are `(x - mean) / std`.
        normalize: Option<Normalize> = None;

        /// Decode as torchvision does, without shortcuts: large JPEGs are not reduced while they
        /// are decoded, and damage outside a crop is found.
        exact: bool = false;

        /// The extra fields that a batch has: their names, each with what it is. `bytes`, `text`
        /// and `json` are as packed, `float32[512]` are numbers of one shape in all samples, and
        /// `float32[*, 4]` are rows, as many as the sample has. `mask` and `boxes[xyxy]` follow the
        /// image, and `int64[NAME]` has a row for each of the boxes NAME that are left.
        fields: Fields = Fields::default();

        /// Whether records that the job reads may stay in the cache, and its uses count there. A
        /// job that validates leaves the cache to those that train.
        admit: bool = true;

        /// What happens to a bad record.
        on_error: OnError = OnError::default(), of OnError;

        /// Largest share of an epoch's samples that may be skipped or substituted, 0 to 1; more end
        /// the epoch. Each daemon counts those of its ranks.
        bad_max: f64 = 0.01, in 0.0 to 1.0;

        /// Length of each rank's payload segment in bytes; 0 leaves it to the daemon.
        ring_bytes: u64 = 0, in 0 to PAYLOAD_BYTES_MAX;
    }
}

impl JobSpec {
    /// Reads a document. What it does not have keeps its default.
    ///
    /// # Errors
    /// It is longer than [`JOB_BYTES_MAX`], not JSON, or has a field that does not exist or a value
    /// of another kind. Whether a daemon can serve it, [`validate`](Self::validate) says.
    pub fn from_text(text: &str) -> Result<Self, SpecError> {
        if text.len() > JOB_BYTES_MAX {
            let expected = format_args!("at most {JOB_BYTES_MAX}");
            return Err(SpecError::new("length of the job's document", text.len(), expected));
        }
        serde_json::from_str(text).map_err(|error| not_a_job(&error))
    }

    /// Its canonical document: every field, in the order of declaration.
    #[must_use]
    pub fn to_text(&self) -> String {
        canonical(self)
    }

    /// Reads a document within other JSON.
    ///
    /// # Errors
    /// As for [`from_text`](Self::from_text).
    pub fn from_value(value: Value) -> Result<Self, SpecError> {
        serde_json::from_value(value).map_err(|error| not_a_job(&error))
    }

    /// Its canonical document within other JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Checks a value for one field, of the job itself or of its plan.
    ///
    /// # Errors
    /// There is no such field, or it cannot have this value.
    pub fn check_field(name: &str, value: &Value) -> Result<(), SpecError> {
        match PlanSpec::DECLARED.iter().any(|parameter| parameter.name == name) {
            true => with_field(&PlanSpec::default(), PlanSpec::DECLARED, name, value)?.validate(),
            false => with_field(&Self::default(), Self::DECLARED, name, value)?.validate(),
        }
    }

    /// What the largest batch holds.
    ///
    /// # Errors
    /// As for [`outputs`](Self::outputs).
    pub fn output(&self) -> Result<Output, SpecError> {
        Ok(self.outputs()?.into_iter().max_by_key(Output::row_bytes).unwrap_or_default())
    }

    /// What a batch of each bucket holds; one for all if they do not differ.
    ///
    /// # Errors
    /// The transforms make no rows, or none of a bucket's size.
    pub fn outputs(&self) -> Result<Vec<Output>, SpecError> {
        let floats = Floats::new(self.dtype, self.normalize)?;
        let of = |decode: &Decode| Output::new(decode, self.channels_last, self.exact, floats);
        let output = of(&self.decode)?;
        let sizes: HashSet<_> = output.shapes().iter().map(|shape| (shape.height, shape.width)).collect();
        if self.plan.bucket.is_empty() || sizes.is_empty() {
            return Ok(vec![output]);
        }
        if sizes.len() > 1 {
            let expected = "left out with views of different sizes: the images of a batch have one size";
            return Err(SpecError::new("bucket", "given", expected));
        }
        self.plan.bucket.sizes().map(|size| of(&self.decode.of_size(size)?)).collect()
    }

    /// Refuses what no daemon can serve.
    ///
    /// # Errors
    /// Names the field.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.plan.validate()?;
        self.check_ranges()?;
        self.plan.check_parts()?;
        self.plan.check_buckets()?;
        self.check_strata()?;
        let positions = self.plan.parts.positions(self.plan.epoch_length, self.global_batch());
        if positions > SAMPLES_MAX {
            let got = format_args!("such that an epoch has {positions} samples");
            let expected = format_args!("one of at most {SAMPLES_MAX}: give a number of samples");
            return Err(SpecError::new("epoch_length", got, expected));
        }
        // Below 2^51: 2^15 rows of 16 views of 3 x 2^28 values of 4 bytes.
        let output = self.output()?;
        self.fields.check(&output)?;
        let fields = FieldColumns::new(&self.fields.widths(&output.shapes()), self.batch_size, 0);
        let fields = fields.map_err(|error| SpecError::told("fields", error.to_string()))?;
        let batch_bytes = u64::from(self.batch_size) * output.row_bytes() + fields.total;
        if batch_bytes >= PAYLOAD_BYTES_MAX {
            let sizes: Vec<String> =
                output.shapes().iter().map(|shape| format!("{} x {}", shape.height, shape.width)).collect();
            let sizes = sizes.join(" and ");
            let got = format_args!("{} of {sizes} pixels, {batch_bytes} bytes", self.batch_size);
            let expected = format_args!("less than {PAYLOAD_BYTES_MAX} bytes a batch");
            return Err(SpecError::new("batch_size", got, expected));
        }
        if !self.ring_bytes.is_multiple_of(PAYLOAD_ALIGN_BYTES) {
            let expected = format_args!("0 or a multiple of {PAYLOAD_ALIGN_BYTES} up to {PAYLOAD_BYTES_MAX}");
            return Err(SpecError::new("ring_bytes", self.ring_bytes, expected));
        }
        Ok(())
    }

    /// Samples in a batch of all ranks.
    #[must_use]
    pub fn global_batch(&self) -> u64 {
        u64::from(self.batch_size) * u64::from(self.world_size)
    }

    /// Positions of an epoch, of a job that may deliver `samples` samples: as many, unless it is a
    /// mixture or its sampler leaves some out.
    #[must_use]
    pub fn positions(&self, samples: u32) -> u32 {
        let PlanSpec { parts, epoch_length, .. } = self.plan;
        let of_parts = || parts.positions(epoch_length, self.global_batch());
        // What does not fit is refused.
        if parts.is_empty() { samples } else { u32::try_from(of_parts()).unwrap_or(u32::MAX) }
    }

    /// Number of ranks that attach to this daemon.
    #[must_use]
    pub fn local_ranks(&self) -> u32 {
        if self.ranks_here == 0 { self.world_size } else { self.ranks_here }
    }
}

fn not_a_job(error: &dyn Display) -> SpecError {
    SpecError::told("job", format!("the job's document: {error}"))
}

/// Reads a plan that another version may have written: `None` if it has what this one does not
/// know.
///
/// # Errors
/// It is no value.
pub fn known_plan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PlanSpec>, D::Error> {
    Value::deserialize(deserializer).map(|value| serde_json::from_value(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    fn spec() -> JobSpec {
        JobSpec { batch_size: 256, world_size: 8, decode: Decode::cover(224, 224), ..JobSpec::default() }
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
            ("gap", JobSpec { plan: PlanSpec { gap: Some(0), ..plan }, ..spec() }),
            ("prune", JobSpec { plan: PlanSpec { prune: 1.5, ..plan }, ..spec() }),
            (
                "epoch_length",
                JobSpec { plan: PlanSpec { epoch_length: EpochLength::Samples(9), ..plan }, ..spec() },
            ),
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
            ("decode", JobSpec { decode: Decode::cover(0, 1), ..spec() }),
            ("decode", JobSpec { decode: Decode::cover(1, 20_000), ..spec() }),
            ("batch_size", JobSpec { batch_size: 32_768, decode: Decode::cover(16_384, 16_384), ..spec() }),
            ("ring_bytes", JobSpec { ring_bytes: 100, ..spec() }),
            ("ring_bytes", JobSpec { ring_bytes: PAYLOAD_BYTES_MAX + 4096, ..spec() }),
        ];
        for (field, spec) in bad {
            assert_eq!(spec.validate().unwrap_err().field, field, "{spec:?}");
        }
    }

    #[test]
    fn what_a_mixture_cannot_have_is_named() {
        let parts = Parts::new(&[(100, 0.7), (50, 0.3)]).unwrap();
        let plan = PlanSpec { parts, ..PlanSpec::default() };
        let of = |plan| JobSpec { plan, ..spec() }.validate();
        for sampler in
            [Sampler::Uniform, Sampler::Sequential, Sampler::Echo, Sampler::Weighted, Sampler::Balanced]
        {
            of(PlanSpec { sampler, ..plan }).unwrap();
        }
        for (field, plan) in [
            ("pace", PlanSpec { pace: true, ..plan }),
            ("indices", PlanSpec { subset_digest: 1, ..plan }),
            ("strata", PlanSpec { strata: 8, ..plan }),
        ] {
            assert_eq!(of(plan).unwrap_err().field, field);
        }
        let rare = Parts::new(&[(100, 1.0), (4_000_000_000, 1e-6)]).unwrap();
        let longest = PlanSpec { parts: rare, epoch_length: EpochLength::Longest, ..plan };
        assert_eq!(of(longest).unwrap_err().field, "epoch_length");
        assert_ne!(plan.digest(), PlanSpec { parts: rare, ..plan }.digest());
        let on_two_nodes = JobSpec { plan, ranks_here: 4, ..spec() };
        on_two_nodes.validate().unwrap();
        let by_losses = JobSpec { plan: PlanSpec { sampler: Sampler::Pads, ..plan }, ..on_two_nodes.clone() };
        assert_eq!(by_losses.validate().unwrap_err().field, "sampler");
        assert_eq!((on_two_nodes.positions(150), spec().positions(150)), (2048, 150));

        let own = |sampler| Part { samples: 10, share: 1.0, sampler };
        let drawn_by = |sampler, parts: [Option<Sampler>; 2]| {
            let plan =
                PlanSpec { sampler, parts: Parts::new(&parts.map(own)).unwrap(), ..PlanSpec::default() };
            JobSpec { plan, ..on_two_nodes.clone() }
        };
        let (pads, seta) = (Some(Sampler::Pads), Some(Sampler::Seta));
        let (balanced, weighted) = (Some(Sampler::Balanced), Some(Sampler::Weighted));
        for (of_plan, parts) in [
            (Sampler::Uniform, [pads, seta]),
            (Sampler::Infobatch, [None, pads]),
            (Sampler::Uniform, [weighted, None]),
            (Sampler::Weighted, [None, balanced]),
        ] {
            let spec = JobSpec { ranks_here: 0, ..drawn_by(of_plan, parts) };
            assert_eq!(spec.validate().unwrap_err().field, "sampler", "{parts:?}");
        }
        let by_losses = drawn_by(Sampler::Uniform, [None, pads]);
        assert_eq!(by_losses.validate().unwrap_err().field, "sampler", "on several nodes");
        JobSpec { ranks_here: 0, ..by_losses }.validate().unwrap();
        drawn_by(Sampler::Pads, [Some(Sampler::Echo), balanced]).validate().unwrap();
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

    /// Nodes that pool their scores draw one plan, unless it depends on what each has cached.
    #[test]
    fn nodes_that_pool_their_scores_draw_one_plan_by_losses() {
        let pooled = |plan| JobSpec { ranks_here: 4, pool_scores: true, plan, ..spec() };
        let plan = PlanSpec::default();
        let parts = Parts::new(&[(100, 0.7), (50, 0.3)]).unwrap();
        for &sampler in Sampler::ALL {
            for plan in [
                PlanSpec { sampler, ..plan },
                PlanSpec { sampler, subset_digest: 1, ..plan },
                PlanSpec { sampler, draw_ahead: true, ..plan },
                PlanSpec { sampler, parts, ..plan },
            ] {
                let spec = pooled(plan);
                spec.validate().unwrap();
                assert_eq!(
                    spec.pools_scores(),
                    plan.is_by_importance() || plan.is_by_deliveries(),
                    "{plan:?}"
                );
                let alone = JobSpec { ranks_here: 0, ..spec.clone() };
                assert!(!alone.pools_scores(), "one daemon knows all");
            }
        }
        let divided = pooled(PlanSpec { sampler: Sampler::Pads, strata: 24, ..plan });
        assert!(!divided.pools_scores() && divided.validate().is_ok(), "each draws its own strata");
        for plan in [
            PlanSpec { sampler: Sampler::Pads, rep: 2.0, ..plan },
            PlanSpec { sampler: Sampler::Pads, pace: true, ..plan },
            PlanSpec { sampler: Sampler::Pads, order: Order::HitsFirst, ..plan },
        ] {
            let spec = pooled(plan);
            assert!(!spec.pools_scores());
            assert_eq!(spec.validate().unwrap_err().field, "strata", "{plan:?}");
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
            "24",
            "0.25",
            "7",
            "false",
            "true",
            "true",
            "24",
            ".05",
        ];
        let named = PlanSpec::DECLARED.iter().filter(|parameter| !parameter.usage.is_empty());
        assert_eq!(texts.len(), named.clone().count());
        let mut spec = PlanSpec::default();
        for (parameter, text) in named.zip(texts) {
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
            gap: Some(24),
            prune: 0.25,
            whole_from: 7,
            replacement: false,
            pace: true,
            draw_ahead: true,
            strata: 24,
            mix: 0.05,
            parts: Parts::NONE,
            epoch_length: EpochLength::First,
            bucket: Buckets::NONE,
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
        JobSpec::check_field("batch_size", &256.into()).unwrap();
        JobSpec::check_field("hit_cap", &1.into()).unwrap();
        for (name, value) in
            [("batch_size", Value::from(0)), ("tail", "keep".into()), ("hit_cap", "0.5".into())]
        {
            let error = JobSpec::check_field(name, &value).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
