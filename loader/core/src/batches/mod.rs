//! Batches: one room of the core. It has the ranks' rings, their open batches, and what workers do.
//!
//! Others open a batch where a ring has room ([`Batches::reserve`], [`Batches::open`]), give its
//! rows their records ([`Batches::give`]), and take what is complete in the order of its ring
//! ([`Batches::next_turn`]). It knows neither plans nor the cache: of a job it needs what a row
//! becomes, and how soon its trainers run dry.
//!
//! | part | what it decides |
//! |---|---|
//! | `ring` | room and descriptors of one rank |
//! | `batch`, `finalize` | the state of rows; columns, moves, descriptor |
//! | `fill`, `fill_turns` | which rows go to workers next |
//! | `rows` | bad rows: skipped, substituted, given up |
//! | `decoded_rows` | rows decoded once for a group |

mod batch;
mod decoded_rows;
mod fill;
mod fill_turns;
mod finalize;
mod ring;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use batch::{Batch, BatchRow, Held, RowState};
pub(crate) use ring::EpochEnd;

use std::sync::Arc;

use shade_formats::limits::RING_DESCRIPTORS;
use shade_formats::ring::{BatchLayout, PayloadAllocator};
use shade_formats::trace::Open;
use shade_job::Output;

use crate::batch_fields::BatchFields;
use crate::figures::Accesses;
use crate::ids::{BatchId, JobId, SessionId};
use crate::memory::Memory;
use crate::number::to_u32;
use crate::orders::Ticket;
use crate::training::Jobs;
use batch::BatchStage;
use decoded_rows::DecodedRows;
use fill_turns::FillTurns;
use ring::Ring;

/// The rings of all ranks, and the rows that workers share.
pub(super) struct Batches<M: Memory> {
    /// By session: each event and each row asks for one of them.
    rings: Vec<Ring<M>>,
    decoded_rows: DecodedRows<M::Lent>,
    fill_turns: FillTurns,
    /// See [`CoreConfig::orders_max`](crate::CoreConfig::orders_max).
    orders_max: usize,
}

/// Room in a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    /// Byte of the payload.
    pub(super) offset: u64,
    /// How long the batch has waited for it.
    pub(super) slot_wait_ns: u64,
}

/// A batch to open.
pub(super) struct NewBatch {
    pub(super) id: BatchId,
    /// The generation of the epoch that its rank asked for; `None` if it is filled before its epoch
    /// begins, and held until then.
    pub(super) generation: Option<u32>,
    pub(super) reserved: Reserved,
    pub(super) layout: BatchLayout,
    pub(super) output: Arc<Output>,
    pub(super) fields: Option<Arc<BatchFields>>,
    pub(super) rows: Vec<BatchRow>,
}

/// Which open batches of a rank are dropped, as it has moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    All,
    /// Those that are held for their epoch.
    Held,
    /// All but those.
    NotHeld,
}

/// What comes next in a ring.
pub(super) enum Turn<M: Memory> {
    /// A complete batch.
    Batch(Box<Batch<M>>),
    End(EpochEnd),
}

/// What a rank's ring says of it now.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingStatus {
    /// The sequence number before which all descriptors were published.
    pub(super) first_unpublished: u64,
    /// Whether the oldest open batch waits for records; `None` without one, and if that is held.
    pub(super) is_oldest_unread: Option<bool>,
    /// The next batch has found no room, and no batch was released since.
    pub(super) is_full: bool,
    /// The next batch waits for room.
    pub(super) is_blocked: bool,
}

impl<M: Memory> Batches<M> {
    pub(super) fn new(orders_max: usize, decoded_bytes: u64) -> Self {
        let (decoded_rows, fill_turns) = (DecodedRows::new(decoded_bytes), FillTurns::default());
        Self { rings: Vec::new(), decoded_rows, fill_turns, orders_max }
    }

    /// A rank has attached, with an empty ring.
    pub(super) fn attach(&mut self, session: SessionId, job: JobId, payload: PayloadAllocator) {
        let Err(at) = self.find(session) else { panic!("session {session} attaches twice") };
        self.rings.insert(at, Ring::new(session, job, payload));
    }

