//! Rows get their records, or are given up.

use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_formats::ring::FLAG_SUBSTITUTED;
use shade_job::Output;

use super::Batches;
use super::batch::{Batch, BatchRow, RowState};
use crate::ids::{JobId, RowId};
use crate::memory::Memory;
use crate::orders::Ticket;
use crate::training::Jobs;

impl<M: Memory> Batches<M> {
    /// The row's record is at hand: workers get the row.
    pub(crate) fn give(&mut self, row: RowId, record: M::Record) {
        if let Some(batch) = self.batch_of(row) {
            batch.ready(row.position, record);
        }
    }

    /// The row's record was read.
    pub(crate) fn give_read(&mut self, row: RowId, record: M::Record, now_ns: u64) {
        if let Some(batch) = self.batch_of(row) {
            batch.read_ns = now_ns;
            batch.ready(row.position, record);
        }
    }

    /// Lets a row have the pixels that another job of the group had decoded, or that a worker is
    /// decoding now. Returns `false` if there are none.
    pub(crate) fn join_decoded(&mut self, job: JobId, sample: SampleId, row: RowId, jobs: &Jobs) -> bool {
        if self.decoded_rows.is_empty() {
            return false;
        }
        let Ok(at) = self.find(row.session) else { return false };
        let Some(batch) = self.rings[at].batch_mut(row.seq) else { return false };
        let Some(output) = self.decoded_rows.output_of(job, batch.id.epoch, jobs) else { return false };
        let drawn = batch.rows[row.position as usize].drawn;
        let is_there = self.decoded_rows.has(output, sample, drawn);
        if is_there {
            batch.ready_decoded(row.position);
        }
        is_there
    }

    /// Whether the row is wanted. One of a batch that was abandoned ends here.
    pub(crate) fn is_wanted(&mut self, row: RowId) -> bool {
        let Some(batch) = self.batch_of(row) else { return false };
        if batch.abandoned {
            batch.finish(row.position, RowState::Skipped);
        }
        !batch.abandoned
    }

    /// The row, whose batch is open.
    pub(crate) fn row(&self, row: RowId) -> Option<&BatchRow> {
        self.open_batch(row)?.rows.get(row.position as usize)
    }

    /// What the row becomes, whose batch is open.
    pub(crate) fn output(&self, row: RowId) -> Option<&Output> {
        self.open_batch(row).map(|batch| &*batch.output)
    }

    /// Room of the row for extra fields that vary, in bytes.
    pub(crate) fn fields_room(&self, row: RowId) -> u64 {
        let fields = self.open_batch(row).and_then(|batch| batch.fields.as_ref());
        fields.map_or(0, |fields| fields.room(row.position))
    }

    fn open_batch(&self, row: RowId) -> Option<&Batch<M>> {
        self.ring(row.session)?.open.iter().find(|batch| batch.seq == row.seq)
    }

    /// The row is left out, as its record is bad.
    pub(crate) fn skip(&mut self, row: RowId, text: &str) {
        let Some(batch) = self.batch_of(row) else { return };
        batch.finish(row.position, RowState::Skipped);
        batch.skipped += u32::from(batch.rows[row.position as usize].is_sample());
        batch.faults.push(text);
    }

    /// The row waits for a substitute's record, as its own is bad. Returns whether this is its
    /// first.
    pub(crate) fn substitute(
        &mut self,
        row: RowId,
        sample: SampleId,
        entry: Entry,
        len: u64,
        text: &str,
    ) -> bool {
        let Some(batch) = self.batch_of(row) else { return false };
        let target = &mut batch.rows[row.position as usize];
        let is_first = target.flags & FLAG_SUBSTITUTED == 0;
        target.flags |= FLAG_SUBSTITUTED;
        (target.sample, target.entry) = (sample, entry);
        target.len = len;
        target.substitutes += 1;
        target.reread = false;
        batch.unready(row.position);
        if is_first {
            batch.faults.push(text);
        }
        is_first
    }

    /// The row's batch is not delivered, for this reason.
    pub(crate) fn fail(&mut self, row: RowId, text: &str) {
        let Some(batch) = self.batch_of(row) else { return };
        batch.finish(row.position, RowState::Skipped);
        batch.failure.get_or_insert_with(|| text.to_owned());
    }

    /// The row's record was damaged: it waits for a second read. Returns `false` if that was tried,
    /// or nobody wants the row.
    pub(crate) fn reread(&mut self, row: RowId) -> bool {
        let Some(batch) = self.batch_of(row) else { return false };
        let target = &mut batch.rows[row.position as usize];
        if batch.abandoned || target.reread {
            return false;
        }
        target.reread = true;
        batch.unready(row.position);
        true
    }

    pub(super) fn batch_of(&mut self, RowId { session, seq, .. }: RowId) -> Option<&mut Batch<M>> {
        self.batch_mut(Ticket { session, seq })
    }
}
