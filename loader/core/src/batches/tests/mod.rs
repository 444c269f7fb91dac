//! The room alone: batches are opened by hand, records come from nowhere, workers are a list.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use shade_formats::ring::{BatchLayout, Layout, PayloadAllocator};
use shade_formats::{DrawnRow, SampleId, Size};
use shade_job::{JobSpec, Tables};

use super::{BatchRow, Batches, Dropped, NewBatch, RowState, Turn};
use crate::action::Action;
use crate::counted::Counted;
use crate::event::Attach;
use crate::figures::Figures;
use crate::ids::{BatchId, RowId, SessionId};
use crate::lens::{BLOCK_BYTES, Lens};
use crate::memory::Memory;
use crate::orders::{FillOrder, FinalizeOrder, Ticket};
use crate::samples::Samples;
use crate::training::Training;

const JOB: u32 = 0;
/// Room for some six batches of eight rows.
const RING_BYTES: u64 = 256 << 10;

/// What happens next, to the ring of one of two ranks or to one of the rows that are waiting.
#[derive(Clone, Copy, Debug)]
enum Act {
    Open { rank: usize, rows: usize, is_held: bool },
    Give(usize),
    Skip(usize),
    Fail(usize),
    HandOut,
    Fill(usize),
    Finalize(usize),
    Release(usize),
    BeginHeld(usize),
    Abandon(usize, Dropped),
}

fn act() -> impl Strategy<Value = Act> {
    let at = any::<usize>;
    prop_oneof![
        4 => (0..2_usize, 1..9_usize, prop::bool::weighted(0.2))
            .prop_map(|(rank, rows, is_held)| Act::Open { rank, rows, is_held }),
        20 => at().prop_map(Act::Give),
        1 => at().prop_map(Act::Skip),
        1 => at().prop_map(Act::Fail),
        8 => Just(Act::HandOut),
        8 => at().prop_map(Act::Fill),
        6 => at().prop_map(Act::Finalize),
        6 => at().prop_map(Act::Release),
        2 => (0..2_usize).prop_map(Act::BeginHeld),
        1 => (0..2_usize, prop::sample::select(vec![Dropped::All, Dropped::Held, Dropped::NotHeld]))
            .prop_map(|(rank, dropped)| Act::Abandon(rank, dropped)),
    ]
}

/// What the world knows of an open batch.
struct Known {
    rows: usize,
    is_held: bool,
    is_failed: bool,
    is_abandoned: bool,
    skipped: usize,
}

struct World {
    batches: Batches<Counted>,
    memory: Counted,
    training: Training,
    figures: Figures,
    waiting: Vec<RowId>,
    orders: Vec<FillOrder<<Counted as Memory>::Lent>>,
    complete: Vec<FinalizeOrder>,
    known: HashMap<Ticket, Known>,
    /// By rank: the descriptors that the client has.
    outstanding: [Vec<u64>; 2],
    /// By rank: the descriptor that is published next.
    next: [u64; 2],
    opened: u32,
}

