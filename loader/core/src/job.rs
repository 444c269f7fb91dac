//! A job: the ranks that train together, their importance table and the plan of their epoch.

use std::collections::HashSet;
use std::sync::Arc;

use shade_formats::control::{REFUSE_RESOURCES, REFUSE_SPEC};
use shade_formats::ring::{PayloadAllocator, PayloadSize};
use shade_formats::{DrawnRow, EpochDraws, SampleId};
use shade_job::{JobSpec, Output, Seats, Subset, Tables, WeightTable};

use crate::action::{Accepted, Refusal, Resumed};
use crate::bad_share::{Faults, RowCounts};
use crate::drawing::{Ahead, Awaited, DrawnPlan, OrderId};
use crate::importance::Importance;
use crate::lists::SharedScores;
use crate::pace::Pace;
use crate::plan::{Known, Lookahead, Part, Plan, Slices, Slot, StandIns, Strata};
use crate::samples::Samples;
use crate::sizes::{Rooms, check_sizes, payload_size};
use crate::use_numbers::UseNumbers;
use crate::validation::Validation;

pub(super) use crate::ids::JobId;

/// One training run: equal specs, one plan, W ranks.
pub(super) struct Job {
    pub(super) id: JobId,
    /// The name that its ranks give.
    pub(super) name: String,
    pub(super) pace: Pace,
    /// Since when it waits for others of its group at an epoch's start.
    pub(super) waits_since_ns: Option<u64>,
    pub(super) spec: JobSpec,
    /// Its output, for orders.
    pub(super) output: Arc<Output>,
    /// Size of each rank's ring.
    payload: PayloadSize,
    /// The blocks of an empty ring.
    pub(super) ring: PayloadAllocator,
    /// Room of rows beyond their own record.
    pub(super) rooms: Rooms,
    pub(super) importance: Importance,
    /// The weights of the samplers `weighted` and `balanced`.
    pub(super) weights: Option<Arc<WeightTable>>,
    /// The strata of the current plan.
    pub(super) strata: Strata,
    /// The strata that the job's ranks ask for. A state may have brought a plan of others.
    pub(super) own_strata: Strata,
    /// The strata of the current plan's seats.
    pub(super) seats: Seats,
    /// The seats of the first plan that is drawn, and the rank that told them first.
    pub(super) told: Option<(u32, Seats)>,
    /// The epoch of the first plan that was drawn: what was told is for that.
    pub(super) told_from: Option<u32>,
    /// What other nodes need to know; `None` if they need nothing.
    pub(super) shared_scores: Option<SharedScores>,
    /// The part of plans that is drawn here.
    pub(super) part: Part,
    /// The current epoch's plan; `None` before the first epoch.
    pub(super) plan: Option<Plan>,
    /// What its ranks wait for.
    pub(super) awaits: Option<Awaited>,
    /// What is prepared of the next epoch.
    pub(super) ahead: Option<Ahead>,
    /// The plan after it, where plans are drawn early.
    pub(super) next_plan: Option<Plan>,
    /// The epoch whose plan was given and not drawn. Its samples are not exchanged.
    pub(super) scripted: Option<u32>,
    /// Where the samples of the known accesses are accessed next, if it was found with the plan.
    pub(super) next_accesses: Option<Arc<Vec<u32>>>,
    /// The uses in sight; `None` while nothing looks ahead.
    pub(super) lookahead: Option<Lookahead>,
    /// How random the plan's order is.
    pub(super) position_entropy: f64,
    /// Which use each position is; made for a group only.
    pub(super) use_numbers: UseNumbers,
    /// The batches of the current plan. Before the first: those of a plan as long as the dataset.
    pub(super) slices: Slices,
    /// Global batches below have their final samples. Those of later ones may still be exchanged.
    pub(super) settled: u32,
    /// A state has the rest of the epoch: from then on nothing is exchanged, so that the rest is
    /// the same wherever it is delivered.
    pub(super) rest_is_saved: bool,
    /// By sample: it comes more than once in the plan. Made when samples are first exchanged; empty
    /// if there is none.
    pub(super) repeated: Option<Vec<bool>>,
    /// Positions of the plan whose sample was exchanged.
    pub(super) exchanged: HashSet<u32>,
    /// What packages brought, if it may stand in for other samples.
    pub(super) stand_ins: Option<StandIns>,
    /// Validation scores, one an epoch, in the order of the epochs' first reports.
    pub(super) validation: Vec<Validation>,
    /// A loss was reported since the current plan began.
    pub(super) has_reports: bool,
    /// A loss was reported before the current plan began, and the plan went by it.
    pub(super) had_reports: bool,
    /// A rank has taken a batch of the current plan, as far as it has told.
    pub(super) is_plan_used: bool,
    /// No loss was reported in the epoch before the current one, although the sampler draws by
    /// losses.
    pub(super) reports_missing: bool,
    /// The user was warned of it.
    pub(super) warned_of_reports: bool,
    /// Faults of the records that the current epoch skipped or substituted.
    pub(super) faults: Faults,
    /// By rank: its rows of the current epoch, since it asked for it last. A rank that is further
    /// on by now, or gone, still counts.
    pub(super) row_counts: Vec<RowCounts>,
    /// By sample: one more than the plan order (batch × ranks + rank) of the latest report of this
    /// epoch that scored it, or 1 if that was with another number of ranks. Reports arrive in any
    /// order. The latest *position* wins, so the table does not depend on timing.
    pub(super) scored_at: Vec<u32>,
    /// The state loaded last.
    pub(super) loaded: Option<Loaded>,
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
    let slices = Slices::new(strata.samples(), spec.batch_size, spec.world_size, spec.tail);
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
    ) -> Result<Self, Refusal> {
        let samples = index.len();
        let output = spec.output().map(Arc::new).map_err(|error| unfit(error.to_string()))?;
        check_sizes(&output, index).map_err(unfit)?;
        let Tables { weights, subset } = tables;
        let (strata, slices) = divided(&spec, subset, index).map_err(unfit)?;
        if let (Some(weights), Some(subset)) = (&weights, strata.subset()) {
            check_weights(weights, subset).map_err(unfit)?;
        }
        let rooms = Rooms::new(spec.on_error, &output, index, strata.subset());
        let (payload, ring) = payload_size(&spec, &output, index, strata.subset(), weights.as_ref(), &rooms)
            .and_then(|payload| Ok((payload, PayloadAllocator::new(payload.bytes)?)))
            .map_err(|error| Refusal { code: REFUSE_RESOURCES, text: error.to_string() })?;
        let shared_scores = SharedScores::of(&spec, samples);
        let row_counts = vec![RowCounts::default(); spec.world_size as usize];
        Ok(Self {
            id,
            name,
            pace: Pace::new(spec.batch_size, spec.world_size),
            waits_since_ns: None,
            output,
            spec,
            payload,
            ring,
            rooms,
            importance: Importance::new(samples),
            weights: weights.map(Arc::new),
            own_strata: strata.clone(),
            strata,
            seats: Seats::IN_ORDER,
            told: None,
            told_from: None,
            shared_scores,
            part: Part::WHOLE,
            plan: None,
            awaits: None,
            ahead: None,
            next_plan: None,
            scripted: None,
            next_accesses: None,
            lookahead: None,
            position_entropy: 1.0,
            use_numbers: UseNumbers::default(),
            slices,
            settled: 0,
            rest_is_saved: false,
            repeated: None,
            exchanged: HashSet::new(),
            stand_ins: None,
            validation: Vec::new(),
            has_reports: false,
            had_reports: false,
            is_plan_used: false,
            reports_missing: false,
            warned_of_reports: false,
            faults: Faults::default(),
            row_counts,
            scored_at: vec![0; samples as usize],
            loaded: None,
        })
    }

    /// Goes on to this plan, or back to before the first epoch.
    pub(super) fn begin(&mut self, drawn: Option<DrawnPlan>) {
        (self.use_numbers, self.position_entropy) = (UseNumbers::default(), 1.0);
        self.next_accesses = None;
        let plan = drawn.map(|DrawnPlan { plan, use_numbers, position_entropy, next_accesses }| {
            (self.use_numbers, self.position_entropy) = (use_numbers, position_entropy);
            self.next_accesses = next_accesses;
            plan
        });
        self.slices = self.slices_of_plan(plan.as_ref());
        if let Some(plan) = &plan {
            self.part.clone_from(&plan.part);
        }
        self.plan = plan;
        self.ahead = None;
        self.waits_since_ns = None;
        self.lookahead = None;
        self.settled = 0;
        self.rest_is_saved = false;
        self.repeated = None;
        self.exchanged.clear();
        self.stand_ins = None;
        self.faults = Faults::default();
        self.row_counts.fill(RowCounts::default());
    }

    /// The batches of a plan from its first position on, or of one as long as the dataset.
    pub(super) fn slices_of_plan(&self, plan: Option<&Plan>) -> Slices {
        let samples = self.strata.samples();
        let len = plan.map_or(samples, |plan| plan.len_of_all(samples));
        self.slices.of_len(len).of_strata(self.strata.count())
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

    /// Whether what its ranks say waits until something is done aside.
    pub(super) fn is_postponed(&self) -> bool {
        self.awaits.is_some()
    }

    /// The part of a plan that belongs to these ranks, which are all at this daemon. Where strata
    /// are not the ranks' own it is the whole plan: each node draws all of it.
    pub(super) fn part_of(&self, ranks: Vec<u32>) -> Part {
        let world_size = self.spec.world_size;
        if self.strata.count().is_multiple_of(world_size) { Part::of(ranks, world_size) } else { Part::WHOLE }
    }

    /// Whether the sample may be in a plan of this daemon.
    pub(super) fn has(&self, sample: SampleId) -> bool {
        if !self.strata.has(sample) {
            return false;
        }
        self.part.is_whole() || self.part.has(self.seat_of(sample) % self.spec.world_size)
    }

    /// Whether the current plan has positions of ranks on other nodes.
    pub(super) fn plans_for_others(&self) -> bool {
        let is_whole = self.plan.as_ref().is_some_and(|plan| plan.part.is_whole());
        is_whole && self.spec.local_ranks() < self.spec.world_size
    }

    /// The ranks that have the plan's places by turns, if each has its own strata; 1 if a sample
    /// may be at any rank.
    pub(super) fn ranks_apart(&self) -> usize {
        let (strata, world_size) = (self.strata.count(), self.spec.world_size);
        if strata == 1 || !strata.is_multiple_of(world_size) {
            return 1;
        }
        let part = self.plan.as_ref().map_or(&self.part, |plan| &plan.part);
        part.ranks().map_or(world_size as usize, |(ranks, _)| ranks.len())
    }

    /// Number of samples that may be in a plan of this daemon.
    pub(super) fn own_samples(&self) -> u32 {
        self.part.places_before(self.strata.samples())
    }

    /// Why the rank cannot have the rest of the current epoch, if it asks for that: the plan is of
    /// other ranks.
    pub(super) fn why_not_here(&self, epoch: u32, rank: u32) -> Option<String> {
        let plan = self.plan.as_ref().filter(|plan| plan.epoch == epoch && !plan.part.has(rank))?;
        let (ranks, world_size) = plan.part.ranks()?;
        Some(format!(
            "epoch {epoch} was drawn here for ranks {ranks:?} of {world_size}, and rank {rank} is on another node \
             by it: begin the next epoch, or start all ranks where they were"
        ))
    }

    /// The place at which global batch `number` begins, in this daemon's part of the plan.
    pub(super) fn start(&self, number: u32) -> u32 {
        let part = self.plan.as_ref().map_or(&self.part, |plan| &plan.part);
        part.places_before(self.slices.start(number))
    }

    /// Whether the plan uses the sample in a batch that may still be exchanged.
    pub(super) fn will_use(&self, sample: SampleId) -> bool {
        let from = self.start(self.settled);
        self.stand_ins.as_ref().is_some_and(|all| all.is_used_from(sample, from))
    }

    /// The key of an epoch's random numbers: a group's jobs have the same.
    pub(super) fn draws(&self, epoch: u32) -> EpochDraws {
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
        let most = self.slices.of_len(self.strata.samples());
        Accepted { batches_per_epoch: most.batches_per_epoch(), payload: self.payload }
    }

    /// The known accesses: those of the plan and of the next one.
    pub(super) fn known(&self) -> Known<'_> {
        fn ids(plan: &Option<Plan>) -> &[SampleId] {
            plan.as_ref().map_or(&[], |plan| &plan.ids)
        }
        Known { plan: ids(&self.plan), next: ids(&self.next_plan) }
    }

    /// The batches of `epoch`. For an epoch that is not the current one they are the most that
    /// there may be.
    pub(super) fn slices_of(&self, epoch: u32) -> Slices {
        if self.epoch() == Some(epoch) { self.slices } else { self.slices.of_len(self.strata.samples()) }
    }

    /// The current epoch's number.
    pub(super) fn epoch(&self) -> Option<u32> {
        self.plan.as_ref().map(|plan| plan.epoch)
    }
}

/// Refuses a table of weights by which a subset could not be drawn.
fn check_weights(table: &WeightTable, subset: &Subset) -> Result<(), String> {
    let has_weight = |id: &u32| table.weights().get(*id as usize).is_some_and(|&weight| weight > 0);
    let text = "no sample of indices has a weight above 0: give one of them a weight";
    if subset.ids().iter().any(has_weight) { Ok(()) } else { Err(text.to_owned()) }
}
