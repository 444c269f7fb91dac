//! The tier's part of the core: memory of other machines as a second level of the cache's ranking.
//!
//! What leaves the cache, or bypasses it, is offered to the tier. The tier ranks samples as the
//! policy `lookahead` does. A sample with a known next use displaces those that are used later. One
//! without a known use only takes free room, as a write costs the servers several reads. That fills
//! the tier where plans are permutations, whose next uses are known only once a sample has been
//! used.
//!
//! A sample is in the cache or in the tier, not in both. The core keeps ids only: the servers have
//! the bytes. What a server has lost is found out when it is asked for, and read from the store.
//!
//! Where the store answers faster than the tier, the tier is left alone for a while.

use std::collections::HashMap;

use shade_formats::SampleId;
use shade_formats::control::Policy;

use crate::action::Action;
use crate::batch::RowId;
use crate::block_size::charged_bytes;
use crate::brain::Core;
use crate::cache::{Admission, Cache, Clock};
use crate::importance::Importance;
use crate::job::JobId;
use crate::latency::{Latencies, ReadLatency};
use crate::memory::Memory;
use crate::orders::ReadOp;
use crate::reading::Source;
use crate::stats::TierStats;
use crate::tier_orders::{TIER_OVERHEAD_BYTES, TierEvent, TierMiss, TierOrder, TierPut};

/// Limit of the records on their way from the tier. Each holds blocks.
const GETS_MAX: usize = 256;
/// Limit of the records on their way to the tier. Each holds blocks. Beyond it, what leaves the
/// cache is not stored.
const PUTS_MAX: usize = 64;
/// Largest record that is stored. Larger ones would hold up a server's other records for long, and
/// servers refuse 512 MiB.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// Answers that the first measurement counts as.
const MEASURED_AS: usize = 64;
/// Interval at which tier and store are compared.
const COMPARE_NS: u64 = 1_000_000_000;
/// How long a tier is left alone that is slower than the store.
const REST_NS: u64 = 60_000_000_000;

/// The tier as the core knows it.
pub(super) struct Tier<M: Memory> {
    /// The samples that it has, or is about to have. `None` until its servers are reached.
    held: Option<Cache<SampleId>>,
    /// Those on their way there, with the jobs that they were read for.
    writing: HashMap<SampleId, JobId>,
    /// What is ordered next.
    orders: Vec<TierOrder<M>>,
    latencies: Latencies,
    compare_at_ns: u64,
    /// It is left alone until then; 0 while it is used.
    rests_until_ns: u64,
}

impl<M: Memory> Default for Tier<M> {
    fn default() -> Self {
        Self {
            held: None,
            writing: HashMap::new(),
            orders: Vec::new(),
            latencies: Latencies::default(),
            compare_at_ns: 0,
            rests_until_ns: 0,
        }
    }
}

impl<M: Memory> Tier<M> {
    /// Where to read a sample that is not in the cache.
    pub(super) fn source_of(&self, sample: SampleId) -> Source {
        let Some(held) = self.held.as_ref().filter(|_| self.rests_until_ns == 0) else {
            return Source::Store;
        };
        let has = held.get(sample).is_some() && !self.writing.contains_key(&sample);
        if has { Source::Tier } else { Source::Store }
    }

    /// Whether it has the sample, or is about to.
    fn has_or_will(&self, sample: SampleId) -> bool {
        let has = self.held.as_ref().is_some_and(|held| held.get(sample).is_some());
        has || self.writing.contains_key(&sample)
    }

    /// As [`Cache::use_at`]. The sample's rank changes with it.
    pub(super) fn use_at(&mut self, job: JobId, id: SampleId, next: Option<u32>, importance: &Importance) {
        if let Some(held) = &mut self.held {
            held.use_at(job, id, next);
            held.rescore(id, importance);
        }
    }

    /// As [`Cache::see`].
    pub(super) fn see(&mut self, job: JobId, id: SampleId, position: u32, importance: &Importance) {
        if let Some(held) = &mut self.held {
            held.see(job, id, position, importance);
        }
    }

    /// The job looks ahead over another plan, whose positions are due by this clock.
    pub(super) fn begin_plan(&mut self, job: JobId, clock: Clock, importance: &Importance) {
        if let Some(held) = &mut self.held {
            held.set_clock(job, clock);
            held.forget_uses(job, importance);
        }
    }

    /// As [`Cache::set_clock`], for all clocks at once.
    pub(super) fn set_clocks(&mut self, clocks: impl Iterator<Item = (JobId, Clock)>) {
        if let Some(held) = &mut self.held {
            clocks.for_each(|(job, clock)| held.set_clock(job, clock));
            held.rank_anew();
        }
    }

