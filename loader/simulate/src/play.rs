//! Plays a whole workload once, through the core: a training whose plans it draws, or the accesses
//! of a script.
//!
//! With a store the ring holds [`RING_BATCHES`], as in the daemon, and losses are reported when
//! their batch is computed. Without one nothing takes time, and one batch ends before the next is
//! opened. So its hits are those of the policy where nothing is late.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use shade_core::cache::Cache;
use shade_core::driver::Driver;
use shade_core::plan::{Part, Plan, PlanSummary};
use shade_core::{Core, CoreConfig, Event, GAP_BYTES_MAX, PREFETCHES_MAX, RING_BATCHES, SessionId};
use shade_formats::SampleId;
use shade_formats::limits::PAYLOAD_ALIGN_BYTES;
use shade_formats::ring::{BatchLayout, Layout};
use shade_job::{
    DECODED_BYTES, DaemonSpec, Decode, ImageSpec, JobSpec, OnError, Order, PlanSpec, Policy, Sampler, Tail,
    WeightTable,
};

use crate::error::SimulateError;
use crate::keeper::Keeper;
use crate::losses::{LossSource, Losses};
use crate::outcome::{Outcome, Tally};
use crate::recalled::Recalled;
use crate::recording::Recording;
use crate::script::{Epoch, Repeats, Script};
use crate::store::{NoMemory, Service, SizesOnly, VirtualStore};
use crate::system::System;
use crate::trainer::Trainer;
use crate::watch::Watch;
use crate::workload::{Accesses, Workload};
use crate::world::{Answers, VirtualWorld};

/// Least number of blocks in a ring (`sizes` of `shade-core`).
const RING_BLOCKS_MIN: u64 = 3;

/// Plays the `nth` training of the workload (from 0; a trace has only the first) with `system` at
/// `capacity`.
///
/// # Errors
/// The core refuses the workload, or Ctrl-C.
pub(super) fn play(
    workload: &Workload,
    system: &System,
    capacity: u64,
    nth: u32,
    watch: &Watch,
) -> Result<Outcome, SimulateError> {
    let nth = u64::from(nth);
    let service = workload.service.map(|mut service| {
        service.store.seed = service.store.seed.wrapping_add(nth);
        service
    });
    let &Workload { ref dataset, lookahead, coalesces, package_bytes, skip_epochs, batch_size, .. } =
        workload;
    let setup = Setup {
        dataset,
        keeper: system.keeper,
        capacity,
        lookahead: system.keeper.lookahead(lookahead),
        plan: PlanSpec { sampler: Sampler::Uniform, order: Order::Shuffled, ..PlanSpec::default() },
        weights: None,
        batch_size,
        ring: if service.is_some() { RING_BATCHES } else { 1 },
        ahead: if service.is_some() { RING_BATCHES } else { 1 },
        recalls: false,
        service,
        skip_epochs,
        coalesces,
        package_bytes,
    };
    match &workload.accesses {
        Accesses::Training { plan, weights, epochs, losses, .. } => {
            let plan = system.plan(plan);
            let plan = PlanSpec { seed: plan.seed.wrapping_add(nth), ..plan };
            let training = Setup { plan, weights: weights.as_ref(), ..setup };
            if matches!(system.keeper, Keeper::Min { .. }) {
                // Its plans do not depend on the cache: they are drawn first, all of them.
                let uncached = Keeper::Policy(Policy::Static);
                let mut dry =
                    Setup { keeper: uncached, capacity: 0, service: None, ring: 1, ahead: 1, ..training };
                dry.skip_epochs = 0;
                let (_, mut script) = Run::new(dry, watch)?.train(*epochs, losses, true)?;
                // Batches span the ends of epochs here. None may hold more than an epoch.
                let shortest = script.epochs.iter().map(|epoch| epoch.accesses.len()).min().unwrap_or(1);
                let batch_size = batch_size.min(u32::try_from(shortest).unwrap_or(batch_size)).max(1);
                let mut ids = std::mem::take(&mut script.accesses);
                let all = |_| std::mem::take(&mut ids);
                Run::new(Setup { batch_size, ..setup }, watch)?.follow(&script, true, all)
            } else {
                Ok(Run::new(training, watch)?.train(*epochs, losses, false)?.0)
            }
        }
        Accesses::List(script) => {
            let epochs_in_it = script.accesses.len() as f64 / f64::from(dataset.samples.max(1));
            // Nothing comes between two accesses, unless there is a store.
            let batch_size = if setup.service.is_some() { batch_size } else { 1 };
            let setup = Setup { lookahead: setup.lookahead / epochs_in_it, batch_size, ..setup };
            Run::new(setup, watch)?.follow(script, true, |range| script.ids(range))
        }
        Accesses::Recording(recording) => {
            let &Recording { batch_size, ring, ahead, ref script, .. } = &**recording;
            let setup = Setup { batch_size, ring, ahead, recalls: true, ..setup };
            let to_the_end = setup.lookahead == f64::INFINITY;
            Run::new(setup, watch)?.follow(script, to_the_end, |range| script.ids(range))
        }
    }
}

