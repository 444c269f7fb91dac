//! Records on their way from storage: which rows wait for them, in which order they are requested,
//! which read brings them.

use std::collections::VecDeque;

use foldhash::HashMap;
use shade_formats::limits::SPAN_BYTES_MAX;
use shade_formats::{SampleId, ShardId};

use super::flights::{FlightId, Flights};
use super::neighbours::Neighbours;
use super::read_queues::ReadQueues;
use crate::event::SessionId;
use crate::ids::{JobId, RowId};
use crate::samples::Samples;

/// The records to read. Single flight: a record is requested once, however many rows wait for it.
#[derive(Debug)]
pub(super) struct Reading {
    pending: HashMap<SampleId, PendingRead>,
    /// Pending records to request. Those that went with a neighbour, or for another job, are still
    /// in them.
    queues: ReadQueues,
    neighbours: Neighbours,
    /// Pending records to ask the tier for.
    from_tier: VecDeque<SampleId>,
    asked_of_tier: usize,
    pub(super) flights: Flights,
    /// The group that was found last, with offsets; kept for its memory.
    group: Vec<(u64, SampleId)>,
}

/// A job that wants a record, and whether it keeps records in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) job: JobId,
    pub(crate) admits: bool,
}

/// Where a record is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// The store: alone or with its neighbours.
    #[default]
    Store,
    /// The tier. If that does not bring it, the store.
    Tier,
}

/// A record that is queued or in flight.
#[derive(Debug, Default)]
struct PendingRead {
    /// The job that wanted it first, and whether one of those that want it keeps records in the
    /// cache.
    wanted: Wanted,
    waiting: Vec<RowId>,
    /// It is read even if no row waits.
    is_prefetch: bool,
    /// It was read before with a wrong checksum.
    recheck: bool,
    source: Source,
    /// The tier was asked for it.
    is_asked: bool,
    /// A flight will bring it. Until there is one it is queued.
    is_in_flight: bool,
}

/// A record that has come, or a fault.
#[derive(Debug)]
pub(super) struct Ended {
    /// The flight's job.
    pub(super) job: JobId,
    /// The job that wanted the record first, and whether one that wants it keeps records in the
    /// cache.
    pub(super) wanted: Wanted,
    /// The rows that get it.
    pub(super) rows: Vec<RowId>,
}

impl Reading {
    /// Nothing to read. Neighbours up to `gap_bytes_max` apart are read together.
    pub(super) fn new(gap_bytes_max: u32) -> Self {
        Self {
            pending: HashMap::default(),
            queues: ReadQueues::default(),
            neighbours: Neighbours::new(gap_bytes_max, SPAN_BYTES_MAX),
            from_tier: VecDeque::new(),
            asked_of_tier: 0,
            flights: Flights::default(),
            group: Vec::new(),
        }
    }

    /// Neighbours up to `gap_bytes_max` apart are read together from now on.
    pub(super) fn set_gap(&mut self, gap_bytes_max: u32) {
        self.neighbours.set_gap(gap_bytes_max);
    }

    /// `row` of `job` needs the record of `sample`. Returns `false` if it is pending already: then
    /// the row joins.
    pub(super) fn request(
        &mut self,
        wanted: Wanted,
        sample: SampleId,
        row: RowId,
        source: Source,
        index: &dyn Samples,
    ) -> bool {
        if let Some(read) = self.pending.get_mut(&sample) {
            read.waiting.push(row);
            read.wanted.admits |= wanted.admits;
            if read.wanted.job != wanted.job && !read.is_in_flight && read.source == Source::Store {
                // It may be this job's turn first.
                self.queues.push(wanted.job, sample);
            }
            return false;
        }
        self.queue(
            sample,
            PendingRead { wanted, source, waiting: vec![row], ..PendingRead::default() },
            index,
        );
        true
    }

    /// Requests a record for `job`, which keeps records in the cache, that is not pending and no
    /// row waits for.
    pub(super) fn prefetch(&mut self, job: JobId, sample: SampleId, index: &dyn Samples) {
        self.queue(
            sample,
            PendingRead { wanted: Wanted { job, admits: true }, is_prefetch: true, ..PendingRead::default() },
            index,
        );
    }

    fn queue(&mut self, sample: SampleId, read: PendingRead, index: &dyn Samples) {
        let (job, source) = (read.wanted.job, read.source);
        self.pending.insert(sample, read);
        if source == Source::Tier {
            return self.from_tier.push_back(sample);
        }
        self.queues.push(job, sample);
        if let Some(entry) = index.entry(sample)
            && entry.stored_len > 0
        {
            self.neighbours.insert(sample, entry.shard, entry.offset, entry.stored_len);
        }
    }

