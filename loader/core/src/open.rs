//! Opening of batches where a ring has room: rows are laid out, and every sample is looked up.

use std::hint::black_box;
use std::sync::Arc;

use shade_formats::FormatError;
use shade_formats::ring::{BatchLayout, FLAG_PADDING};
use shade_formats::trace::{Line, Open, Served};
use shade_formats::{SampleId, Size};
use shade_job::{ImageSpec, OnError, Output};

use crate::action::Action;
use crate::batch_fields::BatchFields;
use crate::batches::{BatchRow, NewBatch, RowState};
use crate::brain::Core;
use crate::figures::Accesses;
use crate::ids::{BatchId, JobId, RowId, SessionId};
use crate::importance::Importance;
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::Ticket;
use crate::plan::Slot;
use crate::samples::Samples;
use crate::sizes::{batch_layout, row_bytes, same_class};
use crate::trace::{open_line, trace};
use crate::training::{Job, Planned, Rank};

/// Batches opened before their rows go to workers. An epoch begins with a whole ring to open, while
/// the workers are idle.
const OPENED_AT_ONCE: usize = 2;

/// A batch to open. The least is opened first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NextBatch {
    /// It is of the next epoch.
    is_ahead: bool,
    number: u32,
    rank: u32,
    session: SessionId,
}

impl<M: Memory> Core<M> {
    /// Opens some batches of each job. Returns `true` if there may be more to open.
    pub(super) fn open_batches(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        let mut can_go_on = false;
        for at in 0..self.training.jobs().len() {
            let Some(job) = self.training.jobs().iter().nth(at).map(Job::id) else { break };
            can_go_on |= self.open_batches_of(job, now_ns, actions);
        }
        can_go_on
    }

    /// Opens some batches of a job, the first of the plan first, so that no rank gets ahead of
    /// others.
    fn open_batches_of(&mut self, job: JobId, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        // The sessions whose rings turned out to have no room.
        let mut full = Vec::new();
        let mut opened = 0;
        while opened < OPENED_AT_ONCE {
            let Some(next) = self.next_batch(job, &full) else { return false };
            let session = next.session;
            if self.open_batch(job, next, now_ns, actions) {
                opened += 1;
            } else {
                full.push(session);
            }
        }
        true
    }

    /// The batch of the job that is opened next: of its epoch, or of the next one in the rings of
    /// ranks that have all of this one, unless a ring is `full`.
    fn next_batch(&mut self, job: JobId, full: &[SessionId]) -> Option<NextBatch> {
        let of_job = self.training.job(job)?;
        let (epoch, batches) = (of_job.epoch()?, of_job.batches_per_epoch());
        let batches_ahead = of_job.planned(true).map_or(0, |ahead| ahead.batches_per_epoch());
        self.number_ends(job, epoch, batches);
        let of_rank = |rank: &Rank| {
            let request = rank.request().filter(|request| request.epoch == epoch)?;
            let session = rank.session();
            if full.contains(&session) || !self.batches.may_open(session) {
                return None;
            }
            let is_ahead = request.next_batch >= batches;
            let number = if is_ahead { self.batches.held(session) } else { request.next_batch };
            let has_end = || request.ended || self.batches.has_end(session, request.generation);
            let is_there = !is_ahead || (number < batches_ahead && has_end());
            is_there.then_some(NextBatch { is_ahead, number, rank: rank.number(), session })
        };
        self.training.ranks_of(job).filter_map(of_rank).min()
    }

    /// Opens a batch. Returns `false` if its ring has no room.
    fn open_batch(
        &mut self,
        job_id: JobId,
        NextBatch { is_ahead, number, rank: of_rank, session }: NextBatch,
        now_ns: u64,
        actions: &mut Vec<Action<M>>,
    ) -> bool {
        if !is_ahead {
            self.look_ahead(job_id, now_ns);
            self.exchange(job_id, number);
        }
        let Some(job) = self.training.job(job_id) else { return false };
        let Some(planned) = job.planned(is_ahead) else { return false };
        let epoch = planned.epoch();
        let (slots, output) = (planned.batch(number, of_rank), Arc::clone(planned.output(number)));
        let mut rows = plan_rows(&planned, &output, &slots, &*self.index);
        let data_len = rows.last().map_or(0, |row| row.offset + row.room);
        let capacity = to_u32(rows.len());
        let ring_bytes = self.batches.payload_bytes(session);
        let laid_out = batch_layout(&output, capacity.max(1), data_len);
        let laid_out =
            laid_out.and_then(|layout| Ok((layout, fields_of(job, &output, &rows, &*self.index)?)));
        let wanted = laid_out.as_ref().map_or(data_len, block_bytes);
        let laid_out = match laid_out {
            Ok(laid_out) if block_bytes(&laid_out) <= ring_bytes => laid_out,
            // Its epoch may never be asked for.
            _ if is_ahead => {
                self.batches.mark_full(session);
                return false;
            }
            // Only where a sample was drawn far more often than chance would have it.
            _ => {
                let text = too_long(BatchId { epoch, number }, wanted, ring_bytes);
                actions.push(Action::Close(session, text));
                return false;
            }
        };
        let bytes = block_bytes(&laid_out);
        let (layout, fields) = laid_out;
        let Some(reserved) = self.batches.reserve(session, bytes, now_ns) else { return false };
        let data = reserved.offset + layout.data;
        let fields =
            fields.map(|fields| Arc::new(BatchFields { at: reserved.offset + layout.fields_at(), ..fields }));
        rows.iter_mut().for_each(|row| row.offset += data);
        touch_scores(job.importance(), &rows);
        self.records.touch_all(rows.iter().map(|row| row.sample));
        self.training.opened(job_id, reserved.slot_wait_ns > 0);
        let accesses: Vec<_> = rows.iter().map(|row| row.sample).zip(slots).collect();
        let generation = (!is_ahead).then(|| self.training.begin_batch(session));
        let id = BatchId { epoch, number };
        let ticket = self.batches.open(
            session,
            NewBatch { id, generation, reserved, layout, output, fields, rows },
            now_ns,
        );
        let line = || open_line(now_ns, of_rank, id, ticket.seq, accesses.len());
        let traced = self.figures.observer(job_id).map(|observer| (observer, line()));
        let traced = self.look_up(job_id, ticket, &accesses, is_ahead, traced);
        let traced = self.batches.keep_line(ticket, traced);
        actions.extend(traced.map(|(observer, open)| trace(observer, Line::Open(open))));
        true
    }

