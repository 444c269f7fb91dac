//! The step of the core: which event goes where, and what follows in which order.

use crate::action::Action;
use crate::aside::AsideResult;
use crate::brain::Core;
use crate::event::Event;
use crate::ids::BatchId;
use crate::memory::Memory;
use crate::training::{EpochRequest, SavedState};

impl<M: Memory> Core<M> {
    /// Takes in one event. `now_ns` is monotonic. Call [`Core::advance`] after a burst of events.
    pub fn step(&mut self, now_ns: u64, event: Event<M>, actions: &mut Vec<Action<M>>) {
        match self.waits_for_plan(&event) {
            Some(job) => {
                self.note_asked(&event);
                self.postponed.push((job, event));
                self.gather(now_ns, job, actions);
            }
            None => self.take(now_ns, event, actions),
        }
        while let Some(event) = self.next_postponed() {
            self.take(now_ns, event, actions);
        }
    }

    fn take(&mut self, now_ns: u64, event: Event<M>, actions: &mut Vec<Action<M>>) {
        match event {
            Event::Attach(attach) => self.attach(now_ns, *attach, actions),
            Event::Ready(session) => self.batches.ready(session),
            Event::Detach(session) => {
                for report in self.postponed_reports(session) {
                    self.take(now_ns, report, actions);
                }
                self.detach(now_ns, session, actions);
            }
            Event::StartEpoch { session, generation, epoch, first_batch, has_taken } => {
                let request = EpochRequest { generation, epoch, next_batch: first_batch, ended: false };
                self.start_epoch(now_ns, session, request, has_taken, actions);
            }
            Event::Report { session, epoch, batch, losses } => {
                self.report(now_ns, session, BatchId { epoch, number: batch }, &losses, actions);
            }
            Event::Validation { session, score } => self.training.validation(session, score),
            Event::SaveState { session, epoch, batch } => self.save_state(session, epoch, batch, actions),
            Event::TellScores { session, epoch } => {
                actions.push(Action::State(session, self.training.tell_scores(session, epoch)));
            }
            Event::TakeScores { session, bytes } => self.take_scores(session, &bytes, actions),
            Event::LoadState { session, strata, bytes } => self.load_state(session, strata, bytes, actions),
            Event::TakeBase { session, version, bytes } => {
                self.take_base(now_ns, session, version, bytes, actions);
            }
            Event::TakeRedo { session, bytes } => self.take_redo(now_ns, session, &bytes, actions),
            Event::Seat { session, bytes } => self.take_seats(session, &bytes, actions),
            Event::Aside(result) => match result {
                AsideResult::Drawn(drawn) => self.drawn(now_ns, drawn, actions),
                AsideResult::Saved(SavedState { session, bytes }) => {
                    actions.push(Action::State(session, bytes));
                }
                AsideResult::Loaded(loaded) => self.loaded(now_ns, *loaded, actions),
            },
            Event::Depth(depth) => self.records.set_depth(depth),
            Event::Read(completion) => self.read_done(now_ns, completion, actions),
            Event::Tier(event) => self.tier_event(now_ns, event),
            Event::Filled(filled) => self.filled(filled, actions),
            Event::Finalized(ticket) => self.batches.finalized(ticket),
            Event::Waits { session, seq } => self.trainer_waits(session, seq),
            Event::Released { session, seqs } => self.released(now_ns, session, seqs, actions),
            Event::Plan(session, plan, after) => self.give_plan(session, *plan, after.map(|plan| *plan)),
            Event::Importance(session, table) => self.replace_importance(session, *table),
            Event::Resize { cache_bytes, window_bytes } => {
                self.records.resize(cache_bytes, window_bytes);
                // Where all samples were resident nobody looked ahead: now next uses matter.
                self.looks_ahead_due = self.training.jobs().admitting_ids();
            }
            Event::Observe { session, job } => self.observe(now_ns, session, job, actions),
        }
    }

    /// Does what has become possible: orders a due plan, publishes, opens batches, submits reads,
    /// hands rows to workers. Returns `true` if there is more to do once these actions are carried
    /// out, whatever else happens.
    #[must_use]
    pub fn advance(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        let has_slices = self.do_slice(now_ns);
        if self.order_due_plan(now_ns, actions) {
            self.note_waits(now_ns);
            self.check_books();
            return true;
        }
        self.order_next_plans(actions);
        self.predict(now_ns);
        self.publish_complete(now_ns, actions);
        let can_go_on = self.open_batches(now_ns, actions);
        self.submit_reads(now_ns, actions);
        // What it goes by may be out of date.
        if !can_go_on && !has_slices {
            self.prefetch(now_ns, actions);
        }
        self.records.order_from_tier(now_ns, self.training.jobs(), actions);
        self.records.watch(now_ns, actions);
        self.hand_out_rows(now_ns, actions);
        // A batch that needed no work (all rows skipped) is complete by now.
        self.publish_complete(now_ns, actions);
        self.note_waits(now_ns);
        self.trace_snapshots(now_ns, actions);
        self.check_books();
        can_go_on || has_slices
    }

    /// Asserts that what the parts count for themselves adds up.
    fn check_books(&self) {
        assert_eq!(self.batches.ring_count(), self.training.ranks().len(), "each rank has its ring");
        self.training.check_books();
        self.batches.check_books();
        self.figures.check_books();
        self.records.check_books(self.batches.is_idle() && self.batches.are_workers_idle());
    }
}
