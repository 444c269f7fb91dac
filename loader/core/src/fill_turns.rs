//! Whose rows go to the workers next.
//!
//! Workers take orders first come, first served. So while there are several jobs only a few orders
//! are out, and the others wait here for their turn: a job with less than its share of them comes
//! first, then the job whose trainers run out of batches first. Else a job that takes batches as
//! fast as it can would have a whole ring of rows before those of the others.

use crate::event::SessionId;
use crate::job::JobId;

/// Orders that workers have.
#[derive(Debug, Default)]
pub(super) struct FillTurns {
    sessions: Vec<Out>,
    /// Number of orders given in all.
    given: u64,
}

/// Those of one rank.
#[derive(Debug)]
struct Out {
    session: SessionId,
    job: JobId,
    orders: usize,
    /// Number of the order that it was given last.
    last: u64,
}

impl FillTurns {
    /// Orders that workers have.
    pub(super) fn out(&self) -> usize {
        self.sessions.iter().map(|out| out.orders).sum()
    }

    /// Which of the ranks has its turn, the first of equal ones. Each comes with its job and the
    /// job's deadline.
    pub(super) fn next(
        &self,
        ranks: impl Iterator<Item = (SessionId, JobId, u64)>,
        share: usize,
    ) -> Option<SessionId> {
        let turn = |&(_, job, deadline): &(SessionId, JobId, u64)| {
            let of_job = || self.sessions.iter().filter(|out| out.job == job);
            let orders: usize = of_job().map(|out| out.orders).sum();
            (orders >= share, deadline, orders, of_job().map(|out| out.last).max())
        };
        ranks.min_by_key(turn).map(|(session, ..)| session)
    }

    /// Workers were given an order of this rank.
    pub(super) fn gave(&mut self, session: SessionId, job: JobId) {
        self.given += 1;
        let last = self.given;
        match self.sessions.iter_mut().find(|out| out.session == session) {
            Some(out) => (out.orders, out.last) = (out.orders + 1, last),
            None => self.sessions.push(Out { session, job, orders: 1, last }),
        }
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
            let ranks = [(10, 1, deadlines[0]), (20, 2, deadlines[1]), (21, 2, deadlines[1])];
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
