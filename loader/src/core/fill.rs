//! Batches: opened where a ring has room, their rows handed to workers, sealed, published in order.

use std::sync::Arc;

use shade_formats::control::{JobSpec, Output};
use shade_formats::index::Index;
use shade_formats::ring::{BatchLayout, Descriptor, FLAG_PADDING, Kind};
use shade_formats::trace::{Line, Served};
use shade_images::Size;

use super::action::Action;
use super::batch::{Batch, BatchRow, Progress, RowRef, RowState};
use super::job::Job;
use super::machine::Core;
use super::sizes::{layout_of, room_bytes};
use super::trace::{done_line, open_line, trace};
use crate::batches::decode::Draw;
use crate::batches::{Columns, FillFault, FillOrder, Filled, Move, Row, SealOrder, Ticket, row_bytes};
use crate::blocks::Record;
use crate::cache::Cache;
use crate::plan::{Plan, Slot};

/// Rows given to one worker at a time: few enough to spread a batch over the workers, so many that handing over costs little
/// beside filling. Of small rows as many as have [`ORDER_BYTES`].
const ORDER_ROWS: usize = 32;
const ORDER_BYTES: u64 = 192 * 1024;
/// Batches opened before their rows are handed to workers: at an epoch's start a whole ring is to be opened, and nobody has
/// anything else to do.
const OPENED_AT_ONCE: usize = 2;

impl Core {
    /// Opens some batches, the one furthest behind in the plan first, so that ranks stay abreast. `true`: there may be more to
    /// be opened.
    pub(super) fn open_batches(&mut self, now_ns: u64, actions: &mut Vec<Action>) -> bool {
        let Some(epoch) = self.job.as_ref().and_then(Job::epoch) else { return false };
        let batches = self.job.as_ref().map_or(0, |job| job.slices.batches_per_epoch());
        let mut full = vec![false; self.sessions.len()];
        let mut opened = 0;
        while opened < OPENED_AT_ONCE {
            let next = self
                .sessions
                .iter()
                .enumerate()
                .filter(|(at, s)| s.ready && full.get(*at) == Some(&false) && s.has_descriptor())
                .filter_map(|(at, s)| {
                    let wanted = s.wanted.filter(|w| w.epoch == epoch && w.next_batch < batches)?;
                    Some((wanted.next_batch, s.rank, at))
                })
                .min();
            let Some((_, _, at)) = next else {
                self.end_epochs(epoch, batches, actions);
                return false;
            };
            if self.open_batch(at, now_ns, actions) {
                opened += 1;
            } else if let Some(full) = full.get_mut(at) {
                *full = true;
            }
        }
        true
    }