impl World {
    fn new() -> Self {
        let (mut training, mut figures) = (Training::new(Arc::new(Lens), 1.0, false), Figures::default());
        let spec = JobSpec { ring_bytes: 1 << 20, world_size: 2, ..JobSpec::default() };
        let attach = Attach {
            session: 0,
            job: "job".to_owned(),
            rank: 0,
            spec,
            tables: Tables::default(),
            survives: false,
        };
        let attached = training.attach(0, attach, 0).unwrap_or_else(|refusal| panic!("{}", refusal.text));
        assert_eq!(attached.job, JOB);
        figures.begin_job(JOB, "job");
        let mut batches = Batches::new(4, 0);
        // Who is accepted first need not have come first.
        for session in [1, 0] {
            let payload = PayloadAllocator::new(RING_BYTES).unwrap_or_else(|error| panic!("{error}"));
            batches.attach(session, JOB, payload);
            assert!(!batches.may_open(session), "it is not mapped yet");
            batches.ready(session);
        }
        Self {
            batches,
            memory: Counted::new(1 << 20, BLOCK_BYTES),
            training,
            figures,
            waiting: Vec::new(),
            orders: Vec::new(),
            complete: Vec::new(),
            known: HashMap::new(),
            outstanding: [Vec::new(), Vec::new()],
            next: [0, 0],
            opened: 0,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Open { rank, rows, is_held } => self.open(rank, rows, is_held),
            Act::Give(at) => {
                if let Some(row) = take(&mut self.waiting, at) {
                    self.give(row);
                }
            }
            Act::Skip(at) => {
                if let Some(row) = take(&mut self.waiting, at) {
                    self.batches.skip(row, "bad");
                    self.know(row).skipped += 1;
                }
            }
            Act::Fail(at) => {
                if let Some(row) = take(&mut self.waiting, at) {
                    self.batches.fail(row, "worse");
                    self.know(row).is_failed = true;
                }
            }
            Act::HandOut => {
                let mut actions = Vec::new();
                while let Some(lost) =
                    self.batches.hand_out(self.training.jobs(), &[], &mut self.figures, &mut actions)
                {
                    assert!(lost.rows.is_empty(), "without a group each row has its record");
                }
                self.carry_out(actions);
            }
            Act::Fill(at) => {
                if let Some(order) = take(&mut self.orders, at) {
                    self.fill(order);
                }
            }
            Act::Finalize(at) => {
                if let Some(order) = take(&mut self.complete, at) {
                    self.batches.finalized(order.ticket);
                }
            }
            Act::Release(at) => {
                let rank = at % 2;
                if let Some(seq) = take(&mut self.outstanding[rank], at) {
                    assert!(self.batches.release(session(rank), seq, 0).is_some());
                }
            }
            Act::BeginHeld(rank) => {
                self.batches.begin_held(session(rank), 2);
                self.known_of(rank).for_each(|known| known.is_held = false);
            }
            Act::Abandon(rank, dropped) => self.abandon(rank, dropped),
        }
        let mut actions = Vec::new();
        self.batches.settle(0, &mut actions);
        self.carry_out(actions);
        self.publish();
        self.batches.check_books();
    }

    /// Batches that are held come behind all others, as in the core: they are of the next epoch.
    fn open(&mut self, rank: usize, rows: usize, is_held: bool) {
        let is_held = is_held || self.batches.held(session(rank)) > 0;
        let data_len = u64::from(BLOCK_BYTES) * rows as u64;
        let layout = BatchLayout::new(Layout::Raw, u32::try_from(rows).unwrap_or(u32::MAX), data_len);
        let layout = layout.unwrap_or_else(|error| panic!("{error}"));
        if !self.batches.may_open(session(rank)) {
            return;
        }
        let Some(reserved) = self.batches.reserve(session(rank), layout.total, 0) else {
            assert!(!self.batches.may_open(session(rank)), "not again until a batch is released");
            return;
        };
        let row = |at: usize| {
            let sample = SampleId(4 * u32::try_from(at).unwrap_or(0));
            let entry = Lens.entry(sample).unwrap_or_else(|| unreachable!("it is in the dataset"));
            BatchRow {
                sample,
                entry,
                weight: 1.0,
                flags: 0,
                offset: reserved.offset + layout.data + u64::from(BLOCK_BYTES) * at as u64,
                len: u64::from(BLOCK_BYTES),
                room: u64::from(BLOCK_BYTES),
                size: Size::default(),
                drawn: DrawnRow::at(0),
                state: RowState::Waiting,
                substitutes: 0,
                reread: false,
            }
        };
        let id = BatchId { epoch: 0, number: self.opened };
        self.opened += 1;
        let generation = if is_held { None } else { Some(1) };
        let (output, made) = (Arc::default(), (0..rows).map(row).collect());
        let new = NewBatch { id, generation, reserved, layout, output, fields: None, rows: made };
        let ticket = self.batches.open(session(rank), new, 0);
        let row_of = |position| RowId { session: ticket.session, seq: ticket.seq, position };
        self.waiting.extend((0..rows).map(|at| row_of(u32::try_from(at).unwrap_or(0))));
        let known = Known { rows, is_held, is_failed: false, is_abandoned: false, skipped: 0 };
        self.known.insert(ticket, known);
    }

    fn give(&mut self, row: RowId) {
        let room = self.memory.take(u64::from(BLOCK_BYTES)).unwrap_or_else(|| unreachable!("enough memory"));
        self.batches.give(row, Counted::record(room, true));
    }

