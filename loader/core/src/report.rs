//! Losses come home: ranked within their batch, credited to the samples that were in it. And scores of validations.

use shade_formats::SampleId;

use crate::action::Action;
use crate::event::SessionId;
use crate::importance::rank;
use crate::machine::Core;
use crate::memory::Memory;

/// The validation score of an epoch. Ranks that validate each a part, or all the same, are one report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Validation {
    /// The epoch that its rank had begun last; `None` before the first.
    pub(super) epoch: Option<u32>,
    /// Who reported it: the lowest rank of those that did, whatever the order in which they come.
    pub(super) rank: u32,
    /// Higher is better.
    pub(super) score: f64,
}

/// What a rank was given in a batch, to credit losses to.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivered {
    /// In the delivered order, padding left out (it stands at the end).
    pub(super) samples: Vec<SampleId>,
    /// Of how many losses came, the first so many.
    pub(super) reported: usize,
}

impl<M: Memory> Core<M> {
    /// Takes a validation score: the lowest rank's of each epoch, and its latest.
    pub(super) fn validation(&mut self, session: SessionId, score: f64) {
        let Some(job) = &mut self.job else { return };
        let Some(session) = self.sessions.iter().find(|s| s.id == session) else { return };
        // Its messages come in order: this is the epoch that it has trained on last.
        let epoch = session.wanted.map(|wanted| wanted.epoch).or(job.epoch());
        let new = Validation { epoch, rank: session.rank, score };
        match job.validation.iter_mut().rev().find(|known| known.epoch == epoch) {
            Some(known) if new.rank <= known.rank => *known = new,
            Some(_) => {}
            None => job.validation.push(new),
        }
    }

    /// Credits the losses of one delivered batch. Late, partial and missing reports are fine; a report for a batch
    /// this session was not given is counted and dropped.
    pub(super) fn report(
        &mut self,
        now_ns: u64,
        (session, epoch, batch): (SessionId, u32, u32),
        losses: &[f32],
        actions: &mut Vec<Action<M>>,
    ) {
        let Some(job) = &mut self.job else { return };
        let found = self.sessions.iter_mut().find(|s| s.id == session).and_then(|s| {
            let delivered = s.delivered.get_mut(&(epoch, batch))?;
            Some((s.rank, delivered))
        });
        let Some((of_rank, delivered)) = found else {
            return job.count(|counts| counts.unmatched_reports += 1);
        };
        let ranked = rank(&delivered.samples, losses);
        job.count(|counts| counts.nonfinite_losses += u64::from(ranked.nonfinite));
        let rows = delivered.samples.len().min(losses.len());
        let new = rows.saturating_sub(delivered.reported) as u64;
        delivered.reported = delivered.reported.max(rows);
        job.has_reports |= rows > 0;
        job.total.reported += new;
        if job.epoch() == Some(epoch) {
            job.epoch_counts.reported += new;
        }
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
