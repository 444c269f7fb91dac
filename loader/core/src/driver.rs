//! Drives a core without a machine: a [`World`] carries out its actions, and the results go back as
//! events.
//!
//! `simulate` has a world with a virtual clock, store and trainer. The tests have one in which
//! reads and fills end in a seeded random order. Both share this driver: it orders the events,
//! keeps the columns of each descriptor, and knows which descriptors a trainer still wants.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use shade_formats::ring::{Descriptor, Kind};
use shade_job::{JobSpec, Tables};

use crate::orders::{Columns, FillOrder, ReadOp, Ticket};
use crate::{Action, AsideOrder, Attach, Core, Event, Memory, SessionId};

/// Events that happen at the current time, in their order.
pub type Soon<M> = VecDeque<Event<M>>;

/// A descriptor that a trainer takes out of its ring.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The trainer's session.
    pub session: SessionId,
    /// The descriptor.
    pub descriptor: Descriptor,
    /// The columns of a batch; empty if it has no rows.
    pub columns: Columns,
    /// The text of an error.
    pub error: Option<String>,
    /// Whether it belongs to the epoch that the trainer started last. A trainer releases any other
    /// unseen.
    pub is_current: bool,
}

/// Store, workers and trainers of a core.
pub trait World<M: Memory> {
    /// Whether the core takes in all events of a moment before it advances, as in the daemon. Else
    /// it advances after each.
    const BURSTS: bool;

    /// Something was ordered aside. It is done at once, unless the world takes its time.
    fn aside(&mut self, order: AsideOrder, soon: &mut Soon<M>) {
        soon.push_front(Event::Aside(order.carry_out()));
    }
    /// A read was ordered.
    fn read(&mut self, now_ns: u64, op: ReadOp<M::Room>, soon: &mut Soon<M>);
    /// A read of neighbours together was ordered.
    fn read_together(&mut self, now_ns: u64, ops: Vec<ReadOp<M::Room>>, soon: &mut Soon<M>) {
        ops.into_iter().for_each(|op| self.read(now_ns, op, soon));
    }
    /// Rows were handed out to be filled.
    fn fill(&mut self, order: FillOrder<M::Lent>, soon: &mut Soon<M>);
    /// The order to write a batch's columns. The driver keeps them.
    fn finalize(&mut self, ticket: Ticket, soon: &mut Soon<M>);
    /// A trainer is given something.
    fn take(&mut self, delivery: Delivery, soon: &mut Soon<M>);
    /// Any other action.
    fn told(&mut self, action: Action<M>);
    /// Appends the next events. Returns their time, or `None` if there are none. `now_ns` is the
    /// time of the last ones.
    fn next(&mut self, now_ns: u64, soon: &mut Soon<M>) -> Option<u64>;

    /// The core is about to take in `event`.
    fn before(&mut self, _event: &Event<M>) {}
    /// The core has advanced, and these actions follow.
    fn after(&mut self, _core: &Core<M>, _actions: &[Action<M>]) {}
}

/// One rank's ring.
#[derive(Default)]
struct Ring {
    /// Counts the epochs that the trainer has started.
    generation: u32,
    /// A batch of this generation was given to it.
    has_taken: bool,
    /// Columns of finalized batches, by sequence number.
    columns: HashMap<u64, Columns>,
}

/// A core and its world.
pub struct Driver<M: Memory, W> {
    /// The core.
    pub core: Core<M>,
    /// Its world.
    pub world: W,
    /// Trainers that attach from now on go on with a successor of this core.
    pub survives: bool,
    rings: HashMap<SessionId, Ring>,
    soon: Soon<M>,
    /// Kept for its space.
    actions: Vec<Action<M>>,
    now_ns: u64,
}

impl<M: Memory, W: World<M>> Driver<M, W> {
    /// A core at time 0, before any event.
    pub fn new(core: Core<M>, world: W) -> Self {
        let (rings, soon, actions) = (HashMap::new(), VecDeque::new(), Vec::new());
        Self { core, world, survives: false, rings, soon, actions, now_ns: 0 }
    }