    /// Opens the next batch of the session at `at`; `false` when its ring has no room.
    fn open_batch(&mut self, at: usize, now_ns: u64, actions: &mut Vec<Action>) -> bool {
        self.look_ahead();
        if let Some(wanted) = self.sessions.get(at).and_then(|session| session.wanted) {
            self.exchange(wanted.next_batch);
        }
        let (Some(job), Some(session)) = (&mut self.job, self.sessions.get_mut(at)) else { return false };
        let (Some(plan), Some(wanted)) = (&job.plan, &mut session.wanted) else { return false };
        let slots = job.slices.batch(wanted.next_batch, session.rank, plan);
        let mut rows = plan_rows(&job.spec, &slots, plan, &self.index);
        let data_len = rows.last().map_or(0, |row| row.offset + row.len);
        let capacity = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let layout = BatchLayout::new(layout_of(job.spec.output), capacity.max(1), data_len);
        // With samples that come more than once a batch can be larger than any that the ring was made for.
        let layout = match layout.and_then(|layout| session.payload.check_fits(layout.total).map(|()| layout))
        {
            Ok(layout) => layout,
            Err(error) => {
                actions.push(Action::Close(session.id, error.to_string()));
                return false;
            }
        };
        let Some(offset) = session.payload.reserve(layout.total) else {
            session.blocked_since_ns.get_or_insert(now_ns);
            return false;
        };
        for row in &mut rows {
            row.offset += offset + layout.data;
        }
        let seq = session.next_seq;
        session.next_seq += 1;
        let accesses: Vec<_> = rows.iter().map(|row| row.sample).zip(slots).collect();
        let batch = Batch {
            seq,
            generation: wanted.generation,
            epoch: wanted.epoch,
            number: wanted.next_batch,
            offset,
            layout,
            pending: rows.len(),
            ready: Vec::with_capacity(count_resident(&self.cache, &rows)),
            rows,
            progress: Progress::Filling,
            failure: None,
            abandoned: false,
            hits: 0,
            misses: 0,
            skipped: 0,
            substituted: 0,
            opened_ns: now_ns,
            read_ns: now_ns,
            slot_wait_ns: session.blocked_since_ns.take().map_or(0, |since| now_ns.saturating_sub(since)),
            fill_ns: 0,
        };
        wanted.next_batch += 1;
        let mut open = self.observed.then(|| open_line(session.rank, &batch));
        session.open.push_back(batch);
        let session = session.id;
        for (position, (sample, slot)) in (0..capacity).zip(accesses) {
            self.foresee(sample, slot);
            let row = RowRef { session, seq, position };
            let mut served = self.access(sample, row);
            if self.was_exchanged(slot.position) && served == Served::Hit {
                served = Served::Exchanged;
            }
            self.count_access(row, served);
            if let Some(open) = &mut open {
                open.ids.push(sample.0);
                open.served.push(served.letter());
            }
        }
        actions.extend(open.map(|open| trace(Line::Open(open))));
        true
    }