/// Plays the accesses of a script, each epoch of which is known when it begins.
///
/// # Errors
/// The core refuses the workload, or Ctrl-C.
pub(super) fn follow(setup: Setup<'_>, script: &Script, watch: &Watch) -> Result<Outcome, SimulateError> {
    Run::new(setup, watch)?.follow(script, false, |range| script.ids(range))
}

/// The parameters of a simulation.
#[derive(Clone, Copy)]
pub(super) struct Setup<'a> {
    pub(super) dataset: &'a Arc<SizesOnly>,
    pub(super) keeper: Keeper,
    /// Bytes; samples where sizes are not known.
    pub(super) capacity: u64,
    /// Sight of `Policy::Lookahead`, in plans.
    pub(super) lookahead: f64,
    pub(super) plan: PlanSpec,
    /// The table of the sampler `weighted`.
    pub(super) weights: Option<&'a WeightTable>,
    pub(super) batch_size: u32,
    /// Batches that the ring has room for; at least 3 are used.
    pub(super) ring: u64,
    /// Batches that are open or in hand at a time. The trainer keeps the others and never releases
    /// them.
    pub(super) ahead: u64,
    /// Without a store reads are answered as in the recording.
    pub(super) recalls: bool,
    pub(super) service: Option<Service>,
    /// Epochs before this one are not counted.
    pub(super) skip_epochs: u32,
    /// Neighbours are read together.
    pub(super) coalesces: bool,
    /// Bytes of a shard that a miss brings along.
    pub(super) package_bytes: Option<u32>,
}

impl Setup<'_> {
    pub(super) fn core(&self) -> Core<NoMemory> {
        self.core_with(self.keeper.cache(self.capacity, self.dataset.samples))
    }

    /// A core with this cache.
    pub(super) fn core_with(&self, cache: Cache<()>) -> Core<NoMemory> {
        let sizes = &self.dataset.sizes;
        let slots = self.service.and_then(|service| service.store.slots);
        let looks_ahead = self.keeper == Keeper::Policy(Policy::Lookahead);
        let config = CoreConfig {
            cache_bytes: self.capacity,
            policy: self.keeper.policy(),
            lookahead: self.lookahead,
            // Half of them wait for their turn.
            reads_max: slots.unwrap_or(u32::MAX).saturating_mul(2),
            gap_bytes_max: if self.coalesces { GAP_BYTES_MAX } else { 0 },
            window_bytes: 0,
            package_bytes: DaemonSpec::package_bytes_of(self.package_bytes, self.keeper.policy()),
            // Without a store there is no time for it.
            prefetches_max: if self.service.is_some() && looks_ahead { PREFETCHES_MAX } else { 0 },
            // A training ends with its last epoch, and a script may not go on with what is drawn.
            opens_ahead: false,
            hedge: false,
            block_bytes: sizes.block_bytes(),
            orders_max: usize::MAX,
            decoded_bytes: DECODED_ROWS * row().bytes(),
        };
        Core::with_cache(Arc::clone(self.dataset), NoMemory, cache, config)
    }

    /// A job of one rank. Its rows are not filled and have one length.
    ///
    /// # Errors
    /// No daemon can serve it.
    pub(super) fn job(&self) -> Result<JobSpec, SimulateError> {
        let layout = BatchLayout::of_views(Layout::U8Nchw, self.batch_size, &[row().shape()]);
        let block = layout.map_err(|error| SimulateError::Usage(error.to_string()))?.total;
        let job = JobSpec {
            plan: self.plan,
            batch_size: self.batch_size,
            tail: Tail::Even,
            decode: Decode::cover(1, 1),
            on_error: OnError::Raise,
            bad_max: 0.0,
            ring_bytes: self.blocks() * block.next_multiple_of(PAYLOAD_ALIGN_BYTES),
            ..JobSpec::default()
        };
        // As the daemon does when a rank attaches.
        job.validate()?;
        Ok(job)
    }

    fn blocks(&self) -> u64 {
        self.ring.max(self.ahead).max(RING_BLOCKS_MIN)
    }
}
/// Rows in the window of those that a group shares, as if they had 224 x 224 pixels.
const DECODED_ROWS: u64 = DECODED_BYTES / (3 * 224 * 224);
/// What a row is: as small as can be.
fn row() -> ImageSpec {
    ImageSpec::cover(1, 1)
}

