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

use serde::{Deserialize, Serialize};
use shade_formats::SampleId;

use super::latency::{Latencies, ReadLatency};
use super::reading::Source;
use crate::cache::{Admission, Cache, Clock};
use crate::ids::JobId;
use crate::importance::Importance;
use crate::memory::Memory;
use crate::tier_orders::{TIER_OVERHEAD_BYTES, TierOrder};

/// The tier: memory of other machines.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TierStats {
    /// Samples that it has.
    pub samples: u64,
    /// Bytes that this daemon may fill.
    pub bytes: u64,
    /// Bytes of those samples, with the servers' overhead.
    pub used_bytes: u64,
    /// It is not used for now, as the store is faster.
    pub left_alone: bool,
    /// Time from a request to its answer.
    pub latency: ReadLatency,
}

/// The tier as the core knows it.
pub(super) struct Tier<M: Memory> {
    /// The samples that it has, or is about to have. `None` until its servers are reached.
    pub(super) held: Option<Cache<SampleId>>,
    /// The samples on their way there, with the jobs that they were read for.
    pub(super) writing: HashMap<SampleId, JobId>,
    /// The samples that its servers had before this daemon began. No job here has looked at them
    /// yet.
    pub(super) found: Vec<SampleId>,
    /// What is ordered next.
    pub(super) orders: Vec<TierOrder<M>>,
    pub(super) latencies: Latencies,
    pub(super) compare_at_ns: u64,
    /// It is left alone until then; 0 while it is used.
    pub(super) rests_until_ns: u64,
}

impl<M: Memory> Default for Tier<M> {
    fn default() -> Self {
        Self {
            held: None,
            writing: HashMap::new(),
            found: Vec::new(),
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
    pub(super) fn has_or_will(&self, sample: SampleId) -> bool {
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
    pub(super) fn begin_plan(&mut self, job: JobId, clock: Clock) {
        if let Some(held) = &mut self.held {
            held.set_clock(job, clock);
            held.forget_uses(job);
        }
    }

    /// As [`Cache::set_clock`], for all clocks at once.
    pub(super) fn set_clocks(&mut self, clocks: impl Iterator<Item = (JobId, Clock)>) {
        if let Some(held) = &mut self.held {
            clocks.for_each(|(job, clock)| held.set_clock(job, clock));
        }
    }

    /// As [`Cache::forget_job`].
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.held.iter_mut().for_each(|held| held.forget_job(job));
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

    /// As [`Cache::rank_on`].
    pub(super) fn rank_on(&mut self, most: u32, importance: &Importance) -> bool {
        self.held.as_mut().is_some_and(|held| held.rank_on(most, importance))
    }

    /// The sample is in the cache now, or what the tier has of it is wrong.
    pub(super) fn remove(&mut self, sample: SampleId) {
        if self.held.as_mut().is_some_and(|held| held.remove(sample).is_some()) {
            self.order_drop(sample);
        }
    }

    pub(super) fn order_drop(&mut self, sample: SampleId) {
        match self.orders.last_mut() {
            Some(TierOrder::Drop(samples)) => samples.push(sample),
            _ => self.orders.push(TierOrder::Drop(vec![sample])),
        }
    }

    /// Changes how many bytes it may have. What has no room any more leaves with
    /// [`evict_surplus`](Self::evict_surplus).
    pub(super) fn resize(&mut self, bytes: u64) {
        self.held.iter_mut().for_each(|held| held.resize(bytes));
    }

    /// Lets go of `most` samples that it has no room for any more: they are removed by id, without
    /// their bytes.
    pub(super) fn evict_surplus(&mut self, most: usize, importance: &Importance) {
        let Some(held) = self.held.as_mut().filter(|held| held.has_surplus()) else { return };
        let (writing, mut evicted) = (&self.writing, Vec::new());
        held.evict_surplus(most, importance, |id| writing.contains_key(id), &mut evicted);
        evicted.into_iter().for_each(|(id, _)| self.order_drop(id));
    }

    /// Takes the sample in, if it is worth it. Others may leave for it.
    pub(super) fn admit(&mut self, sample: SampleId, stored_len: u32, importance: &Importance) -> bool {
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
