//! Opening of batches where a ring has room: rows are laid out, and every sample is looked up.

use std::hint::black_box;

use shade_formats::control::Output;
use shade_formats::ring::FLAG_PADDING;
use shade_formats::trace::{Line, Open, Served};
use shade_formats::{Geometry, SampleId, Size};

use crate::action::Action;
use crate::bad_share::Faults;
use crate::batch::{Batch, BatchRow, BatchStage, RowId, RowState};
use crate::brain::Core;
use crate::cache::Cache;
use crate::counts::Accesses;
use crate::event::SessionId;
use crate::importance::Importance;
use crate::job::{Job, JobId};
use crate::memory::Memory;
use crate::plan::{Plan, Slot};
use crate::rows::row_bytes;
use crate::samples::Samples;
use crate::session::EpochRequest;
use crate::sizes::{batch_layout, room_bytes};
use crate::trace::{open_line, trace};

/// Batches opened before their rows go to workers. An epoch begins with a whole ring to open, while
/// the workers are idle.
const OPENED_AT_ONCE: usize = 2;

impl<M: Memory> Core<M> {
    /// Opens some batches of each job. Returns `true` if there may be more to open.
    pub(super) fn open_batches(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        let mut can_go_on = false;
        for at in 0..self.jobs.len() {
            let Some(job) = self.jobs.iter().nth(at) else { break };
            can_go_on |= self.open_batches_of(job.id, now_ns, actions);
        }
        can_go_on
    }

    /// Opens some batches of a job, the first of the plan first, so that no rank gets ahead of
    /// others.
    fn open_batches_of(&mut self, job: JobId, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        let Some((epoch, batches)) =
            self.jobs.get(job).and_then(|job| Some((job.epoch()?, job.slices.batches_per_epoch())))
        else {
            return false;
        };
        let mut full: Vec<bool> = self.sessions.iter().map(|session| session.is_full).collect();
        let mut opened = 0;
        while opened < OPENED_AT_ONCE {
            let next = self
                .sessions
                .iter()
                .enumerate()
                .filter(|(at, s)| {
                    s.job == job && s.ready && full.get(*at) == Some(&false) && s.has_descriptor()
                })
                .filter_map(|(at, s)| {
                    let request = s.request.filter(|r| r.epoch == epoch && r.next_batch < batches)?;
                    Some((request.next_batch, s.rank, at))
                })
                .min();
            let Some((_, _, at)) = next else {
                self.end_epochs(job, (epoch, batches), now_ns, actions);
                return false;
            };
            if self.open_batch(job, at, now_ns, actions) {
                opened += 1;
            } else if let Some(full) = full.get_mut(at) {
                *full = true;
            }
        }
        true
    }

    /// Opens the next batch of the session at `at`. Returns `false` if its ring has no room.
    fn open_batch(&mut self, job_id: JobId, at: usize, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        self.look_ahead(job_id, now_ns);
        if let Some(request) = self.sessions.get(at).and_then(|session| session.request) {
            self.exchange(job_id, request.next_batch);
        }
        let (Some(job), Some(session)) = (self.jobs.get_mut(job_id), self.sessions.get_mut(at)) else {
            return false;
        };
        let (Some(plan), Some(request)) = (&job.plan, &mut session.request) else { return false };
        let slots = job.slices.batch(request.next_batch, session.rank, plan);
        let mut rows = plan_rows(job, &slots, plan, &*self.index);
        let data_len = rows.last().map_or(0, |row| row.offset + row.room);
        let capacity = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let layout = batch_layout(&job.spec.output, capacity.max(1), data_len);
        let ring_bytes = session.payload.bytes();
        let layout = match layout {
            Ok(layout) if layout.total <= ring_bytes => layout,
            // Only where a sample was drawn far more often than chance would have it.
            _ => {
                let text = too_long(request, data_len, ring_bytes);
                actions.push(Action::Close(session.id, text));
                return false;
            }
        };
        let Some(offset) = session.payload.reserve(layout.total) else {
            session.blocked(now_ns);
            return false;
        };
        let data = offset + layout.data;
        rows.iter_mut().for_each(|row| row.offset += data);
        let views = layout.views().len();
        let later_views = (1..views).filter_map(|view| layout.images(view)).map(|at| offset + at).collect();
        touch_all::<M>(&self.cache, &job.importance, &rows);
        let slot_wait_ns = session.blocked_since_ns.take().map_or(0, |since| now_ns.saturating_sub(since));
        job.pace.opened(slot_wait_ns > 0);
        let seq = session.next_seq;
        session.next_seq += 1;
        let accesses: Vec<_> = rows.iter().map(|row| row.sample).zip(slots).collect();
        let batch = Batch {
            seq,
            generation: request.generation,
            epoch: request.epoch,
            number: request.next_batch,
            offset,
            layout,
            later_views,
            geometry: vec![Geometry::default(); views * rows.len()],
            pending: rows.len(),
            unread: rows.len(),
            ready: Vec::with_capacity(rows.len()),
            order_rows: 0,
            rows,
            stage: BatchStage::Filling,
            failure: None,
            faults: Faults::default(),
            abandoned: false,
            hits: 0,
            misses: 0,
            skipped: 0,
            opened_ns: now_ns,
            read_ns: now_ns,
            slot_wait_ns,
            fill_ns: 0,
        };
        request.next_batch += 1;
        let traced = job.observer.map(|observer| (observer, open_line(session.rank, &batch)));
        session.open.push_back(batch);
        let session = session.id;
        let traced = self.look_up(job_id, (session, seq), &accesses, traced);
        actions.extend(traced.map(|(observer, open)| trace(observer, Line::Open(open))));
        true
    }