/// Name of the job that is played.
const JOB: &str = "simulated";
/// The session of its observer.
const OBSERVER: SessionId = SessionId::MAX;

/// A simulation under way.
struct Run<'a> {
    setup: Setup<'a>,
    driver: Driver<NoMemory, VirtualWorld<'a>>,
    job: JobSpec,
    session: SessionId,
    tally: Tally,
    watch: &'a Watch,
}

impl<'a> Run<'a> {
    fn new(setup: Setup<'a>, watch: &'a Watch) -> Result<Self, SimulateError> {
        let compute = setup.service.map_or(Duration::ZERO, |service| service.compute);
        // The batches that it keeps leave room for `ahead` others.
        let keeps = usize::try_from(setup.blocks() - setup.ahead.clamp(1, setup.blocks())).unwrap_or(0);
        let answers = match setup.service {
            Some(service) => Answers::Store(VirtualStore::new(service.store)),
            None if setup.recalls => Answers::Recalled(Recalled::default()),
            None => Answers::AtOnce,
        };
        let world = VirtualWorld::new(answers, Trainer::new(compute, keeps));
        let job = setup.job()?;
        let mut driver = Driver::new(setup.core(), world);
        // The trace tells which batch has which reads.
        if setup.recalls && setup.service.is_none() {
            driver.step(Event::Observe { session: OBSERVER, job: Some(JOB.to_owned()) });
        }
        driver.attach(0, JOB, 0, &job, setup.weights.cloned());
        Ok(Self { setup, driver, job, session: 0, tally: Tally::default(), watch })
    }

    /// Plays epochs whose plans the core draws. Returns the accesses, too, if they are `wanted`.
    fn train(
        mut self,
        epochs: u32,
        losses: &'a LossSource,
        wanted: bool,
    ) -> Result<(Outcome, Script), SimulateError> {
        let (seed, samples) = (self.setup.plan.seed, self.setup.dataset.samples);
        let mut script = Script::default();
        let trainer = &mut self.driver.world.trainer;
        trainer.losses = Losses::new(losses, seed, samples);
        trainer.seen = wanted.then(Vec::new);
        for epoch in 0..epochs {
            self.driver.world.trainer.losses.begin_epoch(epoch);
            let from = self.seen();
            self.epoch(epoch, (epoch == self.setup.skip_epochs).then_some(0))?;
            let stats = self.driver.core.stats(self.session).epoch;
            let repeats = Repeats { distinct: stats.plan.distinct, most: stats.plan.repeat_max };
            self.tally.epoch(repeats);
            self.tally.drawn(stats.position_entropy);
            script.epochs.push(Epoch { accesses: from..self.seen(), repeats, ..Epoch::default() });
        }
        script.accesses = self.driver.world.trainer.seen.take().unwrap_or_default();
        Ok((self.outcome(), script))
    }

    /// Number of samples seen so far, if they are wanted.
    fn seen(&self) -> usize {
        self.driver.world.trainer.seen.as_ref().map_or(0, Vec::len)
    }

