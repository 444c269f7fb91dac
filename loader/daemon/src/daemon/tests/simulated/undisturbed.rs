//! What a job is given in a life in which nothing happens: one job, at a core of its own, whose
//! reads and workers answer at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use shade_core::driver::{Delivery, Driver, Soon, World};
use shade_core::{
    Completion, Fault, FaultKind, FillOrder, ReadOp, SessionId, Ticket, block_bytes_for, capacity_bytes,
};
use shade_formats::SampleId;
use shade_formats::ring::Kind;
use shade_job::{Capacity, DaemonSpec};
use shade_reads::blocks::{Arena, Blocks, FreeList, Lent};

use super::super::super::start::core_config;
use super::super::super::{Action, Core, Event};
use super::dataset::{SAMPLES, index};
use super::job::{Job, losses};
use super::rows::{Row, filled, rows};

/// The batches of a job, by epoch and rank.
pub(super) struct Undisturbed {
    batches: BTreeMap<(u32, u32), BTreeMap<u32, Vec<Row>>>,
}

impl Undisturbed {
    /// `None` if no daemon serves such a job, or an epoch of it fails.
    pub(super) fn of(job: &Job, bad: &HashSet<u32>) -> Option<Self> {
        let index = index();
        let block_bytes =
            block_bytes_for((0..SAMPLES).map(|id| index.entry(SampleId(id)).unwrap().stored_len));
        let cache_bytes = capacity_bytes(Capacity::Share(1.0), &*index, block_bytes);
        let (_arena, free) = Arena::create(4 * cache_bytes, block_bytes).unwrap();
        let config = core_config(&DaemonSpec::default(), &*index, false, cache_bytes, block_bytes, 2);
        let calm = Calm { bad: bad.clone(), batches: BTreeMap::new(), failure: None };
        let mut driver = Driver::new(Core::new(Arc::clone(&index), free, config), calm);
        let sessions = || (0..).zip(&job.ranks);
        for (session, &rank) in sessions() {
            driver.attach(session, &job.name, rank, &job.spec, job.tables.clone());
        }
        if let Some(bytes) = &job.seats {
            for (session, _) in sessions() {
                driver.step(Event::Seat { session, bytes: bytes.clone() });
            }
        }
        for epoch in 0..job.epochs {
            for (session, _) in sessions() {
                driver.start(session, epoch, 0);
            }
            driver.run();
        }
        let Calm { batches, failure, .. } = driver.world;
        let by_rank = |((epoch, session), of_rank)| {
            let rank = job.ranks[usize::try_from(session).unwrap()];
            ((epoch, rank), of_rank)
        };
        let batches: BTreeMap<_, _> = batches.into_iter().map(by_rank).collect();
        let is_whole = batches.len() == job.epochs as usize * job.ranks.len();
        (failure.is_none() && is_whole).then_some(Self { batches })
    }

    /// The rank's first batch from this one on.
    pub(super) fn next(&self, epoch: u32, rank: u32, from: u32) -> Option<(u32, &[Row])> {
        let of_rank = self.batches.get(&(epoch, rank))?;
        of_rank.range(from..).next().map(|(&number, rows)| (number, &rows[..]))
    }

    /// The samples of an epoch, without padding, sorted.
    pub(super) fn rows_of(&self, epoch: u32) -> Vec<Row> {
        let of_epoch = self.batches.range((epoch, 0)..=(epoch, u32::MAX));
        let rows = of_epoch.flat_map(|(_, of_rank)| of_rank.values().flatten());
        let mut rows: Vec<Row> = rows.filter(|row| !row.is_padding).cloned().collect();
        rows.sort_unstable();
        rows
    }
}

/// A world that answers at once.
struct Calm {
    bad: HashSet<u32>,
    batches: BTreeMap<(u32, SessionId), BTreeMap<u32, Vec<Row>>>,
    failure: Option<String>,
}

impl World<FreeList> for Calm {
    const BURSTS: bool = false;

    fn read(&mut self, _now_ns: u64, op: ReadOp<Blocks>, soon: &mut Soon<FreeList>) {
        let is_bad = self.bad.contains(&op.sample.0);
        let text = || "the record is gone".to_owned();
        let outcome = if is_bad { Err(Fault { kind: FaultKind::Record, text: text() }) } else { Ok(()) };
        let latency = Duration::from_millis(1);
        soon.push_back(Event::Read(Completion { op, outcome, checked: true, latency }));
    }

    fn fill(&mut self, order: FillOrder<Lent>, soon: &mut Soon<FreeList>) {
        soon.push_back(Event::Filled(filled(order)));
    }

    fn finalize(&mut self, ticket: Ticket, soon: &mut Soon<FreeList>) {
        soon.push_back(Event::Finalized(ticket));
    }

    fn take(&mut self, delivery: Delivery, soon: &mut Soon<FreeList>) {
        let (session, descriptor) = (delivery.session, delivery.descriptor);
        self.failure = self.failure.take().or(delivery.error.clone());
        if delivery.is_current && descriptor.kind == Kind::Batch {
            let rows = rows(&delivery);
            let (epoch, batch) = (descriptor.epoch, descriptor.batch);
            let losses = losses(rows.iter().map(|row| row.id), epoch);
            soon.push_back(Event::Report { session, epoch, batch, losses });
            let of_rank = self.batches.entry((epoch, session)).or_default();
            assert!(of_rank.insert(batch, rows).is_none(), "batch {batch} comes twice");
        }
        soon.push_back(Event::Released { session, seqs: vec![descriptor.seq] });
    }

    fn told(&mut self, action: Action) {
        match action {
            Action::Refuse(_, refusal) => self.failure = Some(refusal.text),
            Action::Close(_, text) | Action::Fail(_, text) | Action::Interrupt(_, text) => {
                self.failure = Some(text);
            }
            _ => {}
        }
    }

    fn next(&mut self, _now_ns: u64, _soon: &mut Soon<FreeList>) -> Option<u64> {
        None
    }
}
