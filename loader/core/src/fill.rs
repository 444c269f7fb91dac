//! Batches from when they are open: their rows handed to workers, sealed, published in order.

use shade_formats::control::{JobSpec, Output};
use shade_formats::ring::{Descriptor, Kind};

use crate::action::Action;
use crate::bad_share::Given;
use crate::batch::{Batch, Progress, RowRef};
use crate::job::Job;
use crate::machine::Core;
use crate::memory::Memory;
use crate::orders::{Columns, FaultKind, FillOrder, Filled, Move, Row, SealOrder, Ticket};
use crate::report::Delivered;
use crate::trace::done_line;

/// Rows given to one worker at a time: few enough to spread a batch over the workers, so many that handing over costs little
/// beside filling. Of small rows as many as have [`ORDER_BYTES`].
const ORDER_ROWS: usize = 8;
const ORDER_BYTES: u64 = 192 * 1024;
/// The same of raw rows. They are copied, which takes a tenth of a millisecond for so many bytes.
/// Waking a worker, and the core when it is done, takes a tenth of that.
const ORDER_BYTES_RAW: u64 = 2 << 20;
/// Large raw rows that are at hand together become as many orders at least.
const ORDERS_RAW_MIN: usize = 4;

impl<M: Memory> Core<M> {
    /// Gives rows whose records are at hand to the workers.
    pub(super) fn hand_out_rows(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let Some(output) = self.job.as_ref().map(|job| job.spec.output) else { return };
        for session in &mut self.sessions {
            for batch in &mut session.open {
                let ticket = Ticket { session: session.id, seq: batch.seq };
                let mut rows = std::mem::take(&mut batch.ready);
                let most = rows_in_order(&rows, output);
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
    pub(super) fn filled(&mut self, filled: Filled<M::Lent>, actions: &mut Vec<Action<M>>) {
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
            if fault.kind == FaultKind::Checksum && self.read_again(row, sample, M::lent(record)) {
                actions.push(Action::BadRecord(format!("{text}: reading it again")));
            } else {
                lost.push((row, text));
            }
        }
        for row in rows {
            self.release(M::take_back(row.record));
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
    pub(super) fn publish_complete(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        let Some(job) = &mut self.job else { return };
        for session in &mut self.sessions {
            while session.open.front().is_some_and(|batch| batch.progress == Progress::Complete) {
                let Some(mut batch) = session.open.pop_front() else { break };
                session.outstanding.insert(batch.seq, Some(batch.offset));
                if !batch.abandoned && batch.failure.is_none() {
                    batch.failure = job.judge(session.rank, &batch);
                }
                let descriptor = Box::new(batch.descriptor(&job.spec, now_ns));
                if self.observed {
                    actions.push(done_line(now_ns, session.rank, &batch));
                }
                if let Some(text) = batch.failure.take() {
                    actions.push(Action::PublishError(session.id, descriptor, text));
                    continue;
                }
                if !batch.abandoned {
                    job.delivered(&batch);
                    let samples = batch.real().map(|row| row.sample).collect();
                    let delivered = Delivered { samples, reported: 0 };
                    session.delivered.insert((batch.epoch, batch.number), delivered);
                }
                actions.push(Action::Publish(session.id, descriptor));
            }
        }
    }

    /// Queues the end-of-epoch descriptor of every rank that has published all its batches.
    pub(super) fn end_epochs(&mut self, epoch: u32, batches: u32, actions: &mut Vec<Action<M>>) {
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

/// How many of `rows` are given to one worker at a time: all alike, so that no order is a remainder.
fn rows_in_order<R>(rows: &[Row<R>], output: Output) -> usize {
    let bytes = rows.iter().map(|row| row.len).sum::<u64>().div_ceil(rows.len().max(1) as u64).max(1);
    let rows_of = |order_bytes: u64| usize::try_from(order_bytes / bytes).unwrap_or(usize::MAX);
    let mut most = rows_of(ORDER_BYTES);
    if output == Output::Raw {
        // What one burst of reads brought is shared by several workers.
        most = most.max(rows_of(ORDER_BYTES_RAW).min(rows.len().div_ceil(ORDERS_RAW_MIN)));
    }
    rows.len().div_ceil(rows.len().div_ceil(most.max(ORDER_ROWS)).max(1))
}

impl Job {
    /// Counts a complete batch of `rank`, and says why it is not delivered.
    fn judge<M: Memory>(&mut self, rank: u32, batch: &Batch<M>) -> Option<String> {
        self.faults.extend(&batch.faults);
        if let Some(of_rank) = self.given.get_mut(rank as usize) {
            of_rank.add(batch.given());
        }
        let mut given = Given::default();
        self.given.iter().for_each(|&of_rank| given.add(of_rank));
        let plan_len = self.plan.as_ref().map_or(0, |plan| plan.ids.len());
        let excess = given.excess(&self.spec, batch.epoch, plan_len, &self.faults);
        // A rank that is alone goes without the batch. Of several all must have as many, and others may have theirs already.
        excess.or_else(|| {
            (batch.is_void() && self.spec.world_size > 1).then(|| {
                format!(
                    "batch {} of epoch {} has no sample left, all {} were skipped, and no rank may have fewer batches than the \
                     others: {}",
                    batch.number,
                    batch.epoch,
                    if batch.skipped > 0 { batch.skipped as usize } else { batch.rows.len() },
                    batch.faults
                )
            })
        })
    }

    /// A batch is delivered, or left out as nothing of it is left.
    fn delivered<M: Memory>(&mut self, batch: &Batch<M>) {
        let Given { rows, skipped, substituted } = batch.given();
        self.count(|counts| {
            counts.delivered += rows;
            counts.skipped += skipped;
            counts.substituted += substituted;
        });
        for row in batch.delivered() {
            self.importance.record_delivery(row.sample, batch.epoch);
        }
    }
}

impl<M: Memory> Batch<M> {
    /// Moves on once no row is pending: to the columns, or straight to completion where nothing is delivered.
    fn settle(&mut self, ticket: Ticket, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if self.pending > 0 || self.progress != Progress::Filling {
            return;
        }
        self.read_ns = self.read_ns.min(now_ns);
        if self.abandoned || self.failure.is_some() || self.is_void() {
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
            columns.labels.push(i64::from(row.entry.label));
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

    fn descriptor(&self, spec: &JobSpec, now_ns: u64) -> Descriptor {
        let (height, width) = match spec.output {
            Output::Decoded(images) => (images.height, images.width),
            Output::Raw | Output::Ragged { .. } => (0, 0),
        };
        let is_empty = self.abandoned || self.failure.is_some() || self.is_void();
        let records = if is_empty { 0 } else { self.delivered().count() };
        // No trainer takes what is of another generation than its own: they count from 1. A rank
        // whose epoch another one has ended is still in the generation of its batches.
        let is_for_nobody = self.abandoned || (self.failure.is_none() && self.is_void());
        let generation = if is_for_nobody { 0 } else { self.generation };
        Descriptor {
            seq: self.seq,
            generation,
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
            substituted: self.substituted(),
            read_wait_ns: self.read_ns.min(now_ns).saturating_sub(self.opened_ns),
            fill_ns: self.fill_ns,
            slot_wait_ns: self.slot_wait_ns,
            // Chosen when it is published.
            mark: 0,
        }
    }
}
