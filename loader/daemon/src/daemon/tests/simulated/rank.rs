//! One rank's side, by the rules of `shade-client`, without its sockets and threads: `link.rs` has
//! those of places and descriptors, `succession.rs` those of deaths. The daemon does not link the
//! client, so they are here once more, and nothing else is.

use std::collections::VecDeque;
use std::sync::Arc;

use shade_core::SessionId;
use shade_core::driver::Delivery;
use shade_formats::SampleId;
use shade_formats::control::RedoRow;
use shade_formats::ring::{Descriptor, Kind};

use super::machine::MS;
use super::redo::Redo;

/// The daemons that may die before the same batch of a rank that waits for it.
const DEATHS_MAX: u32 = 3;
/// The same for a rank that waits for no batch, of daemons that do not get older than this.
const IDLE_DEATHS_MAX: u32 = 30;
const QUICK_NS: u64 = 10_000 * MS;

/// How far the epoch is that was started last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    NotStarted,
    Running,
    Ended,
    Failed,
}

/// Where a rank is in its epochs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) generation: u32,
    /// The first generation since a state was loaded.
    first_generation: u32,
    pub(super) epoch: u32,
    /// The first batch of it that was not delivered.
    pub(super) batch: u32,
    pub(super) stage: Stage,
}

/// An epoch that a rank asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) generation: u32,
    pub(super) epoch: u32,
    pub(super) first_batch: u32,
    pub(super) has_taken: bool,
}

/// What a rank finds in its ring.
#[expect(clippy::large_enum_variant, reason = "there are few at a time")]
pub(super) enum Found {
    /// It is of an earlier generation: released unseen.
    Stale(Descriptor),
    /// A batch, where this one was expected or a later one.
    Batch(u32, Delivery),
    End(Descriptor),
    Error(Descriptor, String),
}

/// A batch that was taken.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) session: SessionId,
    pub(super) seq: u64,
    pub(super) generation: u32,
    pub(super) epoch: u32,
    pub(super) batch: u32,
    pub(super) ids: Vec<i64>,
    pub(super) is_reported: bool,
}

/// A base that a daemon has given.
pub(super) struct GivenBase {
    pub(super) epoch: u32,
    pub(super) bytes: Arc<Vec<u8>>,
}

/// What a rank waits for besides batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Its seats are taken.
    Seat,
    /// The state is loaded.
    Load,
    /// The state before this batch. `is_sent` once a daemon was asked that knows of it.
    Save { epoch: u32, batch: u32, is_sent: bool },
}

/// A daemon that takes the place of a dead one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heir {
    /// The rank's daemon lives, or the rank has gone over to this one.
    None,
    /// It is looked for.
    Sought,
    /// It has the rank's hello.
    Greeted(SessionId),
    /// It has the rank's seats and answers soon, or has all that it needs.
    Found(SessionId),
}

/// A rank attached.
pub(super) struct Rank {
    pub(super) number: u32,
    /// The session at its daemon, once that has accepted it.
    pub(super) session: Option<SessionId>,
    /// Its daemon lives, as far as it knows.
    pub(super) is_linked: bool,
    pub(super) heir: Heir,
    linked_ns: u64,
    pub(super) place: Place,
    /// The first generation of this daemon.
    begins_at: u32,
    /// What the daemon has published.
    pub(super) ring: VecDeque<Delivery>,
    next_seq: u64,
    /// A batch of this generation was taken.
    has_taken: bool,
    /// A successor that has not published anything yet.
    pub(super) is_unbegun: bool,
    /// It has waited for what this daemon did not give it yet.
    is_awaited: bool,
    pub(super) held: Vec<Held>,
    pub(super) asks: Option<Asks>,
    /// Seats were told, which an heir is told with the hello.
    pub(super) has_told_seats: bool,
    /// What it keeps for a successor.
    pub(super) redo: Redo,
    /// The base that the daemon has given last, until the epoch's first batch.
    pub(super) base: Option<GivenBase>,
    /// Nothing of this generation was taken.
    is_unheard: bool,
    died_at: (u32, u32),
    deaths: u32,
    idle_deaths: u32,
    /// When it goes on by itself is planned.
    pub(super) has_turn: bool,
    pub(super) is_gone: bool,
}

impl Place {
    const BEGINNING: Self =
        Self { generation: 0, first_generation: 0, epoch: 0, batch: 0, stage: Stage::NotStarted };
}

