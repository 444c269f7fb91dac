//! A virtual trainer: takes batches in their order, computes each for a while, reports its losses
//! and gives it back.

use std::collections::VecDeque;
use std::time::Duration;

use shade_core::driver::{Delivery, Soon};
use shade_core::{Event, SessionId};
use shade_formats::SampleId;
use shade_formats::ring::Kind;

use crate::losses::{Losses, fill_gaps};
use crate::store::NoMemory;

/// What a trainer reports.
pub(super) enum Reported<'a> {
    /// Losses of a model or a file.
    Of(Losses<'a>),
    /// What was recorded: a loss at each position of the plan, in batches of so many; NaN where
    /// there is none.
    Recorded(&'a [f32], u32),
    /// Nothing.
    Nothing,
}

/// A batch in the trainer's ring.
struct Batch {
    session: SessionId,
    seq: u64,
    epoch: u32,
    number: u32,
    ids: Vec<SampleId>,
}

/// The trainer.
pub(super) struct Trainer<'a> {
    pub(super) reported: Reported<'a>,
    /// Samples that were taken.
    pub(super) taken: u64,
    /// Which they were, if somebody wants to know.
    pub(super) seen: Option<Vec<SampleId>>,
    /// What it has waited for batches.
    pub(super) stall: Duration,
    /// Why it is not served.
    pub(super) refused: Option<String>,
    /// What it computes for each sample.
    compute: Duration,
    /// So many of its first batches are never given back, so that the ring has room for fewer.
    keeps: usize,
    kept: usize,
    /// What it has not begun yet.
    waiting: VecDeque<Batch>,
    /// What it computes, and until when.
    at_work: Option<(u64, Batch)>,
    idle_since_ns: u64,
}

impl<'a> Trainer<'a> {
    pub(super) fn new(reported: Reported<'a>, compute: Duration, keeps: usize) -> Self {
        Self {
            reported,
            taken: 0,
            seen: None,
            stall: Duration::ZERO,
            refused: None,
            compute,
            keeps,
            kept: 0,
            waiting: VecDeque::new(),
            at_work: None,
            idle_since_ns: 0,
        }
    }

    /// It attaches anew, with nothing in hand.
    pub(super) fn leave(&mut self) {
        self.kept = 0;
        self.waiting.clear();
        self.at_work = None;
    }

    /// Takes what was published.
    pub(super) fn take(&mut self, now_ns: u64, delivery: Delivery, soon: &mut Soon<NoMemory>) {
        let Delivery { session, descriptor, columns, error, is_current } = delivery;
        let seq = descriptor.seq;
        self.refused = error.or(self.refused.take());
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
        self.waiting.push_back(Batch { session, seq, epoch, number, ids });
        if self.at_work.is_none() {
            self.stall += Duration::from_nanos(now_ns.saturating_sub(self.idle_since_ns));
            self.begin(now_ns);
        }
    }

    /// When the batch at hand is computed.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.at_work.as_ref().map(|(done_ns, _)| *done_ns)
    }

    /// The batch at hand is computed: reports it, gives it back and goes on to the next.
    pub(super) fn finish(&mut self, now_ns: u64, soon: &mut Soon<NoMemory>) {
        let Some((_, Batch { session, seq, epoch, number: batch, ids })) = self.at_work.take() else {
            return;
        };
        let losses = self.losses(batch, &ids);
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
        let compute = self.compute.saturating_mul(samples).as_nanos();
        self.at_work = Some((now_ns.saturating_add(u64::try_from(compute).unwrap_or(u64::MAX)), batch));
    }

    fn losses(&mut self, batch: u32, ids: &[SampleId]) -> Vec<f32> {
        let mut losses = Vec::new();
        match &mut self.reported {
            Reported::Of(source) => source.report(ids, &mut losses),
            Reported::Recorded(recorded, batch_size) => {
                let from = (batch as usize).saturating_mul(*batch_size as usize);
                let to = from.saturating_add(ids.len());
                losses.extend_from_slice(recorded.get(from..to).unwrap_or_default());
                fill_gaps(&mut losses);
            }
            Reported::Nothing => {}
        }
        losses
    }
}
