//! Whose rows go to the workers next.
//!
//! Workers take orders first come, first served. So while there are several jobs only a few orders
//! are out, and the others wait here for their turn: a job with less than its share of them comes
//! first, then the job whose trainers run out of batches first. Else a job that takes batches as
//! fast as it can would have a whole ring of rows before those of the others.

use foldhash::HashMap;

use crate::ids::{JobId, SessionId};

/// Orders that workers have.
#[derive(Debug, Default)]
pub(super) struct FillTurns {
    sessions: Vec<Out>,
    /// Number of orders given in all.
    given: u64,
    /// By job: the number of the order that it was given last.
    last: HashMap<JobId, u64>,
}

/// The orders of one rank.
#[derive(Debug)]
struct Out {
    session: SessionId,
    job: JobId,
    orders: usize,
}

/// A rank with rows to fill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) session: SessionId,
    pub(super) job: JobId,
    /// Time until the job's trainers run out of batches, ns.
    pub(super) deadline_ns: u64,
    /// Number of the first batch that the rows belong to.
    pub(super) batch: u32,
}

impl FillTurns {
    /// Orders that workers have.
    pub(super) fn out(&self) -> usize {
        self.sessions.iter().map(|out| out.orders).sum()
    }

    /// Which of the ranks has its turn: of one job the rank with the earliest batch, as the others
    /// wait for it.
    pub(super) fn next(&self, ranks: impl Iterator<Item = Waiting>, share: usize) -> Option<SessionId> {
        let turn = |rank: &Waiting| {
            let of_job = self.sessions.iter().filter(|out| out.job == rank.job);
            let orders: usize = of_job.map(|out| out.orders).sum();
            let last = self.last.get(&rank.job).copied().unwrap_or(0);
            (orders >= share, rank.deadline_ns, orders, last, rank.batch)
        };
        ranks.min_by_key(turn).map(|rank| rank.session)
    }

    /// Workers were given an order of this rank.
    pub(super) fn gave(&mut self, session: SessionId, job: JobId) {
        self.given += 1;
        self.last.insert(job, self.given);
        match self.sessions.iter_mut().find(|out| out.session == session) {
            Some(out) => out.orders += 1,
            None => self.sessions.push(Out { session, job, orders: 1 }),
        }
    }

    /// The job has ended.
    pub(super) fn end_job(&mut self, job: JobId) {
        self.last.remove(&job);
    }

    /// An order of this rank, which may have left, came back.
    pub(super) fn took_back(&mut self, session: SessionId) {
        let Some(at) = self.sessions.iter().position(|out| out.session == session) else { return };
        if let Some(out) = self.sessions.get_mut(at).filter(|out| out.orders > 1) {
            out.orders -= 1;
        } else {
            self.sessions.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sessions of the next orders: 10 of job 1, 20 and 21 of job 2, with these deadlines.
    fn turns(turns: &mut FillTurns, share: usize, deadlines: [u64; 2], orders: usize) -> Vec<SessionId> {
        let mut give = || {
            let ranks = [10, 20, 21].map(|session| {
                let (job, at) = (session / 10, session as usize / 10 - 1);
                Waiting { session, job, deadline_ns: deadlines[at], batch: session % 10 }
            });
            let session = turns.next(ranks.into_iter(), share).unwrap();
            turns.gave(session, session / 10);
            session
        };
        (0..orders).map(|_| give()).collect()
    }

    #[test]
    fn equal_jobs_take_turns_and_the_earlier_deadline_goes_first() {
        assert_eq!(turns(&mut FillTurns::default(), 2, [5, 5], 6), [10, 20, 10, 20, 10, 20]);
        assert_eq!(turns(&mut FillTurns::default(), 2, [9, 1], 6), [20, 20, 10, 10, 20, 20]);
    }

    #[test]
    fn the_rank_with_the_earliest_batch_of_a_job_goes_first() {
        let ranks = [(20, 3), (21, 2), (22, 3)].map(|(session, batch)| Waiting {
            session,
            job: 2,
            deadline_ns: 0,
            batch,
        });
        let mut turns = FillTurns::default();
        turns.gave(20, 2);
        assert_eq!(turns.next(ranks.into_iter(), 2), Some(21));
    }

    #[test]
    fn a_job_has_its_share_whatever_the_others_want() {
        let mut greedy = FillTurns::default();
        assert_eq!(turns(&mut greedy, 1, [0, u64::MAX], 4), [10, 20, 10, 10]);
        greedy.took_back(20);
        assert_eq!(turns(&mut greedy, 1, [0, u64::MAX], 1), [20]);
        assert_eq!(greedy.out(), 4);
        for session in [10, 10, 10, 20, 20, 30] {
            greedy.took_back(session);
        }
        assert_eq!(greedy.out(), 0);
        assert!(greedy.sessions.is_empty(), "nobody says when a rank has left");
    }
}