    /// Plays the accesses of a script, whose samples `ids` gives. Each epoch is known when it
    /// begins; `to_the_end`: all epochs of a training are, which makes `lookahead` MIN.
    fn follow(
        mut self,
        script: &'a Script,
        to_the_end: bool,
        mut ids: impl FnMut(Range<usize>) -> Vec<SampleId>,
    ) -> Result<Outcome, SimulateError> {
        let Script { losses, back, epochs, .. } = script;
        let skipped = self.setup.skip_epochs as usize;
        let mut first = 0;
        while let Some(epoch) = epochs.get(first) {
            let rest = epochs.get(first + 1..).unwrap_or_default();
            let more = if to_the_end { rest.iter().take_while(|epoch| !epoch.begins_job).count() } else { 0 };
            if epoch.begins_job && first > 0 {
                self.begin_job();
            }
            let group = first..first + 1 + more;
            let from = epoch.accesses.start;
            let to = epochs.get(group.end - 1).map_or(from, |last| last.accesses.end);
            let counts_from = epochs.get(skipped).filter(|_| group.contains(&skipped));
            let counts_from = counts_from.map(|epoch| (epoch.accesses.start - from) as u64);
            let losses = losses.get(from..to).unwrap_or_default();
            self.driver.world.trainer.losses = Losses::Recorded(losses, self.setup.batch_size);
            if let Answers::Recalled(recalled) = &mut self.driver.world.answers {
                recalled.begin(back.get(epoch.first_batch..).unwrap_or_default(), epoch.first_batch);
            }
            let number = u32::try_from(first).unwrap_or(u32::MAX);
            let (ids, summary) = (ids(from..to), PlanSummary::default());
            let plan = Plan { epoch: number, part: Part::WHOLE, ids, weights: Vec::new(), summary };
            self.driver.step(Event::Plan(self.session, Box::new(plan)));
            self.epoch(number, counts_from)?;
            for epoch in group.clone().filter(|at| *at >= skipped).filter_map(|at| epochs.get(at)) {
                self.tally.epoch(epoch.repeats);
            }
            first = group.end;
        }
        Ok(self.outcome())
    }

    /// Plays one plan to its end. With `counts_from` nothing before that many of its samples
    /// counts.
    fn epoch(&mut self, epoch: u32, counts_from: Option<u64>) -> Result<(), SimulateError> {
        let begun = self.driver.world.trainer.taken;
        let mut counts_from = counts_from.map(|samples| begun + samples);
        let mut told = begun;
        self.count_from(&mut counts_from);
        self.driver.start(self.session, epoch, 0);
        while self.driver.tick() {
            self.count_from(&mut counts_from);
            let taken = self.driver.world.trainer.taken;
            self.watch.go_on(usize::try_from(taken - told).unwrap_or(usize::MAX))?;
            told = taken;
        }
        self.watch.go_on(0)?;
        match self.driver.world.trainer.refused.take() {
            Some(text) => Err(SimulateError::Usage(text)),
            None => Ok(()),
        }
    }

    /// Leaves out all that was before, once this many samples were taken.
    fn count_from(&mut self, samples: &mut Option<u64>) {
        let trainer = &self.driver.world.trainer;
        if samples.is_some_and(|samples| trainer.taken >= samples) {
            *samples = None;
            self.tally.skip(&self.driver.core.stats(self.session), trainer.stall);
        }
    }

    /// Begins another training over the same cache.
    fn begin_job(&mut self) {
        self.tally.end_job(&self.driver.core.stats(self.session));
        self.driver.detach(self.session);
        self.driver.world.trainer.leave();
        self.session += 1;
        self.driver.attach(self.session, JOB, 0, &self.job, None);
    }

    fn outcome(&self) -> Outcome {
        let stall = self.setup.service.map(|_| self.driver.world.trainer.stall);
        self.tally.outcome(&self.driver.core.stats(self.session), stall)
    }
}

#[cfg(test)]
mod tests {
    use shade_core::Counts;

    use super::*;
    use crate::sizes::Sizes;

    const MS: Duration = Duration::from_millis(1);
    const BATCH: u32 = 10;

    fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<SampleId> {
        ids.into_iter().map(SampleId).collect()
    }

    /// Epochs of these accesses, each known when it begins.
    fn epochs(epochs: &[Vec<SampleId>]) -> Script {
        let mut script = Script::default();
        for epoch in epochs {
            let from = script.accesses.len();
            script.accesses.extend_from_slice(epoch);
            let repeats = Repeats { distinct: 2, most: u32::try_from(from).unwrap() };
            let accesses = from..script.accesses.len();
            script.epochs.push(Epoch { accesses, repeats, ..Epoch::default() });
        }
        script
    }

