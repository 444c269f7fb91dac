//! The world around a simulated core: a store, a trainer and a virtual clock. Workers take no time.

use std::time::Duration;

use shade_core::driver::{Delivery, Soon, World};
use shade_core::{Action, Event, FillOrder, ReadOp, Refusal, SessionId, Ticket};
use shade_formats::trace::Line;

use crate::recalled::Recalled;
use crate::store::{NoMemory, VirtualStore, answered, filled};
use crate::trainer::Trainer;

/// The only node.
const HERE: usize = 0;

/// What answers the reads.
pub(super) enum Answers<'a> {
    /// Nothing takes time.
    AtOnce,
    /// A store, at the times of its model.
    Store(VirtualStore),
    /// A recording, at its times.
    Recalled(Recalled<'a>),
}

/// See the [module](self).
pub(super) struct VirtualWorld<'a> {
    pub(super) answers: Answers<'a>,
    /// The trainer, or that of the first job.
    pub(super) trainer: Trainer<'a>,
    /// Those of other jobs at the same time: session 1 is the first of them.
    pub(super) others: Vec<Trainer<'a>>,
    /// The time of the last event.
    now_ns: u64,
}

impl<'a> VirtualWorld<'a> {
    pub(super) fn new(answers: Answers<'a>, trainer: Trainer<'a>) -> Self {
        Self { answers, trainer, others: Vec::new(), now_ns: 0 }
    }

    /// The trainer of a session.
    pub(super) fn trainer_of(&mut self, session: SessionId) -> &mut Trainer<'a> {
        let other = (session as usize).checked_sub(1).and_then(|at| self.others.get_mut(at));
        other.unwrap_or(&mut self.trainer)
    }

    /// When the first trainer ends its batch.
    fn next_ns(&self) -> Option<u64> {
        std::iter::once(&self.trainer).chain(&self.others).filter_map(Trainer::next_ns).min()
    }

    /// That trainer ends its batch.
    fn finish(&mut self, soon: &mut Soon<NoMemory>) -> Option<u64> {
        self.now_ns = self.next_ns()?;
        let now_ns = self.now_ns;
        let mut trainers = std::iter::once(&mut self.trainer).chain(&mut self.others);
        trainers.find(|trainer| trainer.next_ns() == Some(now_ns))?.finish(now_ns, soon);
        Some(now_ns)
    }
}

impl World<NoMemory> for VirtualWorld<'_> {
    const BURSTS: bool = true;

    fn read(&mut self, now_ns: u64, op: ReadOp<()>, soon: &mut Soon<NoMemory>) {
        match &mut self.answers {
            Answers::AtOnce => soon.push_back(Event::Read(answered(op, Duration::ZERO))),
            Answers::Store(store) => store.send(now_ns, HERE, vec![op]),
            Answers::Recalled(recalled) => recalled.send(op),
        }
    }

    fn read_together(&mut self, now_ns: u64, ops: Vec<ReadOp<()>>, soon: &mut Soon<NoMemory>) {
        if let Answers::Store(store) = &mut self.answers {
            return store.send(now_ns, HERE, ops);
        }
        ops.into_iter().for_each(|op| self.read(now_ns, op, soon));
    }

    fn fill(&mut self, order: FillOrder<()>, soon: &mut Soon<NoMemory>) {
        soon.push_back(Event::Filled(filled(order)));
    }

    fn finalize(&mut self, ticket: Ticket, soon: &mut Soon<NoMemory>) {
        soon.push_back(Event::Finalized(ticket));
    }

    fn take(&mut self, delivery: Delivery, soon: &mut Soon<NoMemory>) {
        let now_ns = self.now_ns;
        self.trainer_of(delivery.session).take(now_ns, delivery, soon);
    }

    fn told(&mut self, action: Action<NoMemory>) {
        match action {
            Action::Refuse(_, Refusal { text, .. })
            | Action::Fail(_, text)
            | Action::Interrupt(_, text)
            | Action::Close(_, text) => self.trainer.refused = Some(text),
            Action::Trace(_, line) => {
                if let (Answers::Recalled(recalled), Line::Open(open)) = (&mut self.answers, *line) {
                    recalled.opened(&open);
                }
            }
            // Warnings are for a training.
            _ => {}
        }
    }

    /// Answers come before what the trainer does at the same time.
    fn next(&mut self, _now_ns: u64, soon: &mut Soon<NoMemory>) -> Option<u64> {
        let done_ns = self.next_ns();
        match &mut self.answers {
            Answers::AtOnce => self.finish(soon),
            Answers::Store(store) => match (store.next_ns(), done_ns) {
                (Some(answer_ns), done_ns) if done_ns.is_none_or(|done_ns| answer_ns <= done_ns) => {
                    self.now_ns = answer_ns;
                    let answers = std::iter::from_fn(|| store.answer(answer_ns));
                    soon.extend(answers.map(|(_, record)| Event::Read(record)));
                    Some(answer_ns)
                }
                _ => self.finish(soon),
            },
            Answers::Recalled(recalled) => {
                let is_idle = done_ns.is_none();
                // Fewer batches may be open here than in the recording. Then the first reads are
                // answered all the same.
                if recalled.answer(false, soon) || (is_idle && recalled.answer(true, soon)) {
                    return Some(self.now_ns);
                }
                self.finish(soon)
            }
        }
    }
}
