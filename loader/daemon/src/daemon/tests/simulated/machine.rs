//! Store, tier, workers and the thread aside, as one daemon has them: each answers at a time of its
//! own. And the moment at which the daemon dies: before any action, or before any event.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use shade_core::driver::{Delivery, Soon, World};
use shade_core::{
    AsideOrder, Completion, Fault, FaultKind, FillOrder, ReadOp, Resumed, SessionId, Ticket, TierEvent,
    TierMiss, TierOrder, TierPut,
};
use shade_formats::SampleId;
use shade_reads::blocks::{Blocks, FreeList, Lent};

use super::super::super::{Action, Event};
use super::rows::filled;

pub(super) const MS: u64 = 1_000_000;

/// What outlives a daemon.
#[derive(Default)]
pub(super) struct Outside {
    /// Samples whose record cannot be read.
    pub(super) bad: HashSet<u32>,
    /// Samples that the tier has.
    pub(super) tier: HashSet<u32>,
    pub(super) tier_fails: bool,
    pub(super) store_fails: bool,
}

/// What a daemon has told its ranks, as it lies in their sockets and rings.
#[expect(clippy::large_enum_variant, reason = "there are few at a time")]
pub(super) enum Told {
    Accepted(SessionId),
    Refused(String),
    Published(Delivery),
    /// The base of an epoch.
    Base(SessionId, u32, Arc<Vec<u8>>),
    State(SessionId, Vec<u8>),
    Loaded(SessionId, Resumed),
    Taken(SessionId),
    /// The session, or its epoch, is at an end.
    Ended(SessionId, String),
}

/// What is under way in a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnderWay {
    pub(super) aside: u32,
    pub(super) reads: u32,
    pub(super) fills: u32,
}

/// Where a daemon dies.
pub(super) struct Fate {
    /// The events, actions and acts that it still lives through; `None`: it does not die.
    left: Option<u64>,
    is_dead: bool,
    /// What it was about to do.
    pub(super) at: &'static str,
    /// What it lived through.
    pub(super) lived: u64,
}

impl Fate {
    pub(super) fn new(left: Option<u64>) -> Self {
        Self { left, is_dead: false, at: "begin", lived: 0 }
    }

    /// The daemon is about to do this. Returns whether it does.
    pub(super) fn goes_on(&mut self, to: &'static str) -> bool {
        if self.is_dead {
            return false;
        }
        self.at = to;
        if self.left == Some(0) {
            self.is_dead = true;
            return false;
        }
        self.left = self.left.map(|left| left - 1);
        self.lived += 1;
        true
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// It does not die any more.
    pub(super) fn spare(&mut self) {
        self.left = None;
    }
}

/// See the [module](self).
pub(super) struct Machine {
    random: ChaCha8Rng,
    pub(super) now_ns: u64,
    pub(super) fate: Fate,
    outside: Rc<RefCell<Outside>>,
    /// By time and number.
    answers: BTreeMap<(u64, u64), Event>,
    answered: u64,
    /// The last answer of those that come in the order of their orders.
    last_ns: u64,
    /// What ranks were told and have not seen.
    pub(super) told: Vec<Told>,
    /// Records that workers find to be wrong, once.
    spoilt: HashSet<u32>,
}

impl Machine {
    pub(super) fn new(
        mut random: ChaCha8Rng,
        now_ns: u64,
        fate: Fate,
        outside: &Rc<RefCell<Outside>>,
    ) -> Self {
        let spoilt = if random.random_bool(0.2) { HashSet::from([5, 6]) } else { HashSet::new() };
        let outside = Rc::clone(outside);
        let (answers, told) = (BTreeMap::new(), Vec::new());
        Self { random, now_ns, fate, outside, answers, answered: 0, last_ns: 0, told, spoilt }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.answers.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    pub(super) fn under_way(&self) -> UnderWay {
        let mut under_way = UnderWay::default();
        for event in self.answers.values() {
            match event {
                Event::Aside(_) => under_way.aside += 1,
                Event::Read(_) => under_way.reads += 1,
                Event::Filled(_) => under_way.fills += 1,
                _ => {}
            }
        }
        under_way
    }

    /// An answer within `ms` milliseconds.
    fn answer(&mut self, ms: u64, event: Event) {
        let at_ns = self.now_ns + self.random.random_range(1..=ms * MS);
        self.answer_at(at_ns, event);
    }

    /// An answer after all earlier ones of its kind.
    fn answer_in_order(&mut self, event: Event) {
        self.last_ns = self.last_ns.max(self.now_ns) + self.random.random_range(1..=MS);
        self.answer_at(self.last_ns, event);
    }

    fn answer_at(&mut self, at_ns: u64, event: Event) {
        self.answered += 1;
        self.answers.insert((at_ns, self.answered), event);
    }

    fn get(&mut self, op: ReadOp<Blocks>) {
        let drawn = self.random.random_range(0..10);
        let outside = self.outside.borrow();
        let outcome = match drawn {
            _ if outside.tier_fails => Err(TierMiss::Down),
            _ if !outside.tier.contains(&op.sample.0) => Err(TierMiss::Absent),
            0 => Err(TierMiss::Wrong),
            _ => Ok(()),
        };
        drop(outside);
        self.answer(2, Event::Tier(TierEvent::Got { op, outcome, latency: Duration::from_millis(1) }));
    }

    fn order_of_tier(&mut self, order: TierOrder<FreeList>) {
        match order {
            TierOrder::Get(ops) => ops.into_iter().for_each(|op| self.get(op)),
            TierOrder::Put { sample, record, .. } => {
                let mut outside = self.outside.borrow_mut();
                let outcome = if outside.tier_fails { TierPut::Failed } else { TierPut::Stored };
                if outcome == TierPut::Stored {
                    outside.tier.insert(sample.0);
                }
                drop(outside);
                self.answer_in_order(Event::Tier(TierEvent::Put { sample, record, outcome }));
            }
            TierOrder::Drop(samples) => {
                self.outside.borrow_mut().tier.retain(|&id| !samples.contains(&SampleId(id)));
            }
        }
    }
}

impl World<FreeList> for Machine {
    const BURSTS: bool = true;

