//! What came of a batch: it counts against the limit of bad rows, and is delivered or not.

use shade_formats::SampleId;

use super::Training;
use super::job::Job;
use crate::bad_share::{Outcome, RowCounts};
use crate::ids::{BatchId, SessionId};

impl Training {
    /// Counts a complete batch of a rank. Returns why it is not delivered.
    pub(crate) fn judge(&mut self, session: SessionId, outcome: &Outcome<'_>) -> Option<String> {
        let rank = self.rank(session)?.rank;
        self.job_of_mut(session)?.judge(rank, outcome)
    }

    /// A batch is delivered, or left out because it is void: its rows have these samples, without
    /// padding the `real` ones. `has_reports` says whether the trainer has ever reported a loss.
    pub(crate) fn deliver(
        &mut self,
        session: SessionId,
        batch: BatchId,
        samples: impl Iterator<Item = SampleId>,
        real: Vec<SampleId>,
        has_reports: bool,
    ) {
        let Some(job) = self.job_of_mut(session) else { return };
        for sample in samples {
            if job.keeps_score_of(sample) {
                job.record_delivery(sample, batch.epoch);
            }
        }
        // A trainer that never reports has only its last batches to begin with.
        let awaits_losses = job.spec.plan.is_by_importance() || has_reports;
        if let Some(rank) = self.rank_mut(session) {
            rank.deliver(batch, real, awaits_losses);
        }
    }
}

impl Job {
    fn judge(&mut self, rank: u32, outcome: &Outcome<'_>) -> Option<String> {
        let &Outcome { batch, counts, faults, void } = outcome;
        let planned = self.plan().map_or(0, |plan| self.rows_here(plan));
        let current = &mut self.current;
        current.faults.extend(faults);
        current.row_counts[rank as usize].add(counts);
        let mut of_all = RowCounts::default();
        current.row_counts.iter().for_each(|&of_rank| of_all.add(of_rank));
        let excess = of_all.excess(&self.spec, batch.epoch, planned, &current.faults);
        // A single rank goes without the batch. Several ranks must have the same number, and some
        // may have theirs already.
        let rows = void.filter(|_| self.spec.world_size > 1);
        excess.or_else(|| {
            let BatchId { epoch, number } = batch;
            Some(format!(
                "batch {number} of epoch {epoch} has no sample left, all {} were skipped, and no rank may have \
                 fewer batches than the others: {faults}",
                rows?,
            ))
        })
    }
}
