//! Whose turn it is to read: a queue for each job, in the order of its plan.
//!
//! A job with less than its share of the reads in flight comes first. Then comes the job whose
//! trainers run out of batches first.

use std::collections::VecDeque;

use shade_formats::SampleId;

use crate::ids::JobId;

/// What a job reads.
#[derive(Debug)]
struct Queue {
    job: JobId,
    queued: VecDeque<SampleId>,
    /// Number of its flights.
    in_flight: usize,
    /// Number of the flight that it had last.
    last_flight: u64,
}

/// The queues of all jobs that have read anything.
#[derive(Debug, Default)]
pub(super) struct ReadQueues(Vec<Queue>);

impl ReadQueues {
    /// Adds a record at the end of the job's queue.
    pub(super) fn push(&mut self, job: JobId, sample: SampleId) {
        if let Some(queue) = self.of(job) {
            return queue.queued.push_back(sample);
        }
        self.0.push(Queue { job, queued: VecDeque::from([sample]), in_flight: 0, last_flight: 0 });
    }

    /// Drops what is done from the front of each queue.
    pub(super) fn drop_done(&mut self, mut is_done: impl FnMut(SampleId) -> bool) {
        for Queue { queued, .. } in &mut self.0 {
            while queued.pop_front_if(|sample| is_done(*sample)).is_some() {}
        }
    }

    /// The record to request next, and for which job. Each job comes first until it has `share`
    /// flights, then the one with the earliest deadline. Equal jobs take turns.
    pub(super) fn next(&self, share: usize, deadline: impl Fn(JobId) -> u64) -> Option<(JobId, SampleId)> {
        let waiting = || self.0.iter().filter(|queue| !queue.queued.is_empty());
        let is_only = waiting().nth(1).is_none();
        let turn = |queue: &&Queue| match queue.in_flight {
            _ if is_only => (false, 0, 0, 0),
            flights => (flights >= share, deadline(queue.job), flights, queue.last_flight),
        };
        let queue = waiting().min_by_key(turn)?;
        Some((queue.job, *queue.queued.front()?))
    }

    /// A flight is submitted for the job. One that has ended has no queue any more.
    pub(super) fn submitted(&mut self, job: JobId, flight: u64) {
        if let Some(queue) = self.of(job) {
            (queue.in_flight, queue.last_flight) = (queue.in_flight + 1, flight);
        }
    }

    /// A flight of the job has ended.
    pub(super) fn landed(&mut self, job: JobId) {
        if let Some(queue) = self.of(job) {
            queue.in_flight = queue.in_flight.saturating_sub(1);
        }
    }

    /// The job has ended. Returns what was in its queue.
    pub(super) fn end(&mut self, job: JobId) -> Vec<SampleId> {
        let at = self.0.iter().position(|queue| queue.job == job);
        at.map_or_else(Vec::new, |at| self.0.swap_remove(at).queued.into())
    }

    fn of(&mut self, job: JobId) -> Option<&mut Queue> {
        self.0.iter_mut().find(|queue| queue.job == job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two jobs with ten records each.
    fn queues() -> ReadQueues {
        let mut queues = ReadQueues::default();
        (0..10).for_each(|id| queues.push(1, SampleId(id)));
        (10..20).for_each(|id| queues.push(2, SampleId(id)));
        queues
    }

    /// The jobs of the next flights, with these deadlines.
    fn turns(queues: &mut ReadQueues, share: usize, deadlines: [u64; 2], flights: u64) -> Vec<JobId> {
        let mut take = |flight| {
            let deadline = |job: JobId| deadlines[job as usize - 1];
            let (job, first) = queues.next(share, deadline).unwrap();
            queues.submitted(job, flight);
            queues.drop_done(|sample| sample == first);
            job
        };
        (1..=flights).map(&mut take).collect()
    }

    #[test]
    fn equal_jobs_take_turns() {
        assert_eq!(turns(&mut queues(), 2, [5, 5], 6), [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn the_earlier_deadline_goes_first_once_each_has_its_share() {
        assert_eq!(turns(&mut queues(), 2, [9, 1], 6), [2, 2, 1, 1, 2, 2]);
        let mut greedy = queues();
        assert_eq!(turns(&mut greedy, 1, [0, u64::MAX], 4), [1, 2, 1, 1]);
        greedy.landed(2);
        assert_eq!(turns(&mut greedy, 1, [0, u64::MAX], 1), [2], "its share is free again");
    }

    #[test]
    fn a_job_that_has_ended_has_no_turn() {
        let mut queues = queues();
        assert_eq!(queues.end(1).len(), 10);
        queues.submitted(1, 7);
        assert_eq!(turns(&mut queues, 2, [0, 9], 2), [2, 2]);
        assert!(queues.end(1).is_empty());
    }
}