    /// A trainer of the job of this name attaches.
    pub fn attach(
        &mut self,
        session: SessionId,
        job: &str,
        rank: u32,
        spec: &JobSpec,
        tables: impl Into<Tables>,
    ) {
        self.rings.insert(session, Ring::default());
        let (job, spec) = (job.to_owned(), spec.clone());
        let (tables, survives) = (tables.into(), self.survives);
        self.step(Event::Attach(Box::new(Attach { session, job, rank, spec, tables, survives })));
    }

    /// A trainer leaves.
    pub fn detach(&mut self, session: SessionId) {
        self.rings.remove(&session);
        self.step(Event::Detach(session));
    }

    /// A trainer wants an epoch from its batch `first_batch` on.
    pub fn start(&mut self, session: SessionId, epoch: u32, first_batch: u32) {
        let Some(ring) = self.rings.get_mut(&session) else { return };
        ring.generation += 1;
        let (generation, has_taken) = (ring.generation, std::mem::take(&mut ring.has_taken));
        self.step(Event::StartEpoch { session, generation, epoch, first_batch, has_taken });
    }

    /// A trainer that has taken batches of a core before this one wants the rest of an epoch.
    pub fn go_on(&mut self, session: SessionId, epoch: u32, first_batch: u32) {
        self.rings.get_mut(&session).into_iter().for_each(|ring| ring.has_taken = true);
        self.start(session, epoch, first_batch);
    }

    /// Takes in an event now, with all that follows at once.
    pub fn step(&mut self, event: Event<M>) {
        self.soon.push_back(event);
        self.settle();
    }

    /// Goes on to the next events. Returns `false` if there are none.
    pub fn tick(&mut self) -> bool {
        let Some(at_ns) = self.world.next(self.now_ns, &mut self.soon) else { return false };
        self.now_ns = self.now_ns.max(at_ns);
        self.settle();
        true
    }

    /// Goes on until there are no more events.
    pub fn run(&mut self) {
        while self.tick() {}
    }

    /// Lets time pass without events.
    pub fn wait(&mut self, time: Duration) {
        self.now_ns = self.now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.advance();
        self.settle();
    }

    /// Gives the events of this time to the core, and carries out its actions.
    fn settle(&mut self) {
        while let Some(event) = self.soon.pop_front() {
            self.world.before(&event);
            self.core.step(self.now_ns, event, &mut self.actions);
            if !W::BURSTS || self.soon.is_empty() {
                self.advance();
            }
        }
    }

    fn advance(&mut self) {
        loop {
            let may_go_on = self.core.advance(self.now_ns, &mut self.actions);
            self.world.after(&self.core, &self.actions);
            self.carry_out();
            if !may_go_on || !self.soon.is_empty() {
                return;
            }
        }
    }

    fn carry_out(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Aside(order) => self.world.aside(order, &mut self.soon),
                Action::Read(op) => self.world.read(self.now_ns, op, &mut self.soon),
                Action::ReadTogether(ops) => self.world.read_together(self.now_ns, ops, &mut self.soon),
                Action::Fill(order) => self.world.fill(order, &mut self.soon),
                Action::Finalize(order) => {
                    if let Some(ring) = self.rings.get_mut(&order.ticket.session) {
                        ring.columns.insert(order.ticket.seq, order.columns);
                    }
                    self.world.finalize(order.ticket, &mut self.soon);
                }
                Action::Publish(session, descriptor) => self.publish(session, *descriptor, None),
                Action::PublishError(session, descriptor, text) => {
                    self.publish(session, *descriptor, Some(text));
                }
                told => {
                    if let Action::Accept(session, _) = told {
                        self.soon.push_back(Event::Ready(session));
                    }
                    self.world.told(told);
                }
            }
        }
        self.actions = actions;
    }

    fn publish(&mut self, session: SessionId, descriptor: Descriptor, error: Option<String>) {
        let Some(ring) = self.rings.get_mut(&session) else { return };
        let columns = ring.columns.remove(&descriptor.seq).unwrap_or_default();
        let is_current = descriptor.generation == ring.generation;
        ring.has_taken |= is_current && descriptor.kind == Kind::Batch;
        self.world.take(Delivery { session, descriptor, columns, error, is_current }, &mut self.soon);
    }
}