    fn setup(dataset: &Arc<SizesOnly>, policy: Policy, capacity: u64) -> Setup<'_> {
        Setup {
            dataset,
            keeper: Keeper::Policy(policy),
            capacity,
            lookahead: 1.0,
            plan: PlanSpec { sampler: Sampler::Uniform, ..PlanSpec::default() },
            weights: None,
            batch_size: 1,
            ring: 1,
            ahead: 1,
            recalls: false,
            service: None,
            skip_epochs: 0,
            coalesces: false,
            package_bytes: Some(0),
        }
    }

    fn played(setup: Setup<'_>, script: &Script, to_the_end: bool) -> Outcome {
        let watch = Watch::unseen();
        let run = Run::new(setup, &watch).unwrap();
        run.follow(script, to_the_end, |range| script.ids(range)).unwrap()
    }

    /// Accesses, hits, evictions, bypasses and bytes read.
    fn counted(outcome: &Outcome) -> [u64; 5] {
        let of: [fn(&Counts) -> u64; 5] =
            [|c| c.accesses, |c| c.hits, |c| c.evicted, |c| c.bypassed, |c| c.bytes_read];
        of.map(|of| outcome.count(of))
    }

    fn counts(sizes: Sizes, policy: Policy, capacity: u64, accesses: &[u32]) -> [u64; 5] {
        let dataset =
            Arc::new(SizesOnly { samples: 4, sizes, labels: Vec::new(), places: Vec::new(), strata: None });
        let script = epochs(&[ids(accesses.iter().copied())]);
        counted(&played(setup(&dataset, policy, capacity), &script, false))
    }

    #[test]
    fn lru_evicts_and_everything_is_counted() {
        // 0 and 1 come in, 0 hits, 2 displaces 1, 1 displaces 0.
        let counts = counts(Sizes::Unit, Policy::Lru, 2, &[0, 1, 0, 2, 1]);
        assert_eq!(counts, [5, 1, 2, 0, 4]);
    }

    #[test]
    fn app_bypasses_what_is_worth_less_and_bytes_are_those_read() {
        // The first of several samples without a score is worth most. Sample 3 takes two blocks,
        // more than there are.
        let sizes = Sizes::Each { lens: vec![5, 7, 6, 9], block_bytes: 8 };
        let counts = counts(sizes, Policy::App, 8, &[0, 1, 3]);
        assert_eq!(counts, [3, 0, 0, 2, 21]);
    }

    #[test]
    fn lookahead_keeps_what_is_used_soonest() {
        // 0 is kept over 1, which comes later; then 1 displaces 0, which is over, and is kept over
        // 2 and 3.
        let [_, hits, _, bypasses, _] = counts(Sizes::Unit, Policy::Lookahead, 1, &[0, 1, 0, 1, 2, 3, 1]);
        assert_eq!((hits, bypasses), (2, 3));
    }

    #[test]
    fn skipped_epochs_are_not_counted_but_seen() {
        let dataset = Arc::new(SizesOnly {
            samples: 4,
            sizes: Sizes::Unit,
            labels: Vec::new(),
            places: Vec::new(),
            strata: None,
        });
        let setup = Setup { skip_epochs: 1, ..setup(&dataset, Policy::Lru, 4) };
        let script = epochs(&[ids([0, 1, 2]), ids([0, 1]), ids([3, 0])]);
        for to_the_end in [false, true] {
            let outcome = played(setup, &script, to_the_end);
            assert_eq!(counted(&outcome), [4, 3, 0, 0, 1], "{to_the_end}");
            assert_eq!(
                outcome.count(|counts| counts.absorbing_epochs),
                u64::from(!to_the_end),
                "0 and 1 were there, and 3 was not"
            );
            assert!((outcome.ever_seen_share - 1.0).abs() < 1e-12);
            assert!((outcome.distinct_share() - 1.0).abs() < 1e-12);
            assert_eq!(outcome.repeat_max, 5);
        }
    }

    fn service(store: &str) -> Option<Service> {
        Some(Service { store: store.parse().unwrap(), compute: MS })
    }

    /// The stall in batches of 10 samples, 1 ms of compute each. `misses` of them are new and read;
    /// the others are sample 0, which the first batch reads.
    fn stall(store: &str, batches: u32, misses: u32, bytes: u32) -> Duration {
        let new = |batch| (0..misses).map(move |at| 1 + batch * misses + at);
        let of = |batch| new(batch).chain(std::iter::repeat_n(0, (BATCH - misses) as usize));
        let samples = 1 + batches * misses;
        let dataset = Arc::new(SizesOnly {
            samples,
            sizes: Sizes::Same(bytes),
            labels: Vec::new(),
            places: Vec::new(),
            strata: None,
        });
        let setup = Setup {
            batch_size: BATCH,
            ahead: RING_BATCHES,
            service: service(store),
            ..setup(&dataset, Policy::Lru, dataset.sizes.total(samples))
        };
        let script = epochs(&[ids((0..batches).flat_map(of))]);
        played(setup, &script, false).stall.unwrap()
    }

    fn assert_near(got: Duration, expected_ms: f64, tolerance: f64) {
        let got = got.as_secs_f64() * 1e3;
        assert!((got - expected_ms).abs() <= tolerance * expected_ms, "{got} instead of {expected_ms}");
    }

    #[test]
    fn one_read_is_all_that_is_waited_for() {
        assert_eq!(stall("latency=1s,depth=1", 1000, 0, 1), 1000 * MS);
    }

    #[test]
    fn a_store_with_too_few_slots_costs_what_it_is_slower() {
        // 10 reads of 4 ms, 2 at a time: 20 ms a batch, of which 10 are hidden behind compute.
        assert_near(stall("latency=4ms,depth=2", 1000, 10, 1), 1000.0 * (20.0 - 10.0), 0.01);
        // Half of them: 10 ms a batch, all hidden except the first batch's.
        assert!(stall("latency=4ms,depth=2", 1000, 5, 1) <= 16 * MS);
    }

    #[test]
    fn a_link_that_is_too_narrow_costs_what_it_is_slower() {
        // 10 reads of 3,000 bytes at 1 MB/s: 30 ms a batch.
        assert_near(stall("latency=0ms,bandwidth=1MB", 1000, 10, 3000), 1000.0 * (30.0 - 10.0), 0.01);
    }

    #[test]
    fn the_ring_hides_latency_as_long_as_it_is_deep() {
        // Batches are asked for 8 x 10 ms ahead of the end of their compute, 70 ms ahead of its
        // beginning.
        assert_eq!(stall("latency=70ms", 1000, 10, 1), 70 * MS);
        // 100 ms: every 8 batches take 100 + 10 ms instead of 80.
        assert_near(stall("latency=100ms", 8000, 10, 1), 1000.0 * 30.0, 0.01);
    }

    #[test]
    fn an_epoch_begins_with_an_empty_ring() {
        let dataset = Arc::new(SizesOnly {
            samples: 1000,
            sizes: Sizes::Unit,
            labels: Vec::new(),
            places: Vec::new(),
            strata: None,
        });
        let setup = Setup {
            batch_size: BATCH,
            ahead: RING_BATCHES,
            service: service("latency=50ms"),
            ..setup(&dataset, Policy::Lru, 1000)
        };
        let epoch = |epoch: u32| {
            let first = std::iter::repeat_n(0, BATCH as usize);
            ids(first.chain((1..20).flat_map(move |batch| std::iter::repeat_n(epoch * 20 + batch, 10))))
        };
        let outcome = played(setup, &epochs(&[epoch(0), epoch(1), epoch(2)]), false);
        // Sample 0 is read once. The second batch of each other epoch is asked for when that
        // begins, of which the first computes 10 ms away.
        assert_eq!(outcome.stall, Some((50 + 2 * 40) * MS));
    }

    #[test]
    fn prefetches_take_the_time_in_which_the_store_is_idle() {
        let dataset = Arc::new(SizesOnly {
            samples: 400,
            sizes: Sizes::Unit,
            labels: Vec::new(),
            places: Vec::new(),
            strata: None,
        });
        // Four of 4 ms at a time while 10 ms are computed: an idle store half of the time, as in
        // each batch five hit.
        let accesses = ids((0..80).flat_map(|batch| (0..10).map(move |at| (batch * 5 + at / 2) % 400)));
        let played = |policy| {
            let setup = Setup {
                batch_size: BATCH,
                ahead: RING_BATCHES,
                service: service("latency=4ms,depth=4"),
                ..setup(&dataset, policy, 400)
            };
            let outcome = played(setup, &epochs(std::slice::from_ref(&accesses)), false);
            (outcome.count(|counts| counts.prefetched), counted(&outcome))
        };
        let (lru, lookahead) = (played(Policy::Lru), played(Policy::Lookahead));
        let ((none, [.., lru_bytes]), (prefetched, [_, hits, .., bytes])) = (lru, lookahead);
        assert_eq!((none, lru_bytes, bytes), (0, 400, 400));
        assert!(prefetched > 100 && hits == 400, "{lookahead:?}");
    }

    #[test]
    fn latencies_that_vary_come_from_the_stores_seed() {
        let stall = |store| stall(store, 100, 10, 1);
        let varied = stall("latency=lognormal:4ms:1,depth=2");
        assert_eq!(varied, stall("latency=lognormal:4ms:1,depth=2"));
        assert_ne!(varied, stall("latency=lognormal:4ms:1,depth=2,seed=1"));
        // The mean of a lognormal is exp(sigma²/2) of its median.
        assert_near(varied, 100.0 * (20.0 * 0.5f64.exp() - 10.0), 0.1);
    }
}
