//! A virtual trainer: takes batches in their order, computes each for a while, reports its losses
//! and releases it.

use std::collections::VecDeque;
use std::time::Duration;

use shade_core::driver::{Delivery, Soon};
use shade_core::{Event, SessionId};
use shade_formats::SampleId;
use shade_formats::ring::Kind;

use crate::losses::Losses;
use crate::store::NoMemory;

/// A batch in the trainer's ring.
struct TakenBatch {
    session: SessionId,
    seq: u64,
    epoch: u32,
    number: u32,
    ids: Vec<SampleId>,
}

/// The trainer.
pub(super) struct Trainer<'a> {
    pub(super) losses: Losses<'a>,
    /// Number of samples taken.
    pub(super) taken: u64,
    /// The samples taken, if they are wanted.
    pub(super) seen: Option<Vec<SampleId>>,
    /// Time that it has computed.
    computed: Duration,
    /// Time that it has waited for batches.
    pub(super) stall: Duration,
    /// It has been given all batches of its epoch.
    ended: bool,
    /// Why the core refused it.
    pub(super) refused: Option<String>,
    /// Compute time of a sample.
    compute: Duration,
    /// Number of its first batches that it never releases, so that the ring has room for fewer.
    keeps: usize,
    kept: usize,
    /// Batches that it has not begun yet.
    waiting: VecDeque<TakenBatch>,
    /// The batch that it computes, and the time when it ends.
    at_work: Option<(u64, TakenBatch)>,
    idle_since_ns: u64,
}

impl<'a> Trainer<'a> {
    pub(super) fn new(compute: Duration, keeps: usize) -> Self {
        Self {
            losses: Losses::None,
            taken: 0,
            seen: None,
            computed: Duration::ZERO,
            stall: Duration::ZERO,
            ended: false,
            refused: None,
            compute,
            keeps,
            kept: 0,
            waiting: VecDeque::new(),
            at_work: None,
            idle_since_ns: 0,
        }
    }

    /// Time that it has computed.
    pub(super) fn computed(&self) -> Duration {
        self.computed
    }

    /// Whether it has computed all of its epoch. True once.
    pub(super) fn has_ended(&mut self) -> bool {
        let is_idle = self.at_work.is_none() && self.waiting.is_empty();
        is_idle && std::mem::take(&mut self.ended)
    }

    /// It leaves, with nothing in hand.
    pub(super) fn leave(&mut self) {
        self.kept = 0;
        self.waiting.clear();
        self.at_work = None;
    }

    /// Takes a descriptor that was published.
    pub(super) fn take(&mut self, now_ns: u64, delivery: Delivery, soon: &mut Soon<NoMemory>) {
        let Delivery { session, descriptor, columns, error, is_current } = delivery;
        let seq = descriptor.seq;
        self.refused = error.or(self.refused.take());
        self.ended |= descriptor.kind == Kind::EpochEnd && is_current;
        if descriptor.kind != Kind::Batch || !is_current {
            soon.push_back(Event::Released { session, seqs: vec![seq] });
            return;
        }
        // Ids of samples are u32.
        let ids: Vec<SampleId> =
            columns.ids.iter().map(|&id| SampleId(u32::try_from(id).unwrap_or(u32::MAX))).collect();
        self.taken += ids.len() as u64;
        self.seen.iter_mut().for_each(|seen| seen.extend_from_slice(&ids));
        let (epoch, number) = (descriptor.epoch, descriptor.batch);
        self.waiting.push_back(TakenBatch { session, seq, epoch, number, ids });
        if self.at_work.is_none() {
            self.stall += Duration::from_nanos(now_ns.saturating_sub(self.idle_since_ns));
            self.begin(now_ns);
        }
    }

    /// The time when the current batch is computed.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.at_work.as_ref().map(|(done_ns, _)| *done_ns)
    }

    /// The current batch is computed: reports it, releases it and goes on to the next.
    pub(super) fn finish(&mut self, now_ns: u64, soon: &mut Soon<NoMemory>) {
        let Some((_, TakenBatch { session, seq, epoch, number: batch, ids })) = self.at_work.take() else {
            return;
        };
        let losses = self.losses.report(batch, &ids);
        if !losses.is_empty() {
            soon.push_back(Event::Report { session, epoch, batch, losses });
        }
        if self.kept < self.keeps {
            self.kept += 1;
        } else {
            soon.push_back(Event::Released { session, seqs: vec![seq] });
        }
        self.idle_since_ns = now_ns;
        self.begin(now_ns);
    }

    fn begin(&mut self, now_ns: u64) {
        let Some(batch) = self.waiting.pop_front() else { return };
        // A batch is shorter than a plan, whose positions are u32.
        let samples = u32::try_from(batch.ids.len()).unwrap_or(u32::MAX);
        let compute = self.compute.saturating_mul(samples);
        self.computed = self.computed.saturating_add(compute);
        let compute_ns = u64::try_from(compute.as_nanos()).unwrap_or(u64::MAX);
        self.at_work = Some((now_ns.saturating_add(compute_ns), batch));
    }
}