    /// Counts one access, in its batch, its epoch and its job.
    pub(super) fn count_access(&mut self, row: RowRef, served: Served) {
        if let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) {
            match served {
                Served::Hit | Served::Joined | Served::Exchanged => batch.hits += 1,
                // Each was read for this row.
                Served::Miss | Served::Prefetched => batch.misses += 1,
            }
        }
        if let Some(job) = &mut self.job {
            job.count(|counts| {
                counts.accesses += 1;
                match served {
                    Served::Hit => counts.hits += 1,
                    Served::Joined => {
                        counts.hits += 1;
                        counts.joined += 1;
                    }
                    Served::Prefetched => counts.prefetched += 1,
                    Served::Exchanged => counts.exchanged += 1,
                    Served::Miss => counts.misses += 1,
                }
            });
        }
    }

    /// Gives rows whose records are at hand to the workers.
    pub(super) fn hand_out_rows(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        let Some(output) = self.job.as_ref().map(|job| job.spec.output) else { return };
        for session in &mut self.sessions {
            for batch in &mut session.open {
                let ticket = Ticket { session: session.id, seq: batch.seq };
                let mut rows = std::mem::take(&mut batch.ready);
                let most = rows_in_order(&rows);
                while !rows.is_empty() {
                    let rest = rows.split_off(rows.len().min(most));
                    actions.push(Action::Fill(FillOrder {
                        ticket,
                        output,
                        rows: std::mem::replace(&mut rows, rest),
                    }));
                }
                batch.settle(ticket, now_ns, actions);
            }
        }
    }

    /// Rows came back from a worker.
    pub(super) fn filled(&mut self, filled: Filled, actions: &mut Vec<Action>) {
        let Filled { ticket: Ticket { session, seq }, rows, faults, fill_ns } = filled;
        if let Some(batch) = self.session_mut(session).and_then(|s| s.batch_mut(seq)) {
            batch.fill_ns += fill_ns;
            let mut bad = faults.iter().map(|&(at, _)| at).peekable();
            for (at, row) in rows.iter().enumerate() {
                if bad.next_if_eq(&at).is_none() {
                    batch.filled(row.position, row.size);
                }
            }
        }
        let mut lost = Vec::new();
        for (at, fault) in faults {
            let Some(&Row { position, sample, ref record, .. }) = rows.get(at) else { continue };
            let (row, text) = (RowRef { session, seq, position }, self.name_fault(sample, &fault));
            if matches!(fault, FillFault::Checksum(_)) && self.read_again(row, sample, record) {
                actions.push(Action::Warn(format!("{text}: reading it again")));
            } else {
                lost.push((row, text));
            }
        }
        for row in rows {
            self.release(row.record);
        }
        for (row, text) in lost {
            self.row_fault(row, &text, actions);
        }
    }

    /// A batch's columns are written.
    pub(super) fn sealed(&mut self, ticket: Ticket) {
        if let Some(batch) = self.session_mut(ticket.session).and_then(|s| s.batch_mut(ticket.seq)) {
            batch.progress = Progress::Complete;
        }
    }

    /// Publishes what is complete, each session's batches in their order.
    pub(super) fn publish_complete(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        let output = self.job.as_ref().map(|job| job.spec.output);
        let mut seen = Vec::new();
        for session in &mut self.sessions {
            while session.open.front().is_some_and(|batch| batch.progress == Progress::Complete) {
                let Some(mut batch) = session.open.pop_front() else { break };
                session.outstanding.insert(batch.seq, Some(batch.offset));
                let descriptor = Box::new(batch.descriptor(output, now_ns));
                if self.observed {
                    actions.push(done_line(now_ns, session.rank, &batch));
                }
                if let Some(text) = batch.failure.take() {
                    actions.push(Action::PublishError(session.id, descriptor, text));
                    continue;
                }
                if !batch.abandoned {
                    let samples: Vec<_> = batch.delivered().map(|row| row.sample).collect();
                    seen.extend(samples.iter().map(|&sample| (sample, batch.epoch)));
                    let real = batch.delivered().take_while(|row| row.flags & FLAG_PADDING == 0).count();
                    let samples = samples.into_iter().take(real).collect();
                    session.delivered.insert((batch.epoch, batch.number), samples);
                }
                actions.push(Action::Publish(session.id, descriptor));
            }
        }
        if let Some(job) = &mut self.job {
            for (sample, epoch) in seen {
                job.importance.record_delivery(sample, epoch);
            }
        }
    }

    /// Queues the end-of-epoch descriptor of every rank that has published all its batches.
    fn end_epochs(&mut self, epoch: u32, batches: u32, actions: &mut Vec<Action>) {
        for session in &mut self.sessions {
            if !(session.ready && session.open.is_empty() && session.has_descriptor()) {
                continue;
            }
            let Some(wanted) = &mut session.wanted else { continue };
            if wanted.epoch != epoch || wanted.next_batch < batches || wanted.ended {
                continue;
            }
            wanted.ended = true;
            let (generation, seq) = (wanted.generation, session.next_seq);
            session.next_seq += 1;
            session.outstanding.insert(seq, None);
            let descriptor = Descriptor {
                seq,
                generation,
                kind: Kind::EpochEnd,
                epoch,
                batch: batches,
                ..Descriptor::default()
            };
            actions.push(Action::Publish(session.id, Box::new(descriptor)));
        }
    }
}

/// How many of `rows` have their record in the cache. One after the other, each access would wait for its own cache lines; looked
/// at together they come at the same time, which saves a quarter of a hit (`shade-benches core`).
fn count_resident(cache: &Cache<Arc<Record>>, rows: &[BatchRow]) -> usize {
    let holders = rows.iter().filter_map(|row| cache.get(row.sample)).map(Arc::strong_count);
    holders.filter(|&holders| holders > 0).count()
}

/// How many of `rows` are given to one worker at a time: all alike, so that no order is a remainder.
fn rows_in_order(rows: &[Row]) -> usize {
    let bytes = rows.iter().map(|row| row.len).sum::<u64>().div_ceil(rows.len().max(1) as u64);
    let most = usize::try_from(ORDER_BYTES / bytes.max(1)).map_or(usize::MAX, |most| most.max(ORDER_ROWS));
    rows.len().div_ceil(rows.len().div_ceil(most).max(1))
}

