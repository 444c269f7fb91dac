//! What the core does with the tier: offers it what leaves the cache, asks it for what it has, and
//! takes its answers.

use std::time::Duration;

use shade_formats::SampleId;
use shade_job::Policy;

use super::Records;
use super::latency::Latencies;
use super::submit::Arrival;
use crate::action::Action;
use crate::block_size::charged_bytes;
use crate::cache::Cache;
use crate::figures::Figures;
use crate::ids::{JobId, RowId};
use crate::importance::Importance;
use crate::memory::Memory;
use crate::orders::ReadOp;
use crate::tier_orders::{TierMiss, TierOrder, TierPut};
use crate::training::Jobs;

/// Limit of the records on their way from the tier. Each holds blocks.
const GETS_MAX: usize = 256;
/// Limit of the records on their way to the tier. Each holds blocks. Beyond it, what leaves the
/// cache is not stored.
const PUTS_MAX: usize = 64;
/// Samples that are taken over in one step.
const FOUND_AT_ONCE: usize = 1024;
/// Largest record that is stored. Larger ones would hold up a server's other records for long, and
/// servers refuse 512 MiB.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// Answers that the first measurement counts as.
const MEASURED_AS: usize = 64;
/// Interval at which tier and store are compared.
const COMPARE_NS: u64 = 1_000_000_000;
/// How long a tier is left alone that is slower than the store.
const REST_NS: u64 = 60_000_000_000;

impl<M: Memory> Records<M> {
    /// The tier's servers were reached: this daemon may fill `bytes`, and one record took them
    /// `get`, if that was measured.
    pub(crate) fn tier_has_room(&mut self, bytes: u64, get: Option<Duration>) {
        let get_ns = get.map(|get| u64::try_from(get.as_nanos()).unwrap_or(u64::MAX));
        get_ns.into_iter().for_each(|ns| (0..MEASURED_AS).for_each(|_| self.tier.latencies.add(ns)));
        if self.tier.held.is_none() {
            let mut held = Cache::new(Policy::Lookahead, bytes, self.index.len());
            held.keep_ranked(true);
            self.tier.held = Some(held);
        }
        self.tier.resize(bytes);
    }

    /// The tier's servers have these samples.
    pub(crate) fn tier_holds(&mut self, samples: Vec<SampleId>) {
        self.tier.found.extend(samples);
    }

    /// Takes over what the servers had before this daemon began, once a job is here that may use
    /// it.
    ///
    /// What no job here may use is another node's, and what has no room may be another daemon's:
    /// both are left as they are. Some at a time, as there may be millions.
    fn take_over_found(&mut self, jobs: &Jobs) {
        if self.tier.found.is_empty() || jobs.admitting().next().is_none() {
            return;
        }
        let rest = self.tier.found.len().saturating_sub(FOUND_AT_ONCE);
        for sample in self.tier.found.split_off(rest) {
            let Some(entry) = self.index.entry(sample) else { continue };
            if jobs.have(sample) && !self.has(sample) {
                self.tier.admit(sample, entry.stored_len, jobs.importance());
            }
        }
    }

    /// A record came from the tier, or must be read from the store: then in the turn of the job
    /// that `job_of` finds, which is given the job that wanted it first and the rows that wait.
    pub(crate) fn tier_got(
        &mut self,
        op: ReadOp<M::Room>,
        outcome: Result<(), TierMiss>,
        latency: Duration,
        job_of: impl Fn(JobId, &[RowId]) -> Option<JobId>,
        figures: &mut Figures,
    ) -> Option<Arrival<M>> {
        let ReadOp { sample, len, blocks, .. } = op;
        // What is refused at once says nothing of how fast it is.
        if outcome != Err(TierMiss::Down) {
            self.tier.latencies.add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        }
        let Err(miss) = outcome else {
            let (mut wanted, rows) = self.reading.came_from_tier(sample).unwrap_or_default();
            figures.count(wanted.job, |counts| {
                counts.tier_hits += 1;
                counts.tier_bytes += u64::from(len);
            });
            // Else it stays where it is: what it displaced here would be written there.
            let bytes = charged_bytes(len, self.block_bytes);
            wanted.admits &= self.cache.is_worth_moving(sample, bytes);
            return Some(Arrival { wanted, sample, len, record: M::record(blocks, true), rows });
        };
        self.memory.give(blocks);
        match miss {
            TierMiss::Absent => {
                self.tier.held.as_mut().and_then(|held| held.remove(sample));
            }
            TierMiss::Wrong => self.tier.remove(sample),
            TierMiss::Down => {}
        }
        if let Some(job) = self.reading.not_in_tier(sample, job_of, &*self.index) {
            figures.count(job, |counts| counts.tier_misses += 1);
        }
        None
    }

    /// A record is stored, or not.
    pub(crate) fn tier_put(
        &mut self,
        sample: SampleId,
        record: M::Lent,
        outcome: TierPut,
        figures: &mut Figures,
    ) {
        self.note_put(sample, outcome, figures);
        self.release(M::take_back(record));
    }

    fn note_put(&mut self, sample: SampleId, outcome: TierPut, figures: &mut Figures) {
        let Some(job) = self.tier.writing.remove(&sample) else { return };
        let Some(held) = &mut self.tier.held else { return };
        if outcome == TierPut::Stored {
            let len = self.index.entry(sample).map_or(0, |entry| entry.stored_len);
            figures.count(job, |counts| {
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
            let used_bytes = held.used_bytes();
            self.tier.resize(used_bytes);
        }
    }

    /// Offers a record that leaves the cache, or bypasses it, to the tier.
    pub(super) fn offer_to_tier(
        &mut self,
        job: JobId,
        sample: SampleId,
        record: &M::Record,
        importance: &Importance,
    ) {
        if self.tier.held.is_none()
            || self.tier.rests_until_ns > 0
            || self.tier.writing.len() >= PUTS_MAX
            || self.has(sample)
        {
            return;
        }
        let Some(len) = self.index.entry(sample).map(|entry| entry.stored_len) else { return };
        if len > RECORD_BYTES_MAX
            || !self.has_memory_to_prefetch(charged_bytes(len, self.block_bytes))
            || !self.tier.admit(sample, len, importance)
        {
            return;
        }
        self.tier.writing.insert(sample, job);
        self.tier.orders.push(TierOrder::Put { sample, len, record: M::lend(record.clone()) });
    }

    /// Asks the tier for the records that it has, in plan order, and hands it all other orders.
    pub(crate) fn order_from_tier(&mut self, now_ns: u64, jobs: &Jobs, actions: &mut Vec<Action<M>>) {
        if self.tier.held.is_none() {
            return;
        }
        self.take_over_found(jobs);
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
