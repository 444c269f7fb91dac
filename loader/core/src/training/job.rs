//! A job: the ranks that train together, their importance table and the plan of their epoch.

use std::collections::HashSet;
use std::sync::Arc;

use shade_formats::control::{REFUSE_RESOURCES, REFUSE_SPEC};
use shade_formats::ring::{PayloadAllocator, PayloadSize};
use shade_formats::{DrawnRow, EpochDraws, SampleId};
use shade_job::{Fields, JobSpec, Output, PlanSpec, Sampler, Seats, Subset, Tables, WeightTable};

use super::drawing::{Ahead, Awaited, DrawnPlan, OrderId};
use super::epoch::Epoch;
use super::gathering::Gathering;
use super::lists::SharedScores;
use super::pace::Pace;
use super::pool::Pool;
use super::reports::Reports;
use super::scored_at::ScoredAt;
use super::use_numbers::UseNumbers;
use super::validation::Validation;
use crate::action::{Accepted, Refusal, Resumed};
use crate::ids::JobId;
use crate::importance::Importance;
use crate::plan::{Known, Lookahead, Part, Plan, Slices, Slot, Strata, gap_batches};
use crate::samples::Samples;
use crate::sizes::{Rooms, buckets_of, check_fields, check_sizes, payload_size, varying_bytes};

/// One training run: equal specs, one plan, W ranks.
pub(crate) struct Job {
    pub(super) id: JobId,
    /// The name that its ranks give.
    pub(super) name: String,
    pub(super) spec: JobSpec,
    /// Most batches from a use of a sample to the next: its document's, or else what followed from
    /// the cache when it began, or from that in a state that it goes on from.
    pub(super) gap: u32,
    /// What the largest of its batches holds.
    output: Arc<Output>,
    /// What a batch of each bucket holds; one for all if they do not differ.
    outputs: Vec<Arc<Output>>,
    /// By sample: its bucket. Empty if there are none.
    pub(super) buckets: Arc<[u8]>,
    /// The extra fields of its batches.
    fields: Arc<Fields>,
    /// Size of each rank's ring.
    payload: PayloadSize,
    /// The blocks of an empty ring.
    pub(super) ring: PayloadAllocator,
    /// Room of rows beyond their own record.
    pub(super) rooms: Rooms,
    /// The weights of the samplers `weighted` and `balanced`.
    pub(super) weights: Option<Arc<WeightTable>>,
    pub(super) pace: Pace,
    /// What it has learned.
    pub(super) importance: Importance,
    /// When samples were scored.
    pub(super) scored_at: ScoredAt,
    pub(super) reports: Reports,
    /// Validation scores, one an epoch, in the order of the epochs' first reports.
    pub(super) validation: Vec<Validation>,
    /// What other nodes need to know; `None` if they need nothing.
    pub(super) shared_scores: Option<SharedScores>,
    /// What it draws plans from together with other nodes; `None` if it draws alone.
    pub(super) pool: Option<Pool>,
    /// The strata that the job's ranks ask for. A state may have brought a plan of others.
    pub(super) own_strata: Strata,
    /// The strata of the current plan, and their seats.
    pub(super) strata: Strata,
    pub(super) seats: Seats,
    /// The seats that the ranks have told.
    pub(super) told: Option<ToldSeats>,
    /// The part of plans that is drawn here.
    pub(super) part: Part,
    pub(super) current: Epoch,
    /// Since when it waits for others of its group at an epoch's start.
    pub(super) waits_since_ns: Option<u64>,
    /// What its ranks wait for.
    pub(super) awaits: Option<Awaited>,
    /// What is prepared of the next epoch.
    pub(super) ahead: Option<Ahead>,
    /// The plan after the current one, where plans are drawn early.
    pub(super) next_plan: Option<Plan>,
    /// The epoch whose plan was given and not drawn. Its samples are not exchanged.
    pub(super) scripted: Option<u32>,
    /// The plan after that one, if it was given as well.
    pub(super) scripted_after: Option<Plan>,
    /// The state loaded last.
    pub(super) loaded: Option<Loaded>,
    /// It has gone on from a state, so its plans may be others than its document's.
    pub(super) is_restored: bool,
    /// What is handed over of a daemon that died, until all ranks are here.
    pub(super) gathering: Option<Gathering>,
}