    /// Number of rings.
    pub(super) fn ring_count(&self) -> usize {
        self.rings.len()
    }

    /// A rank has left. Returns the records of its rows that no worker has.
    pub(super) fn detach(&mut self, session: SessionId) -> Vec<Option<M::Lent>> {
        let Ok(at) = self.find(session) else { return Vec::new() };
        let gone = self.rings.remove(at);
        gone.open.into_iter().flat_map(|batch| batch.ready).map(|row| row.record).collect()
    }

    /// A job has ended: `jobs` are those that are left.
    pub(super) fn end_job(&mut self, job: JobId, jobs: &Jobs) {
        self.fill_turns.end_job(job);
        self.decoded_rows.job_ended(jobs);
    }

    /// The ring is mapped on both sides.
    pub(super) fn ready(&mut self, session: SessionId) {
        self.ring_mut(session).into_iter().for_each(|ring| ring.is_ready = true);
    }

    /// Bytes of decoded rows that jobs share.
    pub(super) fn decoded_bytes(&self) -> u64 {
        self.decoded_rows.used_bytes()
    }

    /// Whether nothing is filled or finalized. Batches may be held for their epoch.
    pub(super) fn is_idle(&self) -> bool {
        let is_filled = |batch: &Batch<M>| batch.is_held() && batch.stage == BatchStage::Complete;
        self.rings.iter().all(|ring| ring.open.iter().all(is_filled))
    }

    /// Whether workers have no row.
    pub(super) fn are_workers_idle(&self) -> bool {
        self.fill_turns.out() == 0
    }

    /// Whether a first batch was published.
    pub(super) fn have_begun(&self) -> bool {
        self.rings.iter().any(|ring| ring.first_unpublished() > 0)
    }

    pub(super) fn status(&self, session: SessionId) -> Option<RingStatus> {
        let ring = self.ring(session)?;
        Some(RingStatus {
            first_unpublished: ring.first_unpublished(),
            is_oldest_unread: ring
                .open
                .front()
                .filter(|batch| !batch.is_held())
                .map(|batch| batch.unread > 0),
            is_full: ring.is_full,
            is_blocked: ring.blocked_since_ns.is_some(),
        })
    }

    /// Finished batches that the client has, and those that are being filled or wait for their
    /// epoch.
    pub(super) fn in_ring_and_open(&self, session: SessionId) -> (u32, u32) {
        self.ring(session).map_or((0, 0), |ring| (to_u32(ring.in_ring()), to_u32(ring.open.len())))
    }

    /// The sequence number before which all descriptors were released.
    pub(super) fn first_unreleased(&self, session: SessionId) -> Option<u64> {
        self.ring(session).map(Ring::first_unreleased)
    }

    /// The first descriptor of the epoch that begins: that of the first batch that is held for it,
    /// where it `is_ahead`.
    pub(super) fn first_of_next(&self, session: SessionId, is_ahead: bool) -> Option<u64> {
        let ring = self.ring(session)?;
        let held = ring.open.iter().find(|batch| is_ahead && batch.is_held());
        Some(held.map_or(ring.next_seq, |batch| batch.seq))
    }

    /// Whether no batch but held ones is open, and the client holds none.
    pub(super) fn is_released(&self, session: SessionId) -> bool {
        let is_released = |ring: &Ring<M>| ring.open.iter().all(Batch::is_held) && ring.in_ring() == 0;
        self.ring(session).is_some_and(is_released)
    }

    /// Descriptors that the client has.
    pub(super) fn outstanding(&self, session: SessionId) -> usize {
        self.ring(session).map_or(0, |ring| ring.outstanding.len())
    }

    /// See [`Ring::batch_ns`].
    pub(super) fn batch_ns(&self, session: SessionId, now_ns: u64, has_ended: bool) -> u64 {
        self.ring(session).map_or(0, |ring| ring.batch_ns(now_ns, has_ended))
    }