    /// Looks up the samples of a batch that was opened, and is held for its epoch or not. Completes
    /// its line of the trace.
    fn look_up(
        &mut self,
        job: JobId,
        ticket: Ticket,
        accesses: &[(SampleId, Slot)],
        is_held: bool,
        mut traced: Option<(SessionId, Open)>,
    ) -> Option<(SessionId, Open)> {
        let Ticket { session, seq } = ticket;
        let wanted = self.wanted_by(job);
        let has_exchanged = !is_held && self.training.has_exchanged(job);
        let mut counts = Accesses::default();
        for (position, &(sample, slot)) in (0..).zip(accesses) {
            if !is_held {
                self.foresee(job, sample, slot);
            }
            let row = RowId { session, seq, position };
            let mut served = self.access(wanted, sample, row);
            let was_exchanged = has_exchanged && self.training.was_exchanged(job, slot.place);
            if was_exchanged && matches!(served, Served::Hit | Served::Prefetched) {
                served = Served::Exchanged;
            }
            counts.count(served);
            if let Some((_, open)) = &mut traced {
                open.ids.push(sample.0);
                open.served.push(served.letter());
            }
        }
        self.count_accesses(job, ticket, &counts);
        traced
    }

    /// Adds accesses to the counts of their batch, their epoch and their job.
    pub(super) fn count_accesses(&mut self, job: JobId, ticket: Ticket, accesses: &Accesses) {
        if !self.batches.count(ticket, accesses) {
            self.count(job, |counts| counts.add(accesses));
        }
    }
}

/// Room for the extra fields of these rows; `None` where the job wants none.
fn fields_of(
    job: &Job,
    output: &Output,
    rows: &[BatchRow],
    index: &dyn Samples,
) -> Result<Option<BatchFields>, FormatError> {
    if job.fields().is_empty() {
        return Ok(None);
    }
    let rooms = rows.iter().map(|row| job.fields_room(index, row.sample, row.entry.label));
    BatchFields::new(job.fields(), &output.shapes(), rooms).map(Some)
}

/// Bytes of a batch's block.
fn block_bytes((layout, fields): &(BatchLayout, Option<BatchFields>)) -> u64 {
    fields.as_ref().map_or(layout.total, |fields| layout.fields_at().saturating_add(fields.columns.total))
}

/// Why a batch cannot be delivered: it is longer than its ring.
fn too_long(BatchId { epoch, number }: BatchId, bytes: u64, ring_bytes: u64) -> String {
    format!(
        "batch {number} of epoch {epoch} has {bytes} bytes of records and fields, more than its ring of {ring_bytes}, \
         as some long sample comes in it many times: give Daemon(ring={}), or lower batch_size",
        bytes.saturating_mul(3)
    )
}

/// Touches the scores of `rows`: see `Records::touch_all`.
fn touch_scores(importance: &Importance, rows: &[BatchRow]) {
    // The value is of no use.
    black_box(rows.iter().map(|row| importance.uses(row.sample)).max());
}

/// The rows of a planned batch, each with its place in the batch's data.
fn plan_rows(planned: &Planned<'_>, output: &Output, slots: &[Slot], index: &dyn Samples) -> Vec<BatchRow> {
    let job = planned.job;
    let first_view_bytes = output.views().first().map(ImageSpec::bytes);
    // All entries first, so that their memory comes at the same time, as in `touch_all`. Without
    // their samples: a pair is copied in three steps that wait for each other.
    let entries: Vec<_> = slots.iter().map(|slot| index.entry(planned.sample(slot)?)).collect();
    let mut offset = 0;
    let mut rows = Vec::with_capacity(slots.len());
    for (slot, entry) in slots.iter().zip(entries) {
        let (Some(sample), Some(entry)) = (planned.sample(slot), entry) else { continue };
        let len = row_bytes(output, &entry).unwrap_or_else(|_| room_bytes(job, index, sample));
        let room = len.max(job.room_of(sample, entry.label));
        let weight = planned.weight(slot);
        let flags = if slot.padding { FLAG_PADDING } else { 0 };
        let (state, size) = (RowState::Waiting, Size::default());
        let drawn = planned.drawn(sample, *slot);
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
        offset += first_view_bytes.unwrap_or(room);
    }
    rows
}

/// Bytes reserved for the row of `sample`. An unknown size is a fault: then those of its
/// substitute, if it gets one.
fn room_bytes(job: &Job, index: &dyn Samples, sample: SampleId) -> u64 {
    let own = index.entry(sample).and_then(|entry| row_bytes(job.output(), &entry).ok());
    let substitute = || match job.spec().on_error {
        OnError::Substitute => same_class(index, job.strata(), &job.spec().plan.parts, sample)
            .find_map(|(_, entry)| row_bytes(job.output(), &entry).ok()),
        OnError::Raise | OnError::Skip => None,
    };
    own.or_else(substitute).unwrap_or(0)
}