/// The seats that a job's ranks have told.
pub(super) struct ToldSeats {
    /// The rank that told them first.
    pub(super) rank: u32,
    pub(super) seats: Seats,
    /// The epoch of a plan that was drawn since, and its seats, from which those of others follow.
    /// `None` before the first, which has those that were told.
    pub(super) drawn: Option<(u32, Seats)>,
}

/// A state that ranks have loaded: every rank loads the same file, once.
pub(super) struct Loaded {
    pub(super) digest: u64,
    /// The ranks that have loaded it.
    pub(super) ranks: HashSet<u32>,
    pub(super) resumed: Resumed,
}

fn unfit(text: String) -> Refusal {
    Refusal { code: REFUSE_SPEC, text }
}

/// The strata of a job's plans, and the batches of one as long as the dataset.
fn divided(spec: &JobSpec, subset: Option<Subset>, index: &dyn Samples) -> Result<(Strata, Slices), String> {
    let strata = match subset {
        Some(subset) => Strata::of_subset(subset),
        None => index.strata(spec.plan.strata).map_err(|error| error.to_string())?,
    };
    let (parts, samples) = (&spec.plan.parts, index.len());
    if !parts.is_empty() && parts.samples() != samples {
        return Err(format!(
            "the parts of the mixture have {} samples, and the dataset has {samples}",
            parts.samples()
        ));
    }
    let positions = spec.positions(strata.samples());
    let slices = Slices::new(positions, spec.batch_size, spec.world_size, spec.tail);
    let slices = slices.map_err(|error| error.to_string())?.of_strata(spec.plan.strata);
    Ok((strata, slices))
}

impl Job {
    pub(super) fn new(
        id: JobId,
        name: String,
        spec: JobSpec,
        tables: Tables,
        index: &dyn Samples,
        cache_samples: u64,
    ) -> Result<Self, Refusal> {
        let samples = index.len();
        let outputs = spec.outputs().map_err(|error| unfit(error.to_string()))?;
        let outputs: Vec<_> = outputs.into_iter().map(Arc::new).collect();
        let largest = outputs.iter().max_by_key(|output| output.row_bytes());
        let output = largest.map_or_else(Arc::default, Arc::clone);
        check_sizes(&output, index).map_err(unfit)?;
        let buckets = buckets_of(&spec.plan.bucket, index).map_err(unfit)?;
        check_fields(&spec.fields, index).map_err(unfit)?;
        let Tables { weights, subset } = tables;
        let (strata, slices) = divided(&spec, subset, index).map_err(unfit)?;
        if let (Some(weights), Some(subset)) = (&weights, strata.subset()) {
            check_weights(weights, subset).map_err(unfit)?;
        }
        if let Some(weights) = &weights {
            check_weights_of_parts(weights, &spec.plan).map_err(unfit)?;
        }
        let fields = Arc::new(spec.fields.clone());
        let rooms = Rooms::new(&spec, &output, &fields, index, strata.subset());
        let (payload, ring) = payload_size(&spec, &output, index, strata.subset(), weights.as_ref(), &rooms)
            .and_then(|payload| Ok((payload, PayloadAllocator::new(payload.bytes)?)))
            .map_err(|error| Refusal { code: REFUSE_RESOURCES, text: error.to_string() })?;
        let (shared_scores, pool) = (SharedScores::of(&spec, samples), Pool::of(&spec, samples));
        let current = Epoch::new(None, slices, spec.world_size);
        Ok(Self {
            id,
            name,
            output,
            outputs,
            buckets,
            fields,
            payload,
            ring,
            rooms,
            weights: weights.map(Arc::new),
            pace: Pace::new(spec.batch_size, spec.world_size),
            gap: gap_batches(&spec, strata.samples(), cache_samples),
            spec,
            importance: Importance::new(samples),
            scored_at: ScoredAt::new(samples),
            reports: Reports::default(),
            validation: Vec::new(),
            shared_scores,
            pool,
            own_strata: strata.clone(),
            strata,
            seats: Seats::IN_ORDER,
            told: None,
            part: Part::WHOLE,
            current,
            waits_since_ns: None,
            awaits: None,
            ahead: None,
            next_plan: None,
            scripted: None,
            scripted_after: None,
            loaded: None,
            is_restored: false,
            gathering: None,
        })
    }