impl Rank {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            session: None,
            is_linked: false,
            heir: Heir::None,
            linked_ns: 0,
            place: Place::BEGINNING,
            begins_at: 0,
            ring: VecDeque::new(),
            next_seq: 0,
            has_taken: false,
            is_unbegun: false,
            is_awaited: false,
            held: Vec::new(),
            asks: None,
            has_told_seats: false,
            redo: Redo::default(),
            base: None,
            is_unheard: true,
            died_at: (0, 0),
            deaths: 0,
            idle_deaths: 0,
            has_turn: false,
            is_gone: false,
        }
    }

    /// The daemon has accepted its hello.
    pub(super) fn link(&mut self, now_ns: u64, session: SessionId) {
        (self.session, self.is_linked, self.linked_ns) = (Some(session), true, now_ns);
    }

    /// The session, if its daemon lives.
    pub(super) fn live_session(&self) -> Option<SessionId> {
        self.session.filter(|_| self.is_linked)
    }

    /// Starts an epoch. What the daemon is told, if it lives.
    pub(super) fn start(&mut self, epoch: u32, first_batch: u32) -> Start {
        let generation = self.place.generation + 1;
        let start = Start { generation, epoch, first_batch, has_taken: self.has_taken };
        (self.has_taken, self.is_unbegun, self.is_unheard) = (false, false, true);
        self.begin(start);
        self.redo.start(epoch);
        start
    }

    fn begin(&mut self, Start { generation, epoch, first_batch, .. }: Start) {
        let Place { first_generation, .. } = self.place;
        let stage = Stage::Running;
        self.place = Place { generation, first_generation, epoch, batch: first_batch, stage };
    }

    /// A state was loaded.
    pub(super) fn begin_anew(&mut self, bytes: Vec<u8>) {
        self.redo.load(bytes);
        self.place.first_generation = self.place.generation + 1;
    }

    /// Goes over to a successor of its daemon, which has found this session. What that is told.
    pub(super) fn succeed(&mut self, now_ns: u64, session: SessionId) -> Option<Start> {
        self.hear_base();
        (self.heir, self.next_seq, self.is_unheard) = (Heir::None, 0, true);
        self.ring.clear();
        (self.has_taken, self.is_awaited) = (false, false);
        self.link(now_ns, session);
        let is_before_what_was_loaded = self.place.generation < self.place.first_generation;
        let has_started = self.place.stage != Stage::NotStarted && !is_before_what_was_loaded;
        self.place.generation += u32::from(has_started);
        let Place { generation, epoch, batch: first_batch, .. } = self.place;
        (self.begins_at, self.is_unbegun) = (generation, generation > 0);
        // Batches taken before the first start tell the daemon that it is a successor.
        has_started.then_some(Start { generation, epoch, first_batch, has_taken: true })
    }

    /// Takes the base that the daemon has given, if it has given one.
    fn hear_base(&mut self) {
        if let Some(GivenBase { epoch, bytes }) = self.base.take() {
            self.redo.begin(epoch, bytes);
        }
    }

    /// Takes what comes next in the ring.
    pub(super) fn take(&mut self) -> Option<Found> {
        let delivery = self.ring.pop_front()?;
        let descriptor = delivery.descriptor;
        self.next_seq = descriptor.seq + 1;
        if descriptor.generation < self.place.generation {
            return Some(Found::Stale(descriptor));
        }
        assert_eq!(descriptor.generation, self.place.generation, "a batch that nobody asked for");
        if self.is_unheard {
            self.hear_base();
        }
        (self.is_unbegun, self.is_unheard, self.is_awaited) = (false, false, false);
        Some(match descriptor.kind {
            Kind::Batch => {
                self.has_taken = true;
                self.redo.deliver(descriptor.epoch, descriptor.batch, redo_rows(&delivery));
                let expected = std::mem::replace(&mut self.place.batch, descriptor.batch + 1);
                Found::Batch(expected, delivery)
            }
            Kind::EpochEnd => {
                self.place.stage = Stage::Ended;
                Found::End(descriptor)
            }
            Kind::Error => {
                self.place.stage = Stage::Failed;
                Found::Error(descriptor, delivery.error.unwrap_or_default())
            }
        })
    }

    /// It waits for a batch. The number that its daemon is told.
    pub(super) fn awaits(&mut self) -> u64 {
        self.is_awaited = true;
        self.next_seq
    }

    /// Whether the batch is of a plan of before a state was loaded.
    pub(super) fn is_current(&self, held: &Held) -> bool {
        held.generation >= self.place.first_generation
    }

    /// Whether the daemon is told the losses of this batch: a predecessor's counts where it was
    /// handed over.
    pub(super) fn may_report(&self, held: &Held) -> bool {
        let is_heard = held.generation >= self.begins_at || self.redo.records();
        is_heard && self.is_current(held)
    }

    /// Whether what it asks for is known to the daemon: one that has not begun the epoch knows of
    /// no batch in its middle.
    pub(super) fn is_begun(&self, epoch: u32, batch: u32) -> bool {
        batch == 0 || !self.is_unbegun || self.place.epoch != epoch
    }

    /// It looks whether the epoch has begun: something of this generation is in the ring.
    pub(super) fn look_for_beginning(&mut self) -> Vec<Descriptor> {
        let is_stale = |delivery: &Delivery| delivery.descriptor.generation < self.place.generation;
        let stale = self.ring.iter().take_while(|delivery| is_stale(delivery)).count();
        let stale: Vec<_> = self.ring.drain(..stale).map(|delivery| delivery.descriptor).collect();
        self.is_unbegun &= self.ring.is_empty();
        stale
    }

    /// Its daemon has died. Returns whether it looks for a successor.
    pub(super) fn note_death(&mut self, now_ns: u64) -> bool {
        self.is_linked = false;
        let place = self.place;
        let at = (place.epoch, place.batch);
        if self.died_at != at {
            (self.died_at, self.deaths, self.idle_deaths) = (at, 0, 0);
        }
        if self.is_awaited {
            self.deaths += 1;
        } else {
            let is_quick = now_ns - self.linked_ns < QUICK_NS;
            self.idle_deaths = if is_quick { self.idle_deaths + 1 } else { 0 };
        }
        self.seek()
    }

    /// The heir has died before it was one. Returns whether another is looked for.
    pub(super) fn note_heirs_death(&mut self) -> bool {
        self.deaths += 1;
        self.seek()
    }

    fn seek(&mut self) -> bool {
        let seeks = self.deaths < DEATHS_MAX && self.idle_deaths < IDLE_DEATHS_MAX;
        self.heir = if seeks { Heir::Sought } else { Heir::None };
        seeks
    }
}

/// The rows of a batch, for a record.
fn redo_rows(Delivery { columns, .. }: &Delivery) -> Vec<RedoRow> {
    let rows = columns.ids.iter().zip(&columns.flags);
    let row = |(&id, &flags): (&i64, &u32)| RedoRow { sample: SampleId(u32::try_from(id).unwrap()), flags };
    rows.map(row).collect()
}
