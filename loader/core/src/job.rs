//! A job: the ranks that train together, their importance table and the plan of their epoch.

use std::collections::HashSet;

use shade_formats::SampleId;
use shade_formats::control::{JobSpec, REFUSE_RESOURCES, REFUSE_SPEC};
use shade_formats::ring::{PayloadAllocator, PayloadSize};

use crate::action::{Accepted, Refusal};
use crate::bad_share::{Faults, Given};
use crate::counts::Counts;
use crate::importance::Importance;
use crate::plan::{Known, Lookahead, Plan, Slices, position_entropy};
use crate::report::Validation;
use crate::samples::Samples;
use crate::sizes::{Rooms, payload_size};

/// One training run: equal specs, one plan, W ranks.
pub(super) struct Job {
    pub(super) spec: JobSpec,
    /// What each rank's ring has room for.
    payload: PayloadSize,
    /// Its blocks, none of them taken.
    pub(super) ring: PayloadAllocator,
    /// What rows have room for beyond their own record.
    pub(super) rooms: Rooms,
    pub(super) importance: Importance,
    /// The current epoch's plan; `None` before the first epoch.
    pub(super) plan: Option<Plan>,
    /// The plan after it, where plans are drawn early.
    pub(super) next_plan: Option<Plan>,
    /// The epoch whose plan was given and not drawn. Its samples do not change places.
    pub(super) scripted: Option<u32>,
    /// Which of its uses are in sight; `None` where nobody looks ahead.
    pub(super) outlook: Option<Lookahead>,
    /// How random the plan's order is.
    pub(super) position_entropy: f64,
    /// The batches of the current plan; of one as long as the dataset before there is one.
    pub(super) slices: Slices,
    /// Global batches below have their samples for good; later ones may still change places with them.
    pub(super) settled: u32,
    /// Positions of the plan whose sample came there in exchange.
    pub(super) exchanged: HashSet<u32>,
    /// Validation scores, one an epoch, in the order of the epochs' first reports.
    pub(super) validation: Vec<Validation>,
    /// A loss was reported since the current plan began.
    pub(super) has_reports: bool,
    /// No loss was reported in the epoch before the current one, although the sampler draws by losses.
    pub(super) reports_missing: bool,
    /// The user was told so.
    pub(super) warned_of_reports: bool,
    /// What was wrong with the records that the current epoch did without.
    pub(super) faults: Faults,
    /// By rank: how much it was given of the current epoch, since it asked for it last. A rank that
    /// is further on by now, or gone, counts on.
    pub(super) given: Vec<Given>,
    /// By sample: one more than the plan order (batch × ranks + rank) of the latest report of this epoch that scored it.
    /// Reports arrive in any order; the latest *position* wins, so the table does not depend on timing.
    pub(super) scored_at: Vec<u32>,
    pub(super) epoch_counts: Counts,
    pub(super) total: Counts,
    /// The state last loaded, and the ranks that have handed it in: every rank loads the same file, once.
    pub(super) loaded: Option<(u64, HashSet<u32>)>,
}

impl Job {
    pub(super) fn new(spec: JobSpec, index: &dyn Samples) -> Result<Self, Refusal> {
        let samples = index.len();
        let slices = Slices::new(samples, spec.batch_size, spec.world_size, spec.tail)
            .map_err(|error| Refusal { code: REFUSE_SPEC, text: error.to_string() })?;
        let rooms = Rooms::new(&spec, index);
        let (payload, ring) = payload_size(&spec, index, &rooms)
            .and_then(|payload| Ok((payload, PayloadAllocator::new(payload.bytes)?)))
            .map_err(|error| Refusal { code: REFUSE_RESOURCES, text: error.to_string() })?;
        Ok(Self {
            spec,
            payload,
            ring,
            rooms,
            importance: Importance::new(samples),
            plan: None,
            next_plan: None,
            scripted: None,
            outlook: None,
            position_entropy: 1.0,
            slices,
            settled: 0,
            exchanged: HashSet::new(),
            validation: Vec::new(),
            has_reports: false,
            reports_missing: false,
            warned_of_reports: false,
            faults: Faults::default(),
            given: vec![Given::default(); spec.world_size as usize],
            scored_at: vec![0; samples as usize],
            epoch_counts: Counts::default(),
            total: Counts::default(),
            loaded: None,
        })
    }

    /// Goes on to `plan`, or back to before the first epoch.
    pub(super) fn begin(&mut self, plan: Option<Plan>) {
        let samples = self.importance.len();
        let ids = plan.as_ref().map(|plan| &plan.ids);
        self.position_entropy = ids.map_or(1.0, |ids| position_entropy(ids, samples));
        self.slices =
            self.slices.of_len(ids.map_or(samples, |ids| u32::try_from(ids.len()).unwrap_or(u32::MAX)));
        self.plan = plan;
        self.outlook = None;
        self.settled = 0;
        self.exchanged.clear();
        self.faults = Faults::default();
        self.given.fill(Given::default());
        self.epoch_counts = Counts::default();
    }

    /// What a rank is told when it is accepted.
    pub(super) fn accepted(&self) -> Accepted {
        let most = self.slices.of_len(self.importance.len());
        Accepted { batches_per_epoch: most.batches_per_epoch(), payload: self.payload }
    }

    /// The accesses that are known, of the plan and the next.
    pub(super) fn known(&self) -> Known<'_> {
        fn ids(plan: &Option<Plan>) -> &[SampleId] {
            plan.as_ref().map_or(&[], |plan| &plan.ids)
        }
        Known { plan: ids(&self.plan), next: ids(&self.next_plan) }
    }

    /// How many batches each rank has in `epoch`: of an epoch that is not the current one, the most it can have.
    pub(super) fn batches_in(&self, epoch: u32) -> u32 {
        let slices =
            if self.epoch() == Some(epoch) { self.slices } else { self.slices.of_len(self.importance.len()) };
        slices.batches_per_epoch()
    }

    /// The current epoch's number.
    pub(super) fn epoch(&self) -> Option<u32> {
        self.plan.as_ref().map(|plan| plan.epoch)
    }

    /// Applies a change to the epoch's and the job's counts alike.
    pub(super) fn count(&mut self, change: impl Fn(&mut Counts)) {
        change(&mut self.epoch_counts);
        change(&mut self.total);
    }
}
