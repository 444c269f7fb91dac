//! A bad record: named by shard, offset and original path, then raised, skipped or substituted.

use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_formats::ring::FLAG_SUBSTITUTED;
use shade_job::OnError;

use crate::action::Action;
use crate::batch::{BatchRow, RowId, RowState};
use crate::brain::Core;
use crate::figures::Accesses;
use crate::memory::Memory;
use crate::orders::Ticket;
use crate::sizes::{row_bytes, same_class};

/// Limit of the substitutes tried for one bad record; then it is raised.
const SUBSTITUTES_MAX: u32 = 16;

impl<M: Memory> Core<M> {
    /// A row's record is bad: `on_error` decides. A skipped or substituted row counts when its
    /// batch is delivered.
    pub(super) fn row_fault(&mut self, row: RowId, text: &str, actions: &mut Vec<Action<M>>) {
        let Some(batch) = self.batch_mut(row.session, row.seq) else { return };
        if batch.abandoned {
            return batch.finish(row.position, RowState::Skipped);
        }
        let Some(job) = self.job_of(row.session) else { return };
        let (job, on_error) = (job.id, job.spec.on_error);
        self.count(job, |counts| counts.faults += 1);
        let substitute = if on_error == OnError::Substitute { self.substitute(row) } else { None };
        let Some(batch) = self.batch_mut(row.session, row.seq) else { return };
        match (on_error, substitute) {
            (OnError::Skip, _) => {
                batch.finish(row.position, RowState::Skipped);
                let is_sample = batch.rows.get(row.position as usize).is_some_and(BatchRow::is_sample);
                batch.skipped += u32::from(is_sample);
                batch.faults.push(text);
                actions.push(Action::BadRecord(format!("skipped {text}")));
            }
            (OnError::Substitute, Some((sample, entry, len))) => {
                let Some(target) = batch.rows.get_mut(row.position as usize) else { return };
                let first = target.flags & FLAG_SUBSTITUTED == 0;
                target.flags |= FLAG_SUBSTITUTED;
                (target.sample, target.entry) = (sample, entry);
                target.len = len;
                target.substitutes += 1;
                target.reread = false;
                batch.unready(row.position);
                if first {
                    batch.faults.push(text);
                    actions.push(Action::BadRecord(format!("substituted sample {sample} for {text}")));
                }
                let mut counts = Accesses::default();
                counts.count(self.access(self.wanted_by(job), sample, row));
                self.count_accesses(job, Ticket { session: row.session, seq: row.seq }, &counts);
            }
            (OnError::Raise | OnError::Substitute, _) => {
                batch.finish(row.position, RowState::Skipped);
                batch.failure.get_or_insert_with(|| text.to_owned());
            }
        }
    }

    /// The store failed, not the record: an error whatever `on_error` says. Skipping would skip all
    /// records that lie there.
    pub(super) fn row_error(&mut self, row: RowId, text: &str) {
        let Some(batch) = self.batch_mut(row.session, row.seq) else { return };
        batch.finish(row.position, RowState::Skipped);
        if batch.abandoned {
            return;
        }
        batch.failure.get_or_insert_with(|| text.to_owned());
        if let Some(job) = self.session(row.session).map(|session| session.job) {
            self.count(job, |counts| counts.faults += 1);
        }
    }

    /// A worker found a wrong checksum: `record` leaves the cache. The first time, `row` waits for
    /// a second read, as the transfer may be at fault and not the disk. Returns whether it does.
    pub(super) fn read_again(&mut self, row: RowId, sample: SampleId, record: &M::Record) -> bool {
        let job = self.session(row.session).map(|session| session.job);
        if self.records.drop_damaged(sample, record) {
            job.into_iter().for_each(|job| self.count(job, |counts| counts.evicted += 1));
        }
        let Some(job) = job else { return false };
        let Some(batch) = self.batch_mut(row.session, row.seq) else { return false };
        let abandoned = batch.abandoned;
        let Some(target) = batch.rows.get_mut(row.position as usize) else { return false };
        if abandoned || target.reread {
            return false;
        }
        target.reread = true;
        batch.unready(row.position);
        self.access(self.wanted_by(job), sample, row);
        self.records.recheck(sample);
        true
    }

    /// The substitute for a row's sample, with its bytes: the job's next sample by id, from 0 again
    /// after the last, that has the same label and fits into the row. Deterministic, so that a
    /// second run delivers the same.
    fn substitute(&mut self, row: RowId) -> Option<(SampleId, Entry, u64)> {
        let target = self.batch_mut(row.session, row.seq)?.rows.get(row.position as usize)?.clone();
        let job = self.job_of(row.session)?;
        let output = &job.output;
        if target.substitutes >= SUBSTITUTES_MAX {
            return None;
        }
        same_class(&*self.index, &job.strata, target.sample).find_map(|(candidate, entry)| {
            let len = row_bytes(output, &entry).ok()?;
            (len <= target.room).then_some((candidate, entry, len))
        })
    }
}
