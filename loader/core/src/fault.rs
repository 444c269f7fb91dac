//! A bad record: named by shard, offset and original path, then raised, skipped or substituted.

use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_job::OnError;

use crate::action::Action;
use crate::brain::Core;
use crate::figures::Accesses;
use crate::ids::RowId;
use crate::memory::Memory;
use crate::orders::Ticket;
use crate::sizes::{row_bytes, same_class};

/// Limit of the substitutes tried for one bad record; then it is raised.
const SUBSTITUTES_MAX: u32 = 16;

impl<M: Memory> Core<M> {
    /// A row's record is bad: `on_error` decides. A skipped or substituted row counts when its
    /// batch is delivered.
    pub(super) fn row_fault(&mut self, row: RowId, text: &str, actions: &mut Vec<Action<M>>) {
        if !self.batches.is_wanted(row) {
            return;
        }
        let Some(job) = self.training.job_of(row.session) else { return };
        let (job, on_error) = (job.id(), job.spec().on_error);
        self.count(job, |counts| counts.faults += 1);
        let substitute = if on_error == OnError::Substitute { self.substitute(row) } else { None };
        match (on_error, substitute) {
            (OnError::Skip, _) => {
                self.batches.skip(row, text);
                actions.push(Action::BadRecord(format!("skipped {text}")));
            }
            (OnError::Substitute, Some((sample, entry, len))) => {
                if self.batches.substitute(row, sample, entry, len, text) {
                    actions.push(Action::BadRecord(format!("substituted sample {sample} for {text}")));
                }
                let mut counts = Accesses::default();
                counts.count(self.access(self.wanted_by(job), sample, row));
                self.count_accesses(job, Ticket { session: row.session, seq: row.seq }, &counts);
            }
            (OnError::Raise | OnError::Substitute, _) => self.batches.fail(row, text),
        }
    }

    /// The store failed, not the record: an error whatever `on_error` says. Skipping would skip all
    /// records that lie there.
    pub(super) fn row_error(&mut self, row: RowId, text: &str) {
        if !self.batches.is_wanted(row) {
            return;
        }
        self.batches.fail(row, text);
        if let Some(job) = self.job_id_of(row.session) {
            self.count(job, |counts| counts.faults += 1);
        }
    }

    /// A worker found a wrong checksum: `record` leaves the cache. The first time, `row` waits for
    /// a second read, as the transfer may be at fault and not the disk. Returns whether it does.
    pub(super) fn read_again(&mut self, row: RowId, sample: SampleId, record: &M::Record) -> bool {
        let job = self.job_id_of(row.session);
        if self.records.drop_damaged(sample, record) {
            job.into_iter().for_each(|job| self.count(job, |counts| counts.evicted += 1));
        }
        let Some(job) = job.filter(|_| self.batches.reread(row)) else { return false };
        self.access(self.wanted_by(job), sample, row);
        self.records.recheck(sample);
        true
    }

    /// The substitute for a row's sample, with its bytes: the next sample by id, from 0 again after
    /// the last, that the job may draw, has the same label and fits into the row. Deterministic, so
    /// that a second run delivers the same.
    fn substitute(&self, row: RowId) -> Option<(SampleId, Entry, u64)> {
        let target = self.batches.row(row)?;
        let job = self.training.job_of(row.session)?;
        let output = self.batches.output(row)?;
        if target.substitutes >= SUBSTITUTES_MAX {
            return None;
        }
        let fields_room = self.batches.fields_room(row);
        same_class(&*self.index, job.strata(), &job.spec().plan.parts, target.sample).find_map(
            |(candidate, entry)| {
                let len = row_bytes(output, &entry).ok()?;
                let fits = len <= target.room && job.fields_bytes(&*self.index, candidate) <= fields_room;
                (fits && job.has_weight(candidate)).then_some((candidate, entry, len))
            },
        )
    }
}
