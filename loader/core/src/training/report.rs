//! Losses are ranked within their batch, or kept as they are for `infobatch` and `seta`, and
//! credited to its samples. Validation scores are kept.

use shade_formats::SampleId;
use shade_job::Sampler;

use super::Training;
use super::validation::Validation;
use crate::ids::{BatchId, JobId, SessionId};
use crate::importance::{keep_losses, rank, rank_portably};

/// A report, as far as it counts.
pub(crate) struct Reported {
    pub(crate) job: JobId,
    /// The number of the rank that was given the batch.
    pub(crate) rank: u32,
    /// What the losses say of samples; `None` if the session was not given the batch.
    pub(crate) losses: Option<Losses>,
}

/// The losses of a batch.
pub(crate) struct Losses {
    /// Rows whose first loss this is.
    pub(crate) new_rows: u64,
    /// Losses that are no number.
    pub(crate) nonfinite: u32,
    /// The batch is of the current epoch.
    pub(crate) is_current: bool,
    /// The samples that have another score now, if the cache goes by it.
    pub(crate) rescored: Vec<SampleId>,
}

impl Training {
    /// Takes a validation score. For each epoch the lowest rank's counts, and its latest.
    pub(crate) fn validation(&mut self, session: SessionId, score: f64) {
        // Its messages come in order: this is the epoch that it has trained on last.
        let epoch = self.rank(session).and_then(|rank| rank.request).map(|request| request.epoch);
        self.validation_in(session, epoch, score);
    }

    /// Takes a validation score that a rank reported when it had asked for this epoch last.
    pub(crate) fn validation_in(&mut self, session: SessionId, epoch: Option<u32>, score: f64) {
        let Some(rank) = self.ranks.iter().find(|rank| rank.id == session) else { return };
        let Some(job) = self.jobs.get_mut(rank.job) else { return };
        let epoch = epoch.or(job.epoch());
        let new = Validation { epoch, rank: rank.rank, score };
        match job.validation.iter_mut().rev().find(|known| known.epoch == epoch) {
            Some(known) if new.rank <= known.rank => *known = new,
            Some(_) => {}
            None => job.validation.push(new),
        }
    }

    /// Credits the losses of one delivered batch. A report may be late, partial or missing. `None`
    /// if the session is not there.
    pub(crate) fn report(&mut self, session: SessionId, batch: BatchId, losses: &[f32]) -> Option<Reported> {
        let state = self.ranks.iter_mut().find(|rank| rank.id == session)?;
        let (id, of_rank) = (state.job, state.rank);
        let job = self.jobs.get_mut(id)?;
        let Some(delivered) = state.delivered.get_mut(&batch) else {
            return Some(Reported { job: id, rank: of_rank, losses: None });
        };
        let is_shared = job.strata.count() > 1 || job.shared_scores.is_some();
        let keeps = job.spec.plan.samplers().any(|of| matches!(of, Sampler::Infobatch | Sampler::Seta));
        let rank = match keeps {
            true => keep_losses,
            false if is_shared => rank_portably,
            false => rank,
        };
        let ranked = rank(&delivered.samples, losses);
        let rows = delivered.samples.len().min(losses.len());
        let new_rows = rows.saturating_sub(delivered.reported) as u64;
        delivered.reported = delivered.reported.max(rows);
        if rows > 0 {
            job.reports.come();
        }
        let is_current = job.epoch() == Some(batch.epoch);
        let order = batch.number.saturating_mul(job.spec.world_size).saturating_add(of_rank);
        let mut rescored = Vec::with_capacity(ranked.scores.len());
        for (sample, score) in ranked.scores {
            if job.keeps_score_of(sample) && job.scored_at.decides(sample.index(), order, is_current) {
                job.importance.set_score(sample, score);
                job.has_scored(sample);
                rescored.push(sample);
            }
        }
        if self.jobs.admits_job(id) {
            rescored.iter().for_each(|&sample| self.jobs.aggregate(sample));
        } else {
            rescored.clear();
        }
        let losses = Losses { new_rows, nonfinite: ranked.nonfinite, is_current, rescored };
        Some(Reported { job: id, rank: of_rank, losses: Some(losses) })
    }
}