    fn aside(&mut self, order: AsideOrder, _soon: &mut Soon<FreeList>) {
        if self.fate.goes_on("order aside") {
            self.answer_in_order(Event::Aside(order.carry_out()));
        }
    }

    fn read(&mut self, _now_ns: u64, op: ReadOp<Blocks>, _soon: &mut Soon<FreeList>) {
        if !self.fate.goes_on("order a read") {
            return;
        }
        let outside = self.outside.borrow();
        let fault = |kind, text: &str| Err(Fault { kind, text: text.to_owned() });
        let outcome = if outside.bad.contains(&op.sample.0) {
            fault(FaultKind::Record, "the record is gone")
        } else if outside.store_fails {
            fault(FaultKind::Store, "the store is gone")
        } else {
            Ok(())
        };
        drop(outside);
        let latency = Duration::from_millis(3);
        self.answer(9, Event::Read(Completion { op, outcome, checked: true, latency }));
    }

    fn fill(&mut self, order: FillOrder<Lent>, _soon: &mut Soon<FreeList>) {
        if !self.fate.goes_on("order rows") {
            return;
        }
        let mut filled = filled(order);
        for (at, row) in filled.rows.iter().enumerate() {
            if row.record.is_some() && self.spoilt.remove(&row.sample.0) {
                let (kind, text) = (FaultKind::Checksum, "other bytes than were packed".to_owned());
                filled.faults.push((at, Fault { kind, text }));
            }
        }
        self.answer(1, Event::Filled(filled));
    }

    fn finalize(&mut self, ticket: Ticket, soon: &mut Soon<FreeList>) {
        if self.fate.goes_on("finalize") {
            soon.push_back(Event::Finalized(ticket));
        }
    }

    fn take(&mut self, delivery: Delivery, _soon: &mut Soon<FreeList>) {
        if self.fate.goes_on("publish") {
            self.told.push(Told::Published(delivery));
        }
    }

    fn told(&mut self, action: Action) {
        if let Action::Base(sessions, epoch, bytes) = action {
            for session in sessions {
                if self.fate.goes_on("give a base") {
                    self.told.push(Told::Base(session, epoch, Arc::clone(&bytes)));
                }
            }
            return;
        }
        let what = match &action {
            Action::Accept(..) | Action::Refuse(..) => "answer a hello",
            Action::State(..) => "hand out a state",
            Action::StateLoaded(..) | Action::Taken(_) => "answer a rank",
            Action::Fail(..) | Action::Interrupt(..) | Action::Close(..) => "end a session",
            Action::Tier(_) => "order of the tier",
            _ => "tell the user",
        };
        if !self.fate.goes_on(what) {
            return;
        }
        match action {
            Action::Accept(session, _) => self.told.push(Told::Accepted(session)),
            Action::Refuse(_, refusal) => self.told.push(Told::Refused(refusal.text)),
            Action::State(session, bytes) => self.told.push(Told::State(session, bytes)),
            Action::StateLoaded(session, resumed) => self.told.push(Told::Loaded(session, resumed)),
            Action::Taken(session) => self.told.push(Told::Taken(session)),
            Action::Fail(session, text) | Action::Interrupt(session, text) | Action::Close(session, text) => {
                self.told.push(Told::Ended(session, text));
            }
            Action::Tier(order) => self.order_of_tier(order),
            _ => {}
        }
    }

    fn next(&mut self, _now_ns: u64, soon: &mut Soon<FreeList>) -> Option<u64> {
        let ((at_ns, _), event) = self.answers.pop_first()?;
        self.now_ns = at_ns;
        soon.push_back(event);
        Some(at_ns)
    }

    fn before(&mut self, event: &Event) {
        self.fate.goes_on(match event {
            Event::Attach(_) => "take a hello",
            Event::Ready(_) => "take a ring",
            Event::Detach(_) => "take a goodbye",
            Event::StartEpoch { .. } => "take an epoch's start",
            Event::Report { .. } => "take a report",
            Event::Validation { .. } => "take a validation",
            Event::SaveState { .. } | Event::LoadState { .. } | Event::Seat { .. } => "take a question",
            Event::TakeBase { .. } | Event::TakeRedo { .. } => "take what is handed over",
            Event::Aside(_) => "take what was done aside",
            Event::Read(_) => "take a read",
            Event::Tier(_) => "take from the tier",
            Event::Filled(_) => "take rows",
            Event::Finalized(_) => "take a batch",
            Event::Waits { .. } => "take a wait",
            Event::Released { .. } => "take a release",
            Event::Resize { .. } => "take a resize",
            _ => "take another event",
        });
    }
}
