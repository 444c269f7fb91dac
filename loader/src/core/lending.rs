//! Records that raw batches show where they lie: lent to a trainer, and not to be overwritten until it has let go of them.
//!
//! A copy of a record costs more than all else that is done for it, so where the dataset stays in memory, raw batches show
//! records of the cache in place. Each is lent once at a time, since a trainer may write to what it was given, and what it
//! writes is seen in its own process wherever the same memory is shown. A record that is lent is pinned, like one that a worker
//! reads; nothing is ever evicted where records are lent, so that takes no room from others.

use shade_formats::SampleId;
use shade_formats::control::Output;

use super::action::Action;
use super::event::SessionId;
use super::machine::Core;
use super::memory::Memory;

impl<M: Memory> Core<M> {
    /// Where in the arena the record of `sample` lies, if it is resident and a raw batch of `session` may show it there.
    pub(super) fn place_to_lend(&self, sample: SampleId, session: SessionId) -> Option<u64> {
        let is_raw = self.job.as_ref().is_some_and(|job| job.spec.output == Output::Raw);
        let borrows = || self.sessions.iter().any(|state| state.id == session && state.borrows);
        if !self.config.lends || !is_raw || !borrows() {
            return None;
        }
        let is_free = |record: &&M::Record| M::holders(record) == 1;
        let place = M::place(self.cache.get(sample).filter(is_free)?)?;
        let entry = self.index.entry(sample)?;
        (!entry.codec.is_compressed()).then_some(place)
    }

    /// `session` has released these descriptors.
    pub(super) fn released(
        &mut self,
        now_ns: u64,
        session: SessionId,
        seqs: Vec<u64>,
        actions: &mut Vec<Action<M>>,
    ) {
        let mut lent = Vec::new();
        if let Some(state) = self.session_mut(session) {
            for seq in seqs {
                let Some(records) = state.release(seq) else {
                    let text = format!("released descriptor {seq}, which it does not hold");
                    actions.push(Action::Close(session, text));
                    break;
                };
                lent.extend(records);
            }
        }
        self.release_all(lent);
        self.trace_release(now_ns, session, actions);
    }

    /// The trainer of `session`, which is detached, does not look at any record any more.
    pub(super) fn let_go(&mut self, session: SessionId) {
        let records = self.stranded.remove(&session).unwrap_or_default();
        self.release_all(records);
    }

    /// As [`release`](Self::release), of each.
    pub(super) fn release_all(&mut self, records: Vec<M::Record>) {
        for record in records {
            self.release(record);
        }
    }
}
