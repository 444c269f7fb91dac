//! For what a rank's trainer waits.
//!
//! A wait begins with each epoch, and whenever the trainer says which descriptor it waits for. It
//! ends when that is published. Meanwhile the time goes to what the rank's oldest open batch waits
//! for. That changes only while the core acts, so each `advance` counts the time since the one
//! before.

use crate::action::Action;
use crate::brain::Core;
use crate::figures::{Bound, Cause, Waits};
use crate::ids::{JobId, SessionId};
use crate::memory::Memory;
use crate::training::Rank;

impl<M: Memory> Core<M> {
    /// A trainer says that it waits for descriptor `seq`, which may be published meanwhile, or any
    /// number.
    pub(super) fn trainer_waits(&mut self, session: SessionId, seq: u64) {
        // A client can only make its own figures wrong.
        let is_next = self.batches.status(session).is_some_and(|ring| ring.first_unpublished == seq);
        let at = self.training.ranks().iter().position(|rank| rank.session() == session);
        if let Some(at) = at.filter(|_| is_next) {
            self.training.rank_at_mut(at).awaits(seq);
        }
    }

    /// Counts the time up to now, and finds for whom it is counted next.
    pub(super) fn note_waits(&mut self, now_ns: u64) {
        for at in 0..self.training.ranks().len() {
            let bound = self.bound_of(&self.training.ranks()[at]);
            self.training.rank_at_mut(at).note_wait(now_ns, bound);
        }
    }

    fn bound_of(&self, rank: &Rank) -> Option<Bound> {
        let request = rank.request().filter(|request| !request.ended)?;
        let ring = self.batches.status(rank.session())?;
        if !rank.clock().is_awaited(ring.first_unpublished) {
            let is_full = ring.is_oldest_unread.is_none() && ring.is_blocked;
            return is_full.then_some(Bound::RingFull);
        }
        let cause = match ring.is_oldest_unread {
            Some(true) => Cause::Storage,
            Some(false) => Cause::Workers,
            None => {
                let job = self.training.job(rank.job())?;
                let is_drawn = job.epoch() == Some(request.epoch);
                // A trainer that keeps the whole ring waits for itself.
                if is_drawn && ring.is_full {
                    return Some(Bound::RingFull);
                }
                let is_drawn_next = self.training.is_due(job) && !job.waits_for_group();
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
        for at in 0..self.training.ranks().len() {
            let rank = &self.training.ranks()[at];
            if rank.job() != id {
                continue;
            }
            let is_done = rank.has_ended() && self.batches.is_released(rank.session());
            if is_done {
                self.training.rank_at_mut(at).end_epoch(now_ns);
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
        let ranks = self.training.ranks_of(job);
        let (waits, times): (Vec<_>, Vec<_>) = ranks.map(|rank| rank.clock().of_epoch()).unzip();
        let counts = self.figures.since_begun(job);
        let job = self.training.job(job)?;
        let of = |cause| waits.iter().map(|waits| waits.of(cause)).sum::<u64>();
        let waited_ns: u64 = waits.iter().map(Waits::waited_ns).sum();
        let waited = 100.0 * waited_ns as f64 / times.iter().sum::<u64>().max(1) as f64;
        let main = Cause::ALL.into_iter().max_by_key(|&cause| of(cause)).filter(|_| waited_ns > 0);
        let cause = main.map_or_else(String::new, |cause| format!(" ({})", cause.name()));
        let seconds = times.iter().copied().max()?.max(1) as f64 / 1e9;
        let rate = (counts.bytes_read + counts.tier_bytes) as f64 / 1e6 / seconds;
        let (name, epoch, hits) = (job.name(), job.epoch()?, 100.0 * counts.hit_ratio());
        Some(format!(
            "job {name:?}, epoch {epoch}: waited {waited:.1} %{cause}, {hits:.1} % hits, {rate:.0} MB/s"
        ))
    }
}