    /// As [`Cache::forget_job`].
    pub(super) fn forget_job(&mut self, job: JobId) {
        if let Some(held) = &mut self.held {
            held.forget_job(job);
            held.rank_anew();
        }
    }

    /// As [`Cache::rescore`].
    pub(super) fn rescore(&mut self, id: SampleId, importance: &Importance) {
        if let Some(held) = &mut self.held {
            held.rescore(id, importance);
        }
    }

    /// The keys of all samples may have changed.
    pub(super) fn rank_anew(&mut self) {
        self.held.iter_mut().for_each(Cache::rank_anew);
    }

    /// The sample is in the cache now, or what the tier has of it is wrong.
    pub(super) fn remove(&mut self, sample: SampleId) {
        if self.held.as_mut().is_some_and(|held| held.remove(sample).is_some()) {
            self.order_drop(sample);
        }
    }

    fn order_drop(&mut self, sample: SampleId) {
        match self.orders.last_mut() {
            Some(TierOrder::Drop(samples)) => samples.push(sample),
            _ => self.orders.push(TierOrder::Drop(vec![sample])),
        }
    }

    /// Takes the sample in, if it is worth it. Others may leave for it.
    fn admit(&mut self, sample: SampleId, stored_len: u32, importance: &Importance) -> bool {
        if self.has_or_will(sample) {
            return false;
        }
        let Some(held) = &mut self.held else { return false };
        let bytes = u64::from(stored_len) + TIER_OVERHEAD_BYTES;
        let writing = &self.writing;
        let is_written = |id: &SampleId| writing.contains_key(id);
        let has_room = held.used_bytes().saturating_add(bytes) <= held.capacity_bytes();
        if !has_room && !held.would_admit(sample, bytes, importance, is_written) {
            return false;
        }
        let mut displaced = Vec::new();
        let admission = held.offer(sample, bytes, sample, importance, is_written, &mut displaced);
        displaced.into_iter().for_each(|(id, _)| self.order_drop(id));
        admission == Admission::Admitted
    }

    /// The figures of this moment; `None` until its servers are reached.
    pub(super) fn stats(&self) -> Option<TierStats> {
        let held = self.held.as_ref()?;
        let us = |quantile| self.latencies.quantile_ns(quantile).unwrap_or(0) as f64 / 1e3;
        Some(TierStats {
            samples: held.len() as u64,
            bytes: held.capacity_bytes(),
            used_bytes: held.used_bytes(),
            left_alone: self.rests_until_ns > 0,
            latency: ReadLatency { p50_us: us(0.5), p99_us: us(0.99) },
        })
    }
}

impl<M: Memory> Core<M> {
    /// Takes in an event of the tier.
    pub(super) fn tier_event(&mut self, now_ns: u64, event: TierEvent<M>) {
        match event {
            TierEvent::Room { bytes, get } => {
                let get_ns = get.map(|get| u64::try_from(get.as_nanos()).unwrap_or(u64::MAX));
                get_ns.into_iter().for_each(|ns| (0..MEASURED_AS).for_each(|_| self.tier.latencies.add(ns)));
                match &mut self.tier.held {
                    Some(held) => held.resize(bytes),
                    None => self.tier.held = Some(Cache::new(Policy::Lookahead, bytes, self.index.len())),
                }
                // It learns of the uses in sight when the next batch is opened.
                self.jobs.iter_mut().for_each(|job| job.outlook = None);
            }
            TierEvent::Held(samples) => {
                for sample in samples {
                    let Some(entry) = self.index.entry(sample).filter(|_| !self.tier.has_or_will(sample))
                    else {
                        continue;
                    };
                    if self.cache.get(sample).is_some()
                        || !self.tier.admit(sample, entry.stored_len, self.jobs.importance())
                    {
                        self.tier.order_drop(sample);
                    }
                }
            }
            TierEvent::Got { op, outcome, latency } => {
                // What is refused at once says nothing of how fast it is.
                if outcome != Err(TierMiss::Down) {
                    self.tier.latencies.add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
                }
                self.tier_got(now_ns, op, outcome);
            }
            TierEvent::Put { sample, record, outcome } => {
                self.tier_stored(sample, outcome);
                self.release(M::take_back(record));
            }
        }
    }