    /// The pending record of `sample` was read before with a wrong checksum.
    pub(super) fn recheck(&mut self, sample: SampleId) {
        if let Some(read) = self.pending.get_mut(&sample) {
            read.recheck = true;
        }
    }

    /// Whether the record's checksum is compared on arrival.
    pub(super) fn is_rechecked(&self, sample: SampleId) -> bool {
        self.pending.get(&sample).is_some_and(|read| read.recheck)
    }

    /// Whether the record is queued or in flight.
    pub(super) fn is_pending(&self, sample: SampleId) -> bool {
        self.pending.contains_key(&sample)
    }

    /// The record to request next, and for which job: see [`ReadQueues::next`].
    pub(super) fn next(
        &mut self,
        index: &dyn Samples,
        share: usize,
        deadline: impl Fn(JobId) -> u64,
    ) -> Option<(JobId, SampleId)> {
        let (pending, neighbours) = (&mut self.pending, &mut self.neighbours);
        self.queues.drop_done(|sample| match pending.get(&sample) {
            // It was read meanwhile, and now the tier has it or is asked for it.
            Some(read) if read.is_in_flight || read.source == Source::Tier => true,
            Some(read) if read.is_prefetch || !read.waiting.is_empty() => false,
            Some(_) => {
                pending.remove(&sample);
                if let Some(entry) = index.entry(sample) {
                    neighbours.remove(entry.shard, entry.offset);
                }
                true
            }
            None => true,
        });
        self.queues.next(share, deadline)
    }

    /// Whether nothing waits to be requested.
    pub(super) fn is_drained(&mut self, index: &dyn Samples) -> bool {
        self.from_tier.is_empty() && self.next(index, 0, |_| 0).is_none()
    }

    /// The record to ask the tier for next.
    pub(super) fn next_from_tier(&mut self) -> Option<SampleId> {
        while let Some(&sample) = self.from_tier.front() {
            let read = self.pending.get(&sample).filter(|read| read.source == Source::Tier);
            match read.filter(|read| !read.is_asked) {
                Some(read) if !read.waiting.is_empty() => return Some(sample),
                Some(_) => drop(self.pending.remove(&sample)),
                None => {}
            }
            self.from_tier.pop_front();
        }
        None
    }

    /// The tier is asked for the record that [`next_from_tier`](Self::next_from_tier) returned.
    pub(super) fn ask_tier(&mut self, sample: SampleId) {
        self.from_tier.pop_front();
        self.asked_of_tier += 1;
        self.pending.entry(sample).and_modify(|read| read.is_asked = true);
    }

    /// Number of the records that the tier was asked for and has not answered.
    pub(super) fn asked_of_tier(&self) -> usize {
        self.asked_of_tier
    }

    /// The tier brought a record. Returns the job that wanted it first, whether one that wants it
    /// keeps records in the cache, and the rows that get it.
    pub(super) fn came_from_tier(&mut self, sample: SampleId) -> Option<(Wanted, Vec<RowId>)> {
        self.asked_of_tier -= 1;
        let read = self.pending.remove(&sample)?;
        Some((read.wanted, read.waiting))
    }

    /// The tier did not bring a record: it is read from the store, in the turn of the job that
    /// `job_of` finds, which is given the job that wanted it first and the rows that wait. Returns
    /// that job. If there is none, nobody wants the record any more.
    pub(super) fn not_in_tier(
        &mut self,
        sample: SampleId,
        job_of: impl Fn(JobId, &[RowId]) -> Option<JobId>,
        index: &dyn Samples,
    ) -> Option<JobId> {
        self.asked_of_tier -= 1;
        let mut read = self.pending.remove(&sample)?;
        let job = job_of(read.wanted.job, &read.waiting)?;
        (read.wanted.job, read.source, read.is_asked) = (job, Source::Store, false);
        self.queue(sample, read, index);
        Some(job)
    }

    /// `job` has ended. Returns the records that are not requested any more.
    pub(super) fn end_job(&mut self, job: JobId, index: &dyn Samples) -> Vec<SampleId> {
        let mut dropped = self.queues.end(job);
        // A record that rows of another job wait for is in the queue of that job, too.
        dropped.retain(|sample| {
            let is_needed = |read: &PendingRead| {
                read.is_in_flight || read.source == Source::Tier || !read.waiting.is_empty()
            };
            self.pending.get(sample).is_some_and(|read| !is_needed(read))
        });
        for sample in &dropped {
            self.pending.remove(sample);
            if let Some(entry) = index.entry(*sample) {
                self.neighbours.remove(entry.shard, entry.offset);
            }
        }
        dropped
    }