    /// Looks up the samples of a batch that was opened. Completes its line of the trace.
    fn look_up(
        &mut self,
        job: JobId,
        (session, seq): (SessionId, u64),
        accesses: &[(SampleId, Slot)],
        mut traced: Option<(SessionId, Open)>,
    ) -> Option<(SessionId, Open)> {
        let admits = self.admits(job);
        let has_exchanged = self.jobs.get(job).is_some_and(|job| !job.exchanged.is_empty());
        let mut counts = Accesses::default();
        for (position, &(sample, slot)) in (0..).zip(accesses) {
            self.foresee(job, sample, slot);
            let row = RowId { session, seq, position };
            let mut served = self.access((job, admits), sample, row);
            let was_exchanged = has_exchanged && self.was_exchanged(job, slot.place);
            if was_exchanged && matches!(served, Served::Hit | Served::Prefetched) {
                served = Served::Exchanged;
            }
            counts.count(served);
            if let Some((_, open)) = &mut traced {
                open.ids.push(sample.0);
                open.served.push(served.letter());
            }
        }
        self.count_accesses(job, (session, seq), &counts);
        traced
    }

    /// Adds accesses to the counts of their batch, their epoch and their job.
    pub(super) fn count_accesses(
        &mut self,
        job: JobId,
        (session, seq): (SessionId, u64),
        accesses: &Accesses,
    ) {
        if let Some(batch) = self.batch_mut(session, seq) {
            batch.hits += accesses.hits();
            batch.misses += accesses.misses();
        }
        self.count(job, |counts| counts.add(accesses));
    }
}

/// Why a batch cannot be delivered: it is longer than its ring.
fn too_long(request: &EpochRequest, data_len: u64, ring_bytes: u64) -> String {
    let EpochRequest { epoch, next_batch, .. } = request;
    format!(
        "batch {next_batch} of epoch {epoch} has {data_len} bytes of records, more than its ring of {ring_bytes}, as \
         some long record comes in it many times: give Daemon(ring={}), or lower batch_size",
        data_len.saturating_mul(3)
    )
}

/// Touches the memory that accesses to `rows` need. One after the other, each access would wait for
/// its own cache lines. Touched together they come at the same time, which saves a quarter of a hit
/// (`shade-benches core`).
fn touch_all<M: Memory>(cache: &Cache<M::Record>, importance: &Importance, rows: &[BatchRow]) {
    let residents = || rows.iter().filter_map(|row| cache.get(row.sample));
    let uses = rows.iter().map(|row| importance.uses(row.sample)).max();
    let holders = residents().map(M::holders).max();
    let checked = residents().filter(|record| M::is_checked(record)).count();
    // The values are of no use.
    black_box((uses, holders, checked));
}

/// The rows of a planned batch, each with its place in the batch's data.
fn plan_rows(job: &Job, slots: &[Slot], plan: &Plan, index: &dyn Samples) -> Vec<BatchRow> {
    let spec = &job.spec;
    let sample_of = |slot: &Slot| plan.ids.get(slot.place as usize).copied();
    // All entries first, so that their memory comes at the same time, as in `touch_all`. Without
    // their samples: a pair is copied in three steps that wait for each other.
    let entries: Vec<_> = slots.iter().map(|slot| index.entry(sample_of(slot)?)).collect();
    let mut offset = 0;
    let mut rows = Vec::with_capacity(slots.len());
    for (slot, entry) in slots.iter().zip(entries) {
        let (Some(sample), Some(entry)) = (sample_of(slot), entry) else { continue };
        let len = row_bytes(&spec.output, &entry)
            .unwrap_or_else(|_| room_bytes(spec, (index, &job.strata), sample));
        let room = len.max(job.rooms.of(entry.label));
        let of_place = plan.weights.get(slot.place as usize).copied().unwrap_or(1.0);
        let weight = if slot.padding { 0.0 } else { of_place };
        let flags = if slot.padding { FLAG_PADDING } else { 0 };
        let (state, size) = (RowState::Waiting, Size::default());
        let drawn = job.drawn_row(sample, *slot);
        rows.push(BatchRow {
            sample,
            entry,
            weight,
            flags,
            offset,
            len,
            room,
            size,
            drawn,
            state,
            substitutes: 0,
            reread: false,
        });
        // The images of each view are by themselves: `BatchLayout`.
        offset += if let Output::Decoded(views) = &spec.output { views.first().bytes() } else { room };
    }
    rows
}