    /// A record came from the tier, or must be read from the store.
    fn tier_got(&mut self, now_ns: u64, op: ReadOp<M::Room>, outcome: Result<(), TierMiss>) {
        let (sample, len) = (op.sample, op.len);
        let Err(miss) = outcome else {
            let (job, admits, waiting) = self.reading.came_from_tier(sample).unwrap_or_default();
            self.count(job, |counts| {
                counts.tier_hits += 1;
                counts.tier_bytes += u64::from(len);
            });
            // Else it stays where it is: what it displaced here would be written there.
            let bytes = charged_bytes(len, self.config.block_bytes);
            let admits = admits && self.cache.is_worth_moving(sample, bytes);
            let record = M::record(op.blocks, true);
            return self.arrived(now_ns, (job, admits), (sample, len), record, waiting);
        };
        self.free.give(op.blocks);
        match miss {
            TierMiss::Absent => {
                self.tier.held.as_mut().and_then(|held| held.remove(sample));
            }
            TierMiss::Wrong => self.tier.remove(sample),
            TierMiss::Down => {}
        }
        let (jobs, sessions) = (&self.jobs, &self.sessions);
        let job_of_row = |row: &RowId| {
            let session = sessions.iter().find(|session| session.id == row.session);
            session.map(|session| session.job)
        };
        let job_of = |job, rows: &[RowId]| match jobs.get(job) {
            Some(_) => Some(job),
            // Its first job has ended. Rows of another may wait for it.
            None => rows.first().and_then(job_of_row),
        };
        if let Some(job) = self.reading.not_in_tier(sample, job_of, &*self.index) {
            self.count(job, |counts| counts.tier_misses += 1);
        }
    }

    /// A record is stored, or not.
    fn tier_stored(&mut self, sample: SampleId, outcome: TierPut) {
        let Some(job) = self.tier.writing.remove(&sample) else { return };
        let Some(held) = &mut self.tier.held else { return };
        if outcome == TierPut::Stored {
            let len = self.index.entry(sample).map_or(0, |entry| entry.stored_len);
            self.count(job, |counts| {
                counts.tier_writes += 1;
                counts.tier_bytes_written += u64::from(len);
            });
            if !self.tier.has_or_will(sample) {
                // It came into the cache meanwhile.
                self.tier.order_drop(sample);
            }
            return;
        }
        held.remove(sample);
        if outcome == TierPut::Full {
            // Others use these servers, too, or keys are spread unevenly: no more than fits now.
            held.resize(held.used_bytes());
        }
    }

    /// Offers a record that leaves the cache, or bypasses it, to the tier.
    pub(super) fn offer_to_tier(&mut self, job: JobId, sample: SampleId, record: &M::Record) {
        if self.tier.held.is_none()
            || self.tier.rests_until_ns > 0
            || self.tier.writing.len() >= PUTS_MAX
            || self.cache.get(sample).is_some()
        {
            return;
        }
        let Some(len) = self.index.entry(sample).map(|entry| entry.stored_len) else { return };
        if len > RECORD_BYTES_MAX
            || !self.has_memory_to_prefetch(charged_bytes(len, self.config.block_bytes))
            || !self.tier.admit(sample, len, self.jobs.importance())
        {
            return;
        }
        self.tier.writing.insert(sample, job);
        self.tier.orders.push(TierOrder::Put { sample, len, record: M::lend(record.clone()) });
    }

    /// Asks the tier for the records that it has, in plan order, and hands it all other orders.
    pub(super) fn order_from_tier(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if self.tier.held.is_none() {
            return;
        }
        self.compare_tier(now_ns, actions);
        let mut ops = Vec::new();
        while self.reading.asked_of_tier() < GETS_MAX {
            let Some(sample) = self.reading.next_from_tier() else { break };
            // Without room it waits until a fill gives some back.
            let Some(op) = self.read_op(sample) else { break };
            self.reading.ask_tier(sample);
            ops.push(op);
        }
        actions.extend(self.tier.orders.drain(..).map(Action::Tier));
        if !ops.is_empty() {
            actions.push(Action::Tier(TierOrder::Get(ops)));
        }
    }

    /// Leaves a tier alone that is slower than the store, and tries it again later.
    fn compare_tier(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let tier = &mut self.tier;
        if now_ns < tier.compare_at_ns {
            return;
        }
        tier.compare_at_ns = now_ns.saturating_add(COMPARE_NS);
        if tier.rests_until_ns > 0 {
            if now_ns >= tier.rests_until_ns {
                (tier.rests_until_ns, tier.latencies) = (0, Latencies::default());
            }
            return;
        }
        let of_store = self.late_reads.latencies.quantile_ns(0.5);
        let of_tier = tier.latencies.quantile_ns(0.5);
        if let Some((store_ns, tier_ns)) = of_store.zip(of_tier).filter(|(store, tier)| tier > store) {
            tier.rests_until_ns = now_ns.saturating_add(REST_NS);
            actions.push(Action::Warn(format!(
                "the tier takes {:.2} ms for a record and the store {:.2} ms: the tier is left alone for a minute",
                tier_ns as f64 / 1e6,
                store_ns as f64 / 1e6
            )));
        }
    }
}
