//! Losses: what they change in the cache, and what is counted of them.

use shade_formats::SampleId;

use crate::action::Action;
use crate::brain::Core;
use crate::ids::{BatchId, SessionId};
use crate::memory::Memory;
use crate::training::{Losses, Reported};

impl<M: Memory> Core<M> {
    /// Credits the losses of one delivered batch. One for a batch that this session was not given
    /// is counted and dropped.
    pub(super) fn report(
        &mut self,
        now_ns: u64,
        session: SessionId,
        batch: BatchId,
        losses: &[f32],
        actions: &mut Vec<Action<M>>,
    ) {
        let Some(Reported { job, rank, losses: found }) = self.training.report(session, batch, losses) else {
            return;
        };
        let Some(Losses { new_rows, nonfinite, is_current, rescored }) = found else {
            return self.figures.count(job, |counts| counts.unmatched_reports += 1);
        };
        self.figures.count(job, |counts| counts.nonfinite_losses += u64::from(nonfinite));
        self.figures.count_reported(job, new_rows, is_current);
        self.rescore(rescored);
        self.trace_report(now_ns, job, batch, rank, losses, actions);
    }

    /// These samples have another score.
    pub(super) fn rescore(&mut self, samples: Vec<SampleId>) {
        let importance = self.training.jobs().importance();
        samples.into_iter().for_each(|sample| self.records.rescore(sample, importance));
    }
}
