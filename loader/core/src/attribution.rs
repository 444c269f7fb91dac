//! For what a rank's trainer waits.
//!
//! A wait begins with each epoch, and whenever the trainer says which descriptor it waits for. It
//! ends when that is published. Meanwhile the time goes to what the rank's oldest open batch waits
//! for. That changes only while the core acts, so each `advance` counts the time since the one
//! before.

use crate::action::Action;
use crate::brain::Core;
use crate::event::SessionId;
use crate::figures::{Bound, Cause, Waits};
use crate::job::JobId;
use crate::memory::Memory;
use crate::session::Session;

impl<M: Memory> Core<M> {
    /// A trainer says that it waits for descriptor `seq`, which may be published meanwhile, or any
    /// number.
    pub(super) fn trainer_waits(&mut self, session: SessionId, seq: u64) {
        // A client can only make its own figures wrong.
        if let Some(session) = self.session_mut(session).filter(|session| session.first_unpublished() == seq)
        {
            session.clock.awaits(seq);
        }
    }

    /// Counts the time up to now, and finds for whom it is counted next.
    pub(super) fn note_waits(&mut self, now_ns: u64) {
        for at in 0..self.sessions.len() {
            let bound = self.sessions.get(at).and_then(|session| self.bound_of(session));
            self.sessions.get_mut(at).into_iter().for_each(|session| session.clock.note(now_ns, bound));
        }
    }

    fn bound_of(&self, session: &Session<M>) -> Option<Bound> {
        let request = session.request.filter(|request| !request.ended)?;
        let oldest = session.open.front().filter(|batch| !batch.is_held());
        if !session.clock.is_awaited(session.first_unpublished()) {
            let is_full = oldest.is_none() && session.blocked_since_ns.is_some();
            return is_full.then_some(Bound::RingFull);
        }
        let cause = match oldest {
            Some(batch) if batch.unread > 0 => Cause::Storage,
            Some(_) => Cause::Workers,
            None => {
                let job = self.jobs.get(session.job)?;
                let is_drawn = job.epoch() == Some(request.epoch);
                // A trainer that keeps the whole ring waits for itself.
                if is_drawn && session.is_full {
                    return Some(Bound::RingFull);
                }
                let is_drawn_next = self.is_due(job) && job.waits_since_ns.is_none();
                if is_drawn || is_drawn_next { Cause::Plan } else { Cause::Ranks }
            }
        };
        Some(Bound::Waits(cause))
    }

    /// Tells of an epoch that all ranks of the job were given, once they have released all of it,
    /// or one of them `goes_on` before.
    pub(super) fn tell_of_epoch(
        &mut self,
        id: JobId,
        now_ns: u64,
        goes_on: bool,
        actions: &mut Vec<Action<M>>,
    ) {
        if !self.figures.is_line_due(id) {
            return;
        }
        self.note_waits(now_ns);
        let mut are_done = true;
        for session in self.sessions.iter_mut().filter(|session| session.job == id) {
            let is_done = session.has_released_epoch();
            if is_done {
                session.clock.end_epoch(now_ns);
            }
            are_done &= is_done;
        }
        if are_done || goes_on {
            actions.extend(self.epoch_line(id).map(Action::Inform));
            self.figures.has_told(id);
        }
    }

    /// A line about an epoch of the job: its waits, hits and bytes read.
    fn epoch_line(&self, job: JobId) -> Option<String> {
        let sessions = self.sessions.iter().filter(|session| session.job == job);
        let (waits, times): (Vec<_>, Vec<_>) = sessions.map(|session| session.clock.of_epoch()).unzip();
        let counts = self.figures.since_begun(job);
        let job = self.jobs.get(job)?;
        let of = |cause| waits.iter().map(|waits| waits.of(cause)).sum::<u64>();
        let waited_ns: u64 = waits.iter().map(Waits::waited_ns).sum();
        let waited = 100.0 * waited_ns as f64 / times.iter().sum::<u64>().max(1) as f64;
        let main = Cause::ALL.into_iter().max_by_key(|&cause| of(cause)).filter(|_| waited_ns > 0);
        let cause = main.map_or_else(String::new, |cause| format!(" ({})", cause.name()));
        let seconds = times.iter().copied().max()?.max(1) as f64 / 1e9;
        let rate = (counts.bytes_read + counts.tier_bytes) as f64 / 1e6 / seconds;
        let (name, epoch, hits) = (&job.name, job.epoch()?, 100.0 * counts.hit_ratio());
        Some(format!(
            "job {name:?}, epoch {epoch}: waited {waited:.1} %{cause}, {hits:.1} % hits, {rate:.0} MB/s"
        ))
    }
}