    fn know(&mut self, RowId { session, seq, .. }: RowId) -> &mut Known {
        let known = self.known.get_mut(&Ticket { session, seq });
        known.unwrap_or_else(|| unreachable!("a row of no open batch"))
    }

    fn known_of(&mut self, rank: usize) -> impl Iterator<Item = &mut Known> {
        let of_rank = move |(ticket, _): &(&Ticket, &mut Known)| ticket.session == session(rank);
        self.known.iter_mut().filter(of_rank).map(|(_, known)| known)
    }

    fn abandon(&mut self, rank: usize, dropped: Dropped) {
        let (spare, seqs) = self.batches.abandon(session(rank), dropped);
        spare.into_iter().flatten().for_each(|record| self.memory.release(record));
        self.waiting.retain(|row| row.session != session(rank) || !seqs.contains(&row.seq));
        for (ticket, known) in &mut self.known {
            let is_dropped = match dropped {
                Dropped::All => true,
                // One that was abandoned is not held any more.
                Dropped::Held => known.is_held && !known.is_abandoned,
                Dropped::NotHeld => !known.is_held || known.is_abandoned,
            };
            let is_here = ticket.session == session(rank);
            assert_eq!(is_here && is_dropped, is_here && seqs.contains(&ticket.seq), "{dropped:?}");
            known.is_abandoned |= is_here && is_dropped;
        }
    }

    fn carry_out(&mut self, actions: Vec<Action<Counted>>) {
        for action in actions {
            match action {
                Action::Fill(order) => self.orders.push(order),
                Action::Finalize(order) => self.complete.push(*order),
                _ => unreachable!("the room has rows filled and columns written"),
            }
        }
    }

    fn fill(&mut self, FillOrder { ticket, rows, .. }: FillOrder<<Counted as Memory>::Lent>) {
        self.batches.filled(ticket, &rows, std::iter::empty(), &[], 1);
        for record in rows.into_iter().filter_map(|row| row.record) {
            self.memory.release(record);
        }
    }

    fn publish(&mut self) {
        for rank in 0..2 {
            while let Some(turn) = self.batches.next_turn(session(rank), 0) {
                let Turn::Batch(batch) = turn else { unreachable!("no epoch ends here") };
                assert_eq!(batch.seq, self.next[rank], "in the order of the ring");
                self.next[rank] += 1;
                self.outstanding[rank].push(batch.seq);
                let known = self.known.remove(&Ticket { session: session(rank), seq: batch.seq });
                let known = known.unwrap_or_else(|| unreachable!("published once"));
                assert!(!known.is_held || known.is_abandoned, "its epoch has not begun");
                assert_eq!(batch.abandoned, known.is_abandoned);
                assert_eq!(batch.failure.is_some(), known.is_failed);
                let descriptor = batch.descriptor(0);
                if known.is_abandoned || known.is_failed {
                    assert_eq!(descriptor.records, 0);
                } else {
                    assert_eq!(descriptor.records as usize, known.rows - known.skipped);
                }
            }
        }
    }

    /// All rows get their records, all epochs begin, workers and trainers do what they have to.
    fn settle(&mut self) {
        for rank in 0..2 {
            self.act(Act::BeginHeld(rank));
        }
        while !self.known.is_empty() {
            while !self.waiting.is_empty() {
                self.act(Act::Give(0));
            }
            self.act(Act::HandOut);
            self.act(Act::Fill(0));
            self.act(Act::Finalize(0));
        }
        while !self.orders.is_empty() {
            self.act(Act::Fill(0));
        }
    }
}

fn session(rank: usize) -> SessionId {
    SessionId::try_from(rank).unwrap_or(SessionId::MAX)
}

fn take<T>(list: &mut Vec<T>, at: usize) -> Option<T> {
    if list.is_empty() { None } else { Some(list.swap_remove(at % list.len())) }
}

proptest! {
    #[test]
    fn each_batch_is_published_once_in_its_turn_and_no_record_is_lost(
        acts in prop::collection::vec(act(), 1..400),
    ) {
        let mut world = World::new();
        acts.into_iter().for_each(|act| world.act(act));
        world.settle();
        prop_assert!(world.batches.is_idle() && world.batches.are_workers_idle());
        prop_assert_eq!(world.memory.free_bytes(), world.memory.total_bytes());
        prop_assert_eq!(world.next[0] + world.next[1], u64::from(world.opened));
    }
}