    /// Goes on to this plan, or back to before the first epoch.
    pub(super) fn begin(&mut self, drawn: Option<DrawnPlan>) {
        let plan = drawn.as_ref().map(|drawn| &drawn.plan);
        let slices = self.slices_of_plan(plan);
        if let Some(plan) = plan {
            self.part.clone_from(&plan.part);
        }
        self.current = Epoch::new(drawn, slices, self.spec.world_size);
        (self.ahead, self.waits_since_ns) = (None, None);
    }

    /// Its number.
    pub(crate) fn id(&self) -> JobId {
        self.id
    }

    /// The name that its ranks give.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What its ranks asked for.
    pub(crate) fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// The parameters of its plans, all of them.
    pub(crate) fn plan_spec(&self) -> PlanSpec {
        PlanSpec { gap: Some(self.gap), ..self.spec.plan }
    }

    /// What its rows become: those of the largest batches, if it has buckets.
    pub(crate) fn output(&self) -> &Arc<Output> {
        &self.output
    }

    /// What a batch of these samples holds: that of the bucket that most of them are of, the first
    /// of several.
    pub(super) fn output_of(&self, batch: &[SampleId]) -> &Arc<Output> {
        let [one] = &self.outputs[..] else {
            let mut counts = vec![0_u32; self.outputs.len()];
            batch.iter().for_each(|id| counts[usize::from(self.buckets[id.index()])] += 1);
            let most = counts.iter().copied().max();
            let bucket = counts.iter().position(|&count| Some(count) == most);
            return &self.outputs[bucket.unwrap_or(0)];
        };
        one
    }

    /// The extra fields of its batches.
    pub(crate) fn fields(&self) -> &Arc<Fields> {
        &self.fields
    }

    /// Bytes that the fields of a sample take at most, without those of one length.
    pub(crate) fn fields_bytes(&self, index: &dyn Samples, sample: SampleId) -> u64 {
        varying_bytes(&self.fields, &self.output, index, sample)
    }

    /// Room of a row for these bytes: of its own, or of any other of its class that may stand in.
    pub(crate) fn fields_room(&self, index: &dyn Samples, sample: SampleId, label: u32) -> u64 {
        self.fields_bytes(index, sample).max(self.rooms.of_fields(sample, label))
    }

    /// Whether it waits for others of its group at an epoch's start.
    pub(crate) fn waits_for_group(&self) -> bool {
        self.waits_since_ns.is_some()
    }

    /// Whether no loss came in the epoch before the current one, although the sampler needs them.
    pub(crate) fn misses_reports(&self) -> bool {
        self.reports.are_missing()
    }

    /// Average time of a batch of all its ranks, ns.
    pub(crate) fn batch_ns(&self) -> f64 {
        self.pace.batch_ns()
    }

    /// What it has learned.
    pub(crate) fn importance(&self) -> &Importance {
        &self.importance
    }

    /// The strata of its current plan.
    pub(crate) fn strata(&self) -> &Strata {
        &self.strata
    }

