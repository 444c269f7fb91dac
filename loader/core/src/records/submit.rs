//! Reads are submitted, oldest first, and end.

use shade_formats::SampleId;
use shade_formats::index::Entry;

use super::reading::Wanted;
use super::{Demand, Records};
use crate::action::Action;
use crate::event::SessionId;
use crate::figures::Figures;
use crate::ids::{JobId, RowId};
use crate::memory::Memory;
use crate::orders::{Completion, Fault, ReadOp};

/// Limit of the records in flight where reads bring several. It is higher if the depth is higher.
const RECORDS_MAX: usize = 512;

/// A record that has come, with the rows that get it.
pub(crate) struct Arrival<M: Memory> {
    /// The job that wanted it first, and whether one that wants it keeps records in the cache.
    pub(crate) wanted: Wanted,
    pub(crate) sample: SampleId,
    /// Stored length in bytes.
    pub(crate) len: u32,
    pub(crate) record: M::Record,
    pub(crate) rows: Vec<RowId>,
}

/// What became of a read.
pub(crate) enum Landed<M: Memory> {
    /// Its record.
    Came(Arrival<M>),
    /// A fault, and the rows that wait for the record.
    Failed(SampleId, Fault, Vec<RowId>),
}

impl<M: Memory> Records<M> {
    /// The depth of reads has changed.
    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.reads_submitted_max = depth.saturating_mul(2).min(self.reads_max);
    }

    /// Submits queued reads, oldest first, each with its neighbours, while blocks allow.
    pub(crate) fn submit(
        &mut self,
        now_ns: u64,
        demand: Demand<'_>,
        figures: &mut Figures,
        actions: &mut Vec<Action<M>>,
    ) {
        let reads_max = self.reads_submitted_max as usize;
        // Each read of neighbours takes a bounce buffer. The engine reads them one by one when it
        // has none left.
        let records_max = reads_max.max(RECORDS_MAX);
        let deadline = |job: JobId| {
            let of_job = demand.runs_dry.iter().find(|(of, _)| *of == job);
            of_job.map_or(u64::MAX, |&(_, runs_dry_in_ns)| runs_dry_in_ns)
        };
        let share = (reads_max / (2 * demand.jobs.len().max(1))).max(1);
        while self.reading.flights.in_flight() < reads_max
            && self.reading.flights.records_in_flight() < records_max
        {
            let Some((job, first)) = self.reading.next(&*self.index, share, deadline) else { return };
            // Without room it waits until a fill gives some back.
            let Some(op) = self.read_op(first) else { return };
            if demand.has_begun && demand.jobs.admits_job(job) {
                self.widen(job, first, demand.jobs, figures);
                self.bring_package(job, first, demand.jobs, figures);
            }
            let records = self.reading.find_group(first, op.shard, op.offset);
            let mut first_op = Some(op);
            let mut ops = Vec::new();
            if records > 1 {
                ops.reserve(records);
                for at in 0..records {
                    let Some(sample) = self.reading.member(at) else { break };
                    ops.extend(if sample == first { first_op.take() } else { self.neighbour_op(sample) });
                }
            }
            let samples = first_op.iter().chain(&ops).map(|op| op.sample);
            self.reading.submitted(job, samples, now_ns);
            let records = (ops.len() + usize::from(first_op.is_some())) as u64;
            let between = bytes_between(&ops);
            figures.count(job, |counts| {
                counts.reads += 1;
                counts.coalesced += records - 1;
                counts.bytes_between += between;
            });
            actions.push(match first_op {
                Some(op) => Action::Read(op),
                None => Action::ReadTogether(ops),
            });
        }
    }

    /// The read of a record as part of the next flight; `None` if no blocks are free for it.
    pub(super) fn read_op(&mut self, sample: SampleId) -> Option<ReadOp<M::Room>> {
        let entry = self.index.entry(sample)?;
        let Entry { shard, offset, stored_len: len, .. } = entry;
        let crc32c = self.index.checksum(sample, &entry);
        let blocks = self.memory.take(u64::from(len))?;
        let (flight, recheck) = (self.reading.flights.next_id(), self.reading.is_rechecked(sample));
        Some(ReadOp { flight, sample, shard, offset, len, crc32c, recheck, blocks })
    }

    /// The read of a neighbour. If no blocks are free the neighbour waits for its turn.
    fn neighbour_op(&mut self, sample: SampleId) -> Option<ReadOp<M::Room>> {
        let op = self.read_op(sample);
        if op.is_none() {
            self.reading.put_back(sample, &*self.index);
        }
        op
    }

    /// A read has ended.
    pub(crate) fn landed(
        &mut self,
        now_ns: u64,
        Completion { op, outcome, checked, latency }: Completion<M::Room>,
        figures: &mut Figures,
    ) -> Landed<M> {
        let ReadOp { flight, sample, len, blocks, .. } = op;
        self.late_reads.latencies.add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        let ended = self.reading.completed(flight, sample, now_ns);
        figures.count(ended.job, |counts| counts.bytes_read += u64::from(len));
        match outcome {
            Ok(()) => {
                let record = M::record(blocks, checked);
                Landed::Came(Arrival { wanted: ended.wanted, sample, len, record, rows: ended.rows })
            }
            Err(fault) => {
                self.memory.give(blocks);
                self.prefetched.completed(sample, ended.job, false);
                Landed::Failed(sample, fault, ended.rows)
            }
        }
    }

    /// No row of these batches of `session` waits any more.
    pub(crate) fn forget(&mut self, session: SessionId, is_dropped: impl Fn(u64) -> bool) {
        self.reading.forget(session, is_dropped);
    }
}

/// Bytes between records that are read together, by offset.
fn bytes_between<R>(ops: &[ReadOp<R>]) -> u64 {
    let Some((first, last)) = ops.first().zip(ops.last()) else { return 0 };
    let end = last.offset.saturating_add(u64::from(last.len));
    let records: u64 = ops.iter().map(|op| u64::from(op.len)).sum();
    end.saturating_sub(first.offset).saturating_sub(records)
}
