//! Accesses through the cache and the table that the daemon has, a batch at a time, and what is counted of it.
//!
//! A miss is offered to the cache at once: a read takes no time that another access could fall into. Of a recorded
//! training it is known when reads were back, and there they take so long. Nothing is allocated for an access.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use shade_formats::SampleId;
use shade_formats::control::Policy;

use super::sizes::Sizes;
use super::stall::{Pipeline, Service};
use super::system::Keeper;
use super::trace::Repeats;
use crate::cache::{Admission, Cache};
use crate::importance::{Importance, Ranked};
use crate::plan::{Known, Lookahead, Plan, high_importance, in_sight, position_entropy};

/// Counts since the first epoch that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Samples that were asked for.
    pub(super) accesses: u64,
    /// Those that were in the cache.
    pub(super) hits: u64,
    /// Those that were in the cache because they had been prefetched: the first use of each.
    pub(super) prefetched: u64,
    /// Those that were in the cache and came in exchange for one that was not (iCACHE); they are no hits.
    pub(super) exchanged: u64,
    /// Epochs whose plan had only residents, though there are other samples.
    pub(super) absorbing_epochs: u64,
    /// Samples that left the cache for others.
    pub(super) evictions: u64,
    /// Misses that the cache did not take.
    pub(super) bypasses: u64,
    /// Stored bytes of all misses; samples where sizes are not known.
    pub(super) bytes_read: u64,
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    /// Different samples of an epoch over its accesses, 0 to 1.
    pub(super) distinct_share: f64,
    /// Samples delivered at least once, in any epoch, over all samples.
    pub(super) ever_seen_share: f64,
    /// Most deliveries of one sample in one epoch.
    pub(super) repeat_max: u32,
    /// Mean over the epochs' plans; `None` of a trace.
    pub(super) position_entropy: Option<f64>,
    /// What the trainer waited; `None` without a store.
    pub(super) stall: Option<Duration>,
}

/// What is replayed through which cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    pub(super) samples: u32,
    pub(super) sizes: &'a Sizes,
    pub(super) keeper: Keeper,
    /// How far `Policy::Lookahead` sees, in epochs.
    pub(super) lookahead: f64,
    /// Bytes; samples where sizes are not known.
    pub(super) capacity: u64,
    /// Epochs before this one are not counted.
    pub(super) skip_epochs: u32,
    pub(super) service: Option<Service>,
}