/// The rows of a planned batch, each with its place in the batch's data.
fn plan_rows(spec: &JobSpec, slots: &[Slot], plan: &Plan, index: &Index) -> Vec<BatchRow> {
    let entry_of = |slot: &Slot| {
        let &sample = plan.ids.get(slot.position as usize)?;
        Some((sample, index.entry(sample)?))
    };
    // Looked at together, for the same reason as in `count_resident`.
    let known = slots.iter().filter(|slot| entry_of(slot).is_some()).count();
    let mut offset = 0;
    let mut rows = Vec::with_capacity(known);
    for slot in slots {
        let Some((sample, entry)) = entry_of(slot) else { continue };
        let len = row_bytes(spec.output, &entry).unwrap_or_else(|_| room_bytes(spec, index, sample));
        let position = slot.position as usize;
        let weight = if slot.padding { 0.0 } else { plan.weights.get(position).copied().unwrap_or(1.0) };
        let flags = if slot.padding { FLAG_PADDING } else { 0 };
        let (label, state, size) = (entry.label, RowState::Waiting, Size::default());
        let draw = Draw { seed: spec.plan.seed, epoch: plan.epoch, position: slot.position };
        rows.push(BatchRow {
            sample,
            label,
            weight,
            flags,
            offset,
            len,
            size,
            draw,
            state,
            substitutes: 0,
            reread: false,
        });
        offset += len;
    }
    rows
}

impl Batch {
    /// Rows that will reach the trainer, in order.
    fn delivered(&self) -> impl Iterator<Item = &BatchRow> {
        self.rows.iter().filter(|row| row.state == RowState::Done)
    }

    /// Moves on once no row is pending: to the columns, or straight to completion where nothing is delivered.
    fn settle(&mut self, ticket: Ticket, now_ns: u64, actions: &mut Vec<Action>) {
        if self.pending > 0 || self.progress != Progress::Filling {
            return;
        }
        self.read_ns = self.read_ns.min(now_ns);
        if self.abandoned || self.failure.is_some() {
            self.progress = Progress::Complete;
            return;
        }
        self.progress = Progress::Sealing;
        actions.push(Action::Seal(Box::new(self.seal_order(ticket))));
    }

    /// The columns of the delivered rows, and the moves that close gaps left by skipped ones. Where rows have lengths of
    /// their own they stay where they are, as each has its own offset.
    fn seal_order(&self, ticket: Ticket) -> SealOrder {
        let data_start = self.offset + self.layout.data;
        let mut columns = Columns::default();
        let mut moves = Vec::new();
        let mut end = data_start;
        for row in self.delivered() {
            columns.ids.push(i64::from(row.sample.0));
            columns.labels.push(i64::from(row.label));
            columns.weights.push(row.weight);
            columns.flags.push(row.flags);
            if self.layout.offsets().is_some() {
                columns.offsets.push(row.offset - data_start);
            } else {
                if row.offset != end {
                    moves.push(Move { from: row.offset, to: end, len: row.len });
                }
                end += row.len;
            }
            columns.lens.extend(self.layout.lens().map(|_| row.len));
            columns.heights.extend(self.layout.heights().map(|_| row.size.height));
            columns.widths.extend(self.layout.widths().map(|_| row.size.width));
        }
        SealOrder { ticket, block_offset: self.offset, layout: self.layout, columns, moves }
    }

    fn descriptor(&self, output: Option<Output>, now_ns: u64) -> Descriptor {
        let (height, width) = match output {
            Some(Output::Decoded(images)) => (images.height, images.width),
            Some(Output::Raw | Output::Ragged { .. }) | None => (0, 0),
        };
        let records = if self.abandoned || self.failure.is_some() { 0 } else { self.delivered().count() };
        Descriptor {
            seq: self.seq,
            generation: self.generation,
            kind: if self.failure.is_some() { Kind::Error } else { Kind::Batch },
            layout: self.layout.layout,
            epoch: self.epoch,
            batch: self.number,
            offset: self.offset,
            len: self.layout.total,
            records: u32::try_from(records).unwrap_or(u32::MAX),
            capacity: self.layout.capacity,
            height,
            width,
            hits: self.hits,
            misses: self.misses,
            skipped: self.skipped,
            substituted: self.substituted,
            read_wait_ns: self.read_ns.min(now_ns).saturating_sub(self.opened_ns),
            fill_ns: self.fill_ns,
            slot_wait_ns: self.slot_wait_ns,
            // Chosen when it is published.
            mark: 0,
        }
    }
}