    /// The client has released descriptor `seq`: see [`Ring::release`].
    pub(super) fn release(&mut self, session: SessionId, seq: u64, now_ns: u64) -> Option<u64> {
        self.ring_mut(session)?.release(seq, now_ns)
    }

    /// Whether a batch may be opened in this ring: as far as is known it has room.
    pub(super) fn may_open(&self, session: SessionId) -> bool {
        self.ring(session).is_some_and(|ring| ring.is_ready && !ring.is_full && ring.has_descriptor())
    }

    /// Number of batches that are held for their epoch.
    pub(super) fn held(&self, session: SessionId) -> u32 {
        let held = |ring: &Ring<M>| ring.open.iter().filter(|batch| batch.is_held()).count();
        to_u32(self.ring(session).map_or(0, held))
    }

    /// Whether the end of the epoch of this generation has its number, and is not published.
    pub(super) fn has_end(&self, session: SessionId, generation: u32) -> bool {
        let end = self.ring(session).and_then(|ring| ring.end);
        end.is_some_and(|end| end.generation == generation)
    }

    /// All batches of the epoch are open: its end gets its number, unless it has one or the ring
    /// has no descriptor for it.
    pub(super) fn number_end(&mut self, session: SessionId, generation: u32, epoch: u32, batches: u32) {
        let ring = self.ring_mut(session).filter(|ring| ring.end.is_none() && ring.is_ready);
        if let Some(ring) = ring.filter(|ring| ring.has_descriptor()) {
            ring.end = Some(EpochEnd { seq: ring.next_seq, generation, epoch, batches });
            ring.next_seq += 1;
        }
    }

    /// The rank has moved on: the end of its epoch is for nobody.
    pub(super) fn forget_end(&mut self, session: SessionId) {
        let end = self.ring_mut(session).and_then(|ring| ring.end.as_mut());
        end.into_iter().for_each(|end| end.generation = 0);
    }

    /// The rank begins an epoch: what its ring had no room for may be another batch.
    pub(super) fn begin_epoch(&mut self, session: SessionId) {
        if let Some(ring) = self.ring_mut(session) {
            (ring.blocked_since_ns, ring.is_full) = (None, false);
        }
    }

    /// Bytes of the ring's payload.
    pub(super) fn payload_bytes(&self, session: SessionId) -> u64 {
        self.ring(session).map_or(0, Ring::bytes)
    }

    /// The next batch is longer than the ring, and its epoch has not begun: it waits for that.
    pub(super) fn mark_full(&mut self, session: SessionId) {
        self.ring_mut(session).into_iter().for_each(|ring| ring.is_full = true);
    }

    /// Reserves room for the next batch; `None` if there is none.
    pub(super) fn reserve(&mut self, session: SessionId, bytes: u64, now_ns: u64) -> Option<Reserved> {
        let ring = self.ring_mut(session)?;
        let Some(offset) = ring.payload.reserve(bytes) else {
            ring.blocked_since_ns.get_or_insert(now_ns);
            ring.is_full = true;
            return None;
        };
        let blocked = ring.blocked_since_ns.take();
        let slot_wait_ns = blocked.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        Some(Reserved { offset, slot_wait_ns })
    }

    /// Opens a batch in the room that was reserved for it. All its rows wait for their records.
    pub(super) fn open(&mut self, session: SessionId, new: NewBatch, now_ns: u64) -> Ticket {
        let Some(ring) = self.ring_mut(session) else { unreachable!("room in no ring") };
        let NewBatch { id, generation, reserved, layout, output, fields, rows } = new;
        let Reserved { offset, slot_wait_ns } = reserved;
        let seq = ring.next_seq;
        ring.next_seq += 1;
        let mut batch = Batch::new(seq, id, offset, layout, rows, now_ns);
        (batch.output, batch.fields, batch.slot_wait_ns) = (output, fields, slot_wait_ns);
        match generation {
            Some(generation) => batch.generation = generation,
            None => batch.held = Some(Box::default()),
        }
        ring.open.push_back(batch);
        Ticket { session, seq }
    }

