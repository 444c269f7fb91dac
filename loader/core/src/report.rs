//! Losses are ranked within their batch and credited to its samples. Validation scores are kept.

use crate::action::Action;
use crate::brain::Core;
use crate::event::SessionId;
use crate::ids::BatchId;
use crate::importance::{rank, rank_portably};
use crate::memory::Memory;
use crate::validation::Validation;

impl<M: Memory> Core<M> {
    /// Takes a validation score. For each epoch the lowest rank's counts, and its latest.
    pub(super) fn validation(&mut self, session: SessionId, score: f64) {
        let Some(rank) = self.ranks.iter().find(|rank| rank.id == session) else { return };
        let Some(job) = self.jobs.get_mut(rank.job) else { return };
        // Its messages come in order: this is the epoch that it has trained on last.
        let epoch = rank.request.map(|request| request.epoch).or(job.epoch());
        let new = Validation { epoch, rank: rank.rank, score };
        match job.validation.iter_mut().rev().find(|known| known.epoch == epoch) {
            Some(known) if new.rank <= known.rank => *known = new,
            Some(_) => {}
            None => job.validation.push(new),
        }
    }

    /// Credits the losses of one delivered batch. A report may be late, partial or missing. One for
    /// a batch that this session was not given is counted and dropped.
    pub(super) fn report(
        &mut self,
        now_ns: u64,
        session: SessionId,
        batch: BatchId,
        losses: &[f32],
        actions: &mut Vec<Action<M>>,
    ) {
        let Some(state) = self.ranks.iter_mut().find(|rank| rank.id == session) else { return };
        let (job_id, of_rank) = (state.job, state.rank);
        let Some(job) = self.jobs.get_mut(job_id) else { return };
        let Some(delivered) = state.delivered.get_mut(&batch) else {
            return self.figures.count(job_id, |counts| counts.unmatched_reports += 1);
        };
        let is_shared = job.strata.count() > 1 || job.shared_scores.is_some();
        let rank = if is_shared { rank_portably } else { rank };
        let ranked = rank(&delivered.samples, losses);
        self.figures.count(job_id, |counts| counts.nonfinite_losses += u64::from(ranked.nonfinite));
        let rows = delivered.samples.len().min(losses.len());
        let new = rows.saturating_sub(delivered.reported) as u64;
        delivered.reported = delivered.reported.max(rows);
        job.has_reports |= rows > 0;
        self.figures.count_reported(job_id, new, job.epoch() == Some(batch.epoch));
        // Zero stands below every position of this epoch: a late report of the epoch before never
        // replaces a newer one.
        let position = if job.epoch() == Some(batch.epoch) {
            batch.number.saturating_mul(job.spec.world_size).saturating_add(of_rank).saturating_add(1)
        } else {
            0
        };
        let admits = self.jobs.get(job_id).is_some_and(|job| self.jobs.admits(job));
        for (sample, score) in ranked.scores {
            let Some(job) = self.jobs.get_mut(job_id).filter(|job| job.keeps_score_of(sample)) else {
                continue;
            };
            let Some(scored_at) = job.scored_at.get_mut(sample.index()) else { continue };
            if position >= *scored_at {
                *scored_at = position;
                job.importance.set_score(sample, score);
                job.has_scored(sample);
                if admits {
                    self.jobs.aggregate(sample);
                    self.records.rescore(sample, self.jobs.importance());
                }
            }
        }
        self.trace_report(now_ns, job_id, batch, of_rank, losses, actions);
    }
}
