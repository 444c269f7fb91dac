//! Losses come home: ranked within their batch, credited to the samples that were in it.

use super::action::Action;
use super::event::SessionId;
use super::machine::Core;
use crate::importance::rank;

impl Core {
    /// Credits the losses of one delivered batch. Late, partial and missing reports are fine; a report for a batch
    /// this session was not given is counted and dropped.
    pub(super) fn report(
        &mut self,
        now_ns: u64,
        (session, epoch, batch): (SessionId, u32, u32),
        losses: &[f32],
        actions: &mut Vec<Action>,
    ) {
        let Some(job) = &mut self.job else { return };
        let found = self.sessions.iter().find(|s| s.id == session).and_then(|s| {
            let delivered = s.delivered.get(&(epoch, batch))?;
            Some((s.rank, delivered))
        });
        let Some((of_rank, delivered)) = found else {
            return job.count(|counts| counts.unmatched_reports += 1);
        };
        let ranked = rank(delivered, losses);
        job.count(|counts| counts.nonfinite_losses += u64::from(ranked.nonfinite));
        // Zero stands below every position of this epoch: a late report of the last one never overrides a newer.
        let position = if job.epoch() == Some(epoch) {
            batch.saturating_mul(job.spec.world_size).saturating_add(of_rank).saturating_add(1)
        } else {
            0
        };
        for (sample, score) in ranked.scores {
            let Some(scored_at) = job.scored_at.get_mut(sample.index()) else { continue };
            if position >= *scored_at {
                *scored_at = position;
                job.importance.set_score(sample, score);
                self.cache.rescore(sample, &job.importance);
            }
        }
        self.trace_report(now_ns, (epoch, batch, of_rank), losses, actions);
    }
}