    /// Adds accesses to the counts of their batch. Returns whether that is held: then they count
    /// for nothing else yet.
    pub(super) fn count(&mut self, ticket: Ticket, accesses: &Accesses) -> bool {
        let Some(batch) = self.batch_mut(ticket) else { return false };
        batch.hits += accesses.hits();
        batch.misses += accesses.misses();
        batch.held.as_mut().map(|held| held.accesses.add(accesses)).is_some()
    }

    /// Keeps the line of a trace until the batch's epoch begins. Returns the line if it is not
    /// held.
    pub(super) fn keep_line(
        &mut self,
        ticket: Ticket,
        line: Option<(SessionId, Open)>,
    ) -> Option<(SessionId, Open)> {
        match self.batch_mut(ticket).and_then(|batch| batch.held.as_mut()) {
            Some(held) => {
                held.traced = line;
                None
            }
            None => line,
        }
    }

    /// The rank's next epoch has begun: the batches that were held for it are batches like any
    /// other. Returns their names and what was not told of them, in their order.
    pub(super) fn begin_held(&mut self, session: SessionId, generation: u32) -> Vec<(BatchId, Held)> {
        let Some(ring) = self.ring_mut(session) else { return Vec::new() };
        let mut begun = Vec::new();
        for batch in ring.open.iter_mut().filter(|batch| batch.is_held()) {
            let Some(held) = batch.held.take() else { continue };
            batch.generation = generation;
            begun.push((batch.id, *held));
        }
        begun
    }

    /// What comes next in the ring, if it is complete: the client has it from now on.
    pub(super) fn next_turn(&mut self, session: SessionId, now_ns: u64) -> Option<Turn<M>> {
        let ring = self.ring_mut(session)?;
        let first = ring.open.front().map(|batch| batch.seq);
        if let Some(end) = ring.end.take_if(|end| first.is_none_or(|first| first > end.seq)) {
            ring.give(end.seq, None, now_ns);
            return Some(Turn::End(end));
        }
        let is_due = |batch: &mut Batch<M>| batch.stage == BatchStage::Complete && !batch.is_held();
        let batch = ring.open.pop_front_if(is_due)?;
        ring.give(batch.seq, Some(batch.offset), now_ns);
        Some(Turn::Batch(Box::new(batch)))
    }

    /// Drops the rows of open batches of a rank that no worker has: it has moved on. Returns their
    /// records, and the numbers of the batches.
    pub(super) fn abandon(
        &mut self,
        session: SessionId,
        dropped: Dropped,
    ) -> (Vec<Option<M::Lent>>, Vec<u64>) {
        let (mut spare, mut seqs) = (Vec::new(), Vec::new());
        let Some(ring) = self.ring_mut(session) else { return (spare, seqs) };
        let is_dropped = |batch: &&mut Batch<M>| match dropped {
            Dropped::All => true,
            Dropped::Held => batch.is_held(),
            Dropped::NotHeld => !batch.is_held(),
        };
        for batch in ring.open.iter_mut().filter(is_dropped) {
            seqs.push(batch.seq);
            batch.abandon(&mut spare);
        }
        (spare, seqs)
    }

    /// Asserts that no ring has more descriptors than it has marks for.
    pub(super) fn check_books(&self) {
        for ring in &self.rings {
            let descriptors = ring.descriptors();
            assert!(
                descriptors <= RING_DESCRIPTORS,
                "session {} has {descriptors} descriptors",
                ring.session
            );
        }
    }

    /// The place of the session's ring, or where it would be.
    fn find(&self, session: SessionId) -> Result<usize, usize> {
        self.rings.binary_search_by_key(&session, |ring| ring.session)
    }

    fn ring(&self, session: SessionId) -> Option<&Ring<M>> {
        self.find(session).ok().map(|at| &self.rings[at])
    }

    fn ring_mut(&mut self, session: SessionId) -> Option<&mut Ring<M>> {
        self.find(session).ok().map(|at| &mut self.rings[at])
    }

    fn batch_mut(&mut self, Ticket { session, seq }: Ticket) -> Option<&mut Batch<M>> {
        self.ring_mut(session)?.batch_mut(seq)
    }
}