/// A replay under way.
pub(super) struct Replay<'a> {
    setup: Setup<'a>,
    importance: Importance,
    cache: Cache<()>,
    /// What is in sight of the accesses at hand, and the next one's position; `None` where nobody looks ahead.
    outlook: Option<(Lookahead, u32)>,
    pipeline: Option<Pipeline>,
    /// Prefetched samples that are not used yet, with the times at which they are there; and from which position on to look.
    coming: HashMap<SampleId, Duration>,
    prefetch_at: u32,
    /// Samples that came into the batch at hand in exchange for others and are to count so.
    exchanged: HashSet<SampleId>,
    epoch: u32,
    counts: Counts,
    distinct: u64,
    repeat_max: u32,
    /// Sum over plans, and their number.
    position_entropy: (f64, u32),
    stall_skipped: Duration,
    /// Kept for its space.
    evicted: Vec<(SampleId, ())>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(setup: Setup<'a>) -> Self {
        Self {
            setup,
            importance: Importance::new(setup.samples),
            cache: setup.keeper.cache(setup.capacity, setup.samples),
            outlook: None,
            pipeline: setup.service.map(Pipeline::new),
            coming: HashMap::new(),
            prefetch_at: 0,
            exchanged: HashSet::new(),
            epoch: 0,
            counts: Counts::default(),
            distinct: 0,
            repeat_max: 0,
            position_entropy: (0.0, 0),
            stall_skipped: Duration::ZERO,
            evicted: Vec::new(),
        }
    }

    /// Scores, uses and deliveries so far.
    pub(super) fn importance(&self) -> &Importance {
        &self.importance
    }

    /// Whether the sample is in the cache.
    pub(super) fn is_resident(&self, id: SampleId) -> bool {
        self.cache.get(id).is_some()
    }

    /// Another training begins over the same cache: what was known of samples is forgotten, as in the daemon.
    pub(super) fn begin_job(&mut self) {
        self.importance = Importance::new(self.setup.samples);
        let residents: Vec<SampleId> = self.cache.ids().collect();
        for id in residents {
            self.cache.rescore(id, &self.importance);
        }
    }

    /// Goes on to `epoch`, which has these `repeats`. `drawn`: its plan was drawn just now, so that nothing of it can
    /// have been read ahead.
    pub(super) fn begin_epoch(&mut self, epoch: u32, repeats: Repeats, drawn: bool) {
        self.epoch = epoch;
        if let Some(pipeline) = self.pipeline.as_mut().filter(|_| drawn) {
            pipeline.begin_epoch();
        }
        if epoch == self.setup.skip_epochs {
            self.counts = Counts::default();
            (self.distinct, self.repeat_max) = (0, 0);
            self.position_entropy = (0.0, 0);
            self.stall_skipped = self.stall().unwrap_or_default();
        }
        self.distinct += u64::from(repeats.distinct);
        self.repeat_max = self.repeat_max.max(repeats.most);
    }

    /// These accesses are known from now on, for as far as one looks ahead.
    pub(super) fn look_ahead(&mut self, known: Known<'_>) {
        let Setup { keeper, samples, lookahead, .. } = self.setup;
        let Some(lookahead) = keeper.lookahead(lookahead) else { return };
        self.end_plan();
        let mut outlook = Lookahead::new(known, samples, 0, in_sight(lookahead, samples as usize));
        outlook.begin(known, |(id, at)| self.cache.see(id, at, &self.importance));
        self.outlook = Some((outlook, 0));
        self.prefetch_at = 0;
    }

    /// Nothing more of what was in sight comes.
    pub(super) fn end_plan(&mut self) {
        if self.outlook.take().is_some() {
            self.cache.forget_uses(&self.importance);
        }
    }

    /// A plan was drawn: what it is like, and what it means to the cache. After [`begin_epoch`](Self::begin_epoch).
    pub(super) fn begin_plan(&mut self, plan: &Plan, known: Known<'_>) {
        self.position_entropy.0 += position_entropy(&plan.ids, self.setup.samples);
        self.position_entropy.1 += 1;
        let all_resident = plan.ids.iter().all(|&id| self.is_resident(id));
        if all_resident && self.cache.len() < self.setup.samples as usize {
            self.counts.absorbing_epochs += 1;
        }
        self.cache.begin_epoch(|| high_importance(&plan.ids, &self.importance));
        self.look_ahead(known);
    }

    /// Lets residents of later batches change places with absent samples of the next batch, at `from..to`, where the policy
    /// has it so.
    pub(super) fn exchange(&mut self, plan: &mut Plan, from: usize, to: usize) {
        if !self.cache.exchanges() {
            return;
        }
        let is_absent = |id| self.cache.wants_stand_in(id);
        let positions = plan.exchange(from, to, is_absent, |id| self.cache.may_stand_in(id));
        self.exchanged.clear();
        if self.setup.keeper == Keeper::Policy(Policy::Icache) {
            self.exchanged.extend(positions.iter().filter_map(|&at| plan.ids.get(at as usize)));
        }
    }

    /// Serves the samples of the next batch of what was last given as `known` to [`look_ahead`](Self::look_ahead).
    pub(super) fn batch(&mut self, batch: &[SampleId], known: Known<'_>) {
        self.prefetch(known);
        for &id in batch {
            if !self.access(id, known) {
                self.read(id);
                self.offer(id);
            }
        }
        self.end_batch(batch);
    }

    /// The same where reads take a while: returns what is to be read, which is then to be [offered](Self::offer). What is
    /// in `reading`, to which that is added, is being read already: that counts as a hit, as in the daemon.
    pub(super) fn open(
        &mut self,
        batch: &[SampleId],
        known: Known<'_>,
        reading: &mut HashSet<SampleId>,
    ) -> Vec<SampleId> {
        let mut to_read = Vec::new();
        for &id in batch {
            if self.access(id, known) {
                continue;
            }
            if reading.insert(id) {
                self.read(id);
                to_read.push(id);
            } else {
                self.counts.hits += 1;
            }
        }
        self.end_batch(batch);
        to_read
    }

    /// Whether the sample is in the cache; counts it and tells the cache.
    fn access(&mut self, id: SampleId, known: Known<'_>) -> bool {
        self.counts.accesses += 1;
        self.importance.record_delivery(id, self.epoch);
        if let Some((outlook, position)) = &mut self.outlook {
            let see = |(id, at)| self.cache.see(id, at, &self.importance);
            let next = outlook.access(known, *position, see);
            self.cache.use_at(id, next);
            *position += 1;
        }
        let is_hit = self.cache.get(id).is_some();
        if is_hit {
            self.importance.record_hit(id);
            self.cache.hit(id, &self.importance);
            if let Some(answered) = self.coming.remove(&id) {
                self.counts.prefetched += 1;
                self.pipeline.iter_mut().for_each(|pipeline| pipeline.wait_for(answered));
            } else if self.exchanged.remove(&id) {
                self.counts.exchanged += 1;
            } else {
                self.counts.hits += 1;
            }
        }
        is_hit
    }

    fn end_batch(&mut self, batch: &[SampleId]) {
        if let Some(pipeline) = &mut self.pipeline {
            // A batch is shorter than a plan, whose positions are u32.
            pipeline.end_batch(u32::try_from(batch.len()).unwrap_or(u32::MAX));
        }
    }

    /// The batch's losses have come home.
    pub(super) fn credit(&mut self, ranked: &Ranked) {
        for &(id, score) in &ranked.scores {
            self.importance.set_score(id, score);
            self.cache.rescore(id, &self.importance);
        }
    }

    /// What it came to so far.
    pub(super) fn outcome(&self) -> Outcome {
        Outcome {
            counts: self.counts,
            distinct_share: self.distinct as f64 / self.counts.accesses.max(1) as f64,
            ever_seen_share: f64::from(self.importance.seen()) / f64::from(self.setup.samples.max(1)),
            repeat_max: self.repeat_max,
            position_entropy: (self.position_entropy.1 > 0)
                .then(|| self.position_entropy.0 / f64::from(self.position_entropy.1)),
            stall: self.stall().map(|stall| stall.saturating_sub(self.stall_skipped)),
        }
    }

    /// Reads what the known accesses need next and is not there, as the daemon does while the store is idle and the cache has
    /// room for it. Without a store there is no time in which that could be.
    fn prefetch(&mut self, known: Known<'_>) {
        let (Some(pipeline), Some((outlook, position))) = (&mut self.pipeline, &self.outlook) else { return };
        if self.setup.keeper != Keeper::Policy(Policy::Lookahead) {
            return;
        }
        self.prefetch_at = self.prefetch_at.max(*position);
        while self.prefetch_at < outlook.sight()
            && let Some(id) = known.get(self.prefetch_at)
        {
            let (stored, charged) = (self.setup.sizes.stored(id), self.setup.sizes.charged(id));
            if self.cache.get(id).is_none() {
                if !self.cache.has_unused_room(charged, &self.importance, |()| false) {
                    return;
                }
                let Some(answered) = pipeline.prefetch(stored) else { return };
                self.counts.bytes_read += stored;
                self.evicted.clear();
                self.cache.offer(id, charged, (), &self.importance, |()| false, &mut self.evicted);
                self.counts.evictions += self.evicted.len() as u64;
                self.coming.insert(id, answered);
            }
            self.prefetch_at += 1;
        }
    }

    fn read(&mut self, id: SampleId) {
        let stored = self.setup.sizes.stored(id);
        self.counts.bytes_read += stored;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.read(stored);
        }
    }

    /// Offers a sample that was read to the cache.
    pub(super) fn offer(&mut self, id: SampleId) {
        let charged = self.setup.sizes.charged(id);
        self.evicted.clear();
        let admission = self.cache.offer(id, charged, (), &self.importance, |()| false, &mut self.evicted);
        match admission {
            Admission::Admitted => {
                self.counts.evictions += self.evicted.len() as u64;
                for (id, ()) in &self.evicted {
                    self.coming.remove(id);
                }
            }
            Admission::Bypassed(()) => self.counts.bypasses += 1,
        }
    }

    fn stall(&self) -> Option<Duration> {
        self.pipeline.as_ref().map(Pipeline::stall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(sizes: &Sizes, policy: Policy, capacity: u64, skip_epochs: u32) -> Setup<'_> {
        let keeper = Keeper::Policy(policy);
        Setup { samples: 4, sizes, keeper, lookahead: 1.0, capacity, skip_epochs, service: None }
    }

    fn run(replay: &mut Replay<'_>, epochs: &[&[u32]]) -> Counts {
        for (epoch, ids) in (0..).zip(epochs) {
            replay.begin_epoch(epoch, Repeats { distinct: 2, most: epoch + 1 }, true);
            let ids: Vec<SampleId> = ids.iter().copied().map(SampleId).collect();
            let known = Known::from(ids.as_slice());
            replay.look_ahead(known);
            replay.batch(&ids, known);
        }
        replay.outcome().counts
    }

    #[test]
    fn lru_evicts_and_everything_is_counted() {
        let mut replay = Replay::new(setup(&Sizes::Unit, Policy::Lru, 2, 0));
        let counts = run(&mut replay, &[&[0, 1, 0, 2, 1]]);
        // 0 and 1 come in, 0 hits, 2 displaces 1, 1 displaces 0.
        assert_eq!(counts, Counts { accesses: 5, hits: 1, evictions: 2, bytes_read: 4, ..Counts::default() });
        assert!(replay.is_resident(SampleId(1)) && !replay.is_resident(SampleId(0)));
        let outcome = replay.outcome();
        assert!((outcome.ever_seen_share - 0.75).abs() < 1e-12);
        assert!((outcome.distinct_share - 0.4).abs() < 1e-12);
    }

    #[test]
    fn app_bypasses_what_is_worth_less_and_bytes_are_those_read() {
        let sizes = Sizes::Each { lens: vec![5, 7, 6, 9], block_bytes: 8 };
        let mut replay = Replay::new(setup(&sizes, Policy::App, 8, 0));
        let low = Ranked { scores: vec![(SampleId(1), 2.5)], nonfinite: 0 };
        replay.credit(&low);
        // Sample 3 takes two blocks, more than there are.
        let counts = run(&mut replay, &[&[0, 1, 3]]);
        assert_eq!(counts, Counts { accesses: 3, bypasses: 2, bytes_read: 21, ..Counts::default() });
    }

    #[test]
    fn lookahead_keeps_what_is_used_soonest() {
        let mut replay = Replay::new(setup(&Sizes::Unit, Policy::Lookahead, 1, 0));
        // 0 is kept over 1, which comes later; then 1 displaces 0, which is over, and is kept over 2 and 3.
        let counts = run(&mut replay, &[&[0, 1, 0, 1, 2, 3, 1]]);
        assert_eq!((counts.hits, counts.bypasses), (2, 3));
    }

    #[test]
    fn skipped_epochs_are_not_counted_but_seen() {
        let mut replay = Replay::new(setup(&Sizes::Unit, Policy::Lru, 4, 1));
        let counts = run(&mut replay, &[&[0, 1, 2], &[0, 1], &[3, 0]]);
        assert_eq!(counts, Counts { accesses: 4, hits: 3, bytes_read: 1, ..Counts::default() });
        let outcome = replay.outcome();
        assert!((outcome.ever_seen_share - 1.0).abs() < 1e-12);
        assert!((outcome.distinct_share - 1.0).abs() < 1e-12);
        assert_eq!(outcome.repeat_max, 3);
    }
}