    /// Finds the neighbours that one read of `sample`, at `offset` of `shard`, brings along.
    /// Returns the number of records with `sample` itself.
    pub(super) fn find_group(&mut self, sample: SampleId, shard: ShardId, offset: u64) -> usize {
        self.neighbours.take(shard, offset, &mut self.group);
        if self.group.is_empty() {
            self.group.push((offset, sample));
        }
        self.group.len()
    }

    /// The record at position `at` of the group that was found last, by offset.
    pub(super) fn member(&self, at: usize) -> Option<SampleId> {
        self.group.get(at).map(|&(_, sample)| sample)
    }

    /// There was no room for `sample` of a group: it waits for another read.
    pub(super) fn put_back(&mut self, sample: SampleId, index: &dyn Samples) {
        if let Some(entry) = index.entry(sample) {
            self.neighbours.insert(sample, entry.shard, entry.offset, entry.stored_len);
        }
    }

    /// The next flight is submitted for `job`: one read of these records, at least one.
    pub(super) fn submitted(&mut self, job: JobId, samples: impl Iterator<Item = SampleId>, now_ns: u64) {
        let flight = self.flights.next_id();
        let (mut first, mut records) = (None, 0);
        for sample in samples {
            let read = self.pending.entry(sample).or_default();
            assert!(!read.is_in_flight, "sample {sample} is asked for twice");
            read.is_in_flight = true;
            first.get_or_insert(sample);
            records += 1;
        }
        let Some(first) = first else { return };
        self.queues.submitted(job, flight);
        self.flights.submitted(job, first, records, now_ns);
    }

    /// `flight` brought the record of `sample`, or a fault.
    pub(super) fn completed(&mut self, flight: FlightId, sample: SampleId, now_ns: u64) -> Ended {
        let (job, has_ended) = self.flights.landed(flight, now_ns);
        if has_ended {
            self.queues.landed(job);
        }
        let read = self.pending.remove(&sample).filter(|read| read.is_in_flight);
        let Some(PendingRead { wanted, waiting: rows, .. }) = read else {
            panic!("sample {sample} comes, and nobody asked for it")
        };
        Ended { job, wanted, rows }
    }

    /// No row of these batches of `session` waits any more.
    pub(super) fn forget(&mut self, session: SessionId, is_dropped: impl Fn(u64) -> bool) {
        for read in self.pending.values_mut() {
            read.waiting.retain(|row| row.session != session || !is_dropped(row.seq));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lens::Lens;

    const SAMPLE: SampleId = SampleId(3);

    fn wanted(job: JobId) -> Wanted {
        Wanted { job, admits: false }
    }

    fn row(seq: u64) -> RowId {
        RowId { session: 0, seq, position: 0 }
    }

    /// The tier is asked for a record for row 2 of job 1. It is still in the queue of job 2, from
    /// when it came from the store for both.
    fn asked_of_the_tier() -> Reading {
        let mut reading = Reading::new(0);
        assert!(reading.request(wanted(1), SAMPLE, row(0), Source::Store, &Lens));
        assert!(!reading.request(wanted(2), SAMPLE, row(1), Source::Store, &Lens));
        assert_eq!(reading.next(&Lens, 8, |_| 0), Some((1, SAMPLE)));
        let flight = reading.flights.next_id();
        reading.submitted(1, [SAMPLE].into_iter(), 0);
        assert_eq!(reading.completed(flight, SAMPLE, 1).rows, [row(0), row(1)]);
        assert!(reading.request(wanted(1), SAMPLE, row(2), Source::Tier, &Lens));
        assert_eq!(reading.next_from_tier(), Some(SAMPLE));
        reading.ask_tier(SAMPLE);
        reading
    }

    #[test]
    fn what_the_tier_is_asked_for_is_not_read_from_the_store_in_another_job_s_turn() {
        let mut reading = asked_of_the_tier();
        assert_eq!(reading.next(&Lens, 8, |_| 0), None);
        assert_eq!(reading.came_from_tier(SAMPLE), Some((wanted(1), vec![row(2)])));
        assert!(!reading.is_pending(SAMPLE));
    }

    #[test]
    fn what_the_tier_is_asked_for_is_pending_until_it_answers_whichever_job_ends() {
        let mut reading = asked_of_the_tier();
        reading.forget(0, |_| true);
        assert_eq!(reading.end_job(2, &Lens), []);
        assert_eq!(reading.next(&Lens, 8, |_| 0), None);
        assert!(reading.is_pending(SAMPLE));
        assert_eq!(reading.not_in_tier(SAMPLE, |_, _| None, &Lens), None);
        assert!(!reading.is_pending(SAMPLE));
    }
}