    /// The current epoch's plan; `None` before the first epoch.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.current.plan.as_ref()
    }

    /// How random the current plan's order is.
    pub(crate) fn position_entropy(&self) -> f64 {
        self.current.position_entropy
    }

    /// Batches of each rank in the current epoch.
    pub(crate) fn batches_per_epoch(&self) -> u32 {
        self.current.slices.batches_per_epoch()
    }

    /// The uses in sight; `None` while nothing looks ahead.
    pub(crate) fn lookahead(&self) -> Option<&Lookahead> {
        self.current.lookahead.as_ref()
    }

    /// The batches of a plan from its first position on, or of one as long as the dataset.
    pub(super) fn slices_of_plan(&self, plan: Option<&Plan>) -> Slices {
        let positions = self.positions();
        let len = plan.map_or(positions, |plan| plan.len_of_all(positions));
        self.current.slices.of_len(len).of_strata(self.strata.count())
    }

    /// Positions of an epoch, or the most that one has.
    pub(super) fn positions(&self) -> u32 {
        self.spec.positions(self.strata.samples())
    }

    /// Whether the next plan has the strata of the current one: those that the ranks ask for, or
    /// others that a state has brought, if all ranks have equally many of these.
    pub(super) fn keeps_strata(&self) -> bool {
        self.strata.stay(&self.own_strata, self.spec.world_size)
    }

    /// Whether its ranks wait for this order.
    pub(super) fn awaits_order(&self, order: OrderId) -> bool {
        matches!(self.awaits, Some(Awaited::Order(awaited)) if awaited == order)
    }

    /// Whether what its ranks say waits until something is done aside, or all ranks are here that
    /// go on with it.
    pub(crate) fn is_postponed(&self) -> bool {
        self.awaits.is_some() || self.gathering.is_some()
    }

    /// Whether ranks still hand over what they have of a daemon that died.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gathering.is_some() && self.awaits.is_none()
    }

    /// The part of a plan that belongs to these ranks, which are all at this daemon. Where strata
    /// are not the ranks' own it is the whole plan: each node draws all of it.
    pub(super) fn part_of(&self, ranks: Vec<u32>) -> Part {
        let world_size = self.spec.world_size;
        if self.strata.count().is_multiple_of(world_size) { Part::of(ranks, world_size) } else { Part::WHOLE }
    }

    /// Whether the sample may be in a plan of this daemon.
    pub(crate) fn has(&self, sample: SampleId) -> bool {
        if !self.strata.has(sample) {
            return false;
        }
        self.part.is_whole() || self.part.has(self.seat_of(sample) % self.spec.world_size)
    }

    /// Whether the sample has a weight above 0, if it is drawn by a table of weights.
    pub(crate) fn has_weight(&self, sample: SampleId) -> bool {
        let plan = &self.spec.plan;
        let of_part = plan.parts.samplers(plan.sampler).nth(plan.parts.number_of(sample.0));
        let is_by_table = matches!(of_part.unwrap_or(plan.sampler), Sampler::Weighted | Sampler::Balanced);
        let table = self.weights.as_ref().filter(|_| is_by_table);
        table.is_none_or(|table| table.weights().get(sample.index()).is_some_and(|&weight| weight > 0))
    }

    /// Whether repeats of a sample are dealt to the ranks: then its place does not say whose it is.
    pub(super) fn deals_repeats(&self, plan: &Plan) -> bool {
        self.spec.world_size > 1 && self.strata.count() == 1 && plan.summary.repeat_max > 1
    }

    /// Whether the current plan has positions of ranks on other nodes.
    pub(super) fn plans_for_others(&self) -> bool {
        let is_whole = self.plan().is_some_and(|plan| plan.part.is_whole());
        is_whole && self.spec.local_ranks() < self.spec.world_size
    }

    /// Rows of the plan for the ranks at this daemon: all, unless it has those of other nodes too.
    pub(crate) fn rows_here(&self, plan: &Plan) -> usize {
        let rows = plan.ids.len();
        if !self.plans_for_others() {
            return rows;
        }
        let [here, all] = [self.spec.local_ranks(), self.spec.world_size].map(|ranks| ranks as usize);
        (rows.div_ceil(all) * here).min(rows)
    }

    /// The ranks that have the plan's places by turns, if each has its own strata; 1 if a sample
    /// may be at any rank.
    pub(super) fn ranks_apart(&self) -> usize {
        let (strata, world_size) = (self.strata.count(), self.spec.world_size);
        if strata == 1 || !strata.is_multiple_of(world_size) {
            return 1;
        }
        let part = self.plan().map_or(&self.part, |plan| &plan.part);
        part.ranks().map_or(world_size as usize, |(ranks, _)| ranks.len())
    }

    /// Number of samples that may be in a plan of this daemon.
    pub(crate) fn own_samples(&self) -> u32 {
        self.part.places_before(self.strata.samples())
    }

    /// Why the rank cannot have the rest of the current epoch, if it asks for that: the plan is of
    /// other ranks.
    pub(super) fn why_not_here(&self, epoch: u32, rank: u32) -> Option<String> {
        let plan = self.plan().filter(|plan| plan.epoch == epoch && !plan.part.has(rank))?;
        let (ranks, world_size) = plan.part.ranks()?;
        Some(format!(
            "epoch {epoch} was drawn here for ranks {ranks:?} of {world_size}, and rank {rank} is on another node \
             by it: begin the next epoch, or start all ranks where they were"
        ))
    }

    /// The place at which global batch `number` begins, in this daemon's part of the plan.
    pub(super) fn start(&self, number: u32) -> u32 {
        self.places_before(self.current.slices.start(number))
    }

    /// The place behind all that are delivered, in this daemon's part of the plan.
    pub(super) fn end(&self) -> u32 {
        self.places_before(self.current.slices.end())
    }

    fn places_before(&self, position: u32) -> u32 {
        let part = self.plan().map_or(&self.part, |plan| &plan.part);
        part.places_before(position)
    }

    /// Whether the plan uses the sample in a batch that may still be exchanged.
    pub(crate) fn will_use(&self, sample: SampleId) -> bool {
        let from = self.start(self.current.settled);
        self.current.stand_ins.as_ref().is_some_and(|all| all.is_used_from(sample, from))
    }

    /// The key of an epoch's random numbers: a group's jobs have the same.
    pub(crate) fn draws(&self, epoch: u32) -> EpochDraws {
        let (group, seed) = (self.spec.plan.group, self.spec.plan.seed);
        EpochDraws { seed: if group == 0 { seed } else { group }, epoch }
    }

    /// The row's own part of that key.
    pub(super) fn drawn_row(&self, sample: SampleId, slot: Slot, use_numbers: &UseNumbers) -> DrawnRow {
        match self.spec.plan.group {
            0 => DrawnRow::at(slot.position),
            _ => DrawnRow::of_use(sample, use_numbers.at(slot.place)),
        }
    }

    /// The answer to a rank that is accepted.
    pub(super) fn accepted(&self) -> Accepted {
        let most = self.current.slices.of_len(self.positions());
        Accepted { batches_per_epoch: most.batches_per_epoch(), payload: self.payload }
    }

    /// The known accesses: those of the plan and of the next one.
    pub(crate) fn known(&self) -> Known<'_> {
        fn ids(plan: Option<&Plan>) -> &[SampleId] {
            plan.map_or(&[], |plan| &plan.ids)
        }
        Known { plan: ids(self.plan()), next: ids(self.next_plan.as_ref()) }
    }

    /// The batches of `epoch`. For an epoch that is not the current one they are the most that
    /// there may be.
    pub(super) fn slices_of(&self, epoch: u32) -> Slices {
        let slices = self.current.slices;
        if self.epoch() == Some(epoch) { slices } else { slices.of_len(self.positions()) }
    }

    /// The current epoch's number.
    pub(crate) fn epoch(&self) -> Option<u32> {
        self.plan().map(|plan| plan.epoch)
    }
}

/// Refuses a table of weights by which a part of a mixture could not be drawn.
fn check_weights_of_parts(table: &WeightTable, plan: &PlanSpec) -> Result<(), String> {
    let drawn = plan.parts.ranges().zip(plan.parts.samplers(plan.sampler)).enumerate();
    for (number, (ids, _)) in drawn.filter(|(_, (_, sampler))| *sampler == Sampler::Weighted) {
        let weights = table.weights().get(ids.start as usize..ids.end as usize).unwrap_or_default();
        if weights.iter().all(|&weight| weight == 0) {
            return Err(format!(
                "no sample of dataset {number} of the mixture has a weight above 0: give one of them a weight, \
                 or leave the dataset out"
            ));
        }
    }
    Ok(())
}

/// Refuses a table of weights by which a subset could not be drawn.
fn check_weights(table: &WeightTable, subset: &Subset) -> Result<(), String> {
    let has_weight = |id: &u32| table.weights().get(*id as usize).is_some_and(|&weight| weight > 0);
    let text = "no sample of indices has a weight above 0: give one of them a weight";
    if subset.ids().iter().any(has_weight) { Ok(()) } else { Err(text.to_owned()) }
}
