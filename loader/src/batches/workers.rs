//! The threads that fill and seal batches: all take from the same two queues and answer into another.
//!
//! What is to be sealed goes before what is to be filled. A batch's rows are ordered before those of the batches behind it, but
//! its seal only once they are filled; at the end of one queue it would wait until all of the ring is filled.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, select_biased, unbounded};
use shade_formats::index::Index;

use super::decode::shrink;
use super::decompress::Dictionaries;
use super::fill::Filler;
use super::seal::seal;
use super::{Job, JobDone};
use crate::blocks::Arena;

/// Running worker threads. Dropped, they finish what is queued, answer it, and end; the drop waits for that.
#[derive(Debug)]
pub struct Workers {
    /// Taken by the drop: its absence ends the threads.
    queues: Option<Queues<Sender<Job>>>,
    threads: Vec<JoinHandle<()>>,
}

/// The two queues' ends. Unbounded, because the core orders only rows that have their place in a ring, which bounds them,
/// and must never wait for a worker.
#[derive(Clone, Debug)]
struct Queues<End> {
    seals: End,
    fills: End,
}

impl Workers {
    /// Starts `count` threads, which answer each job into `done`. Jobs of one batch may end in any order.
    ///
    /// # Errors
    /// `InvalidInput` for no threads; otherwise the system does not give that many.
    pub fn start(
        count: usize,
        index: Arc<Index>,
        arena: Arc<Arena>,
        done: Sender<JobDone>,
    ) -> io::Result<Self> {
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "0 workers: expected at least 1"));
        }
        let ((seals, seals_out), (fills, fills_out)) = (unbounded(), unbounded());
        let queues = Queues { seals: seals_out, fills: fills_out };
        // Made first, so that the threads already started end if a later one cannot be.
        let mut workers = Self { queues: Some(Queues { seals, fills }), threads: Vec::with_capacity(count) };
        let dictionaries = Dictionaries::prepare(&index);
        for number in 0..count {
            let (queues, done) = (queues.clone(), done.clone());
            let filler = Filler::new(Arc::clone(&index), Arc::clone(&arena), dictionaries.clone());
            let thread = Builder::new()
                .name(format!("shade-fill-{number}"))
                .spawn(move || work(&queues, filler, &done))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Queues a job. Never waits.
    pub fn submit(&self, job: Job) {
        if let Some(queues) = &self.queues {
            let queue = if matches!(job, Job::Seal(..)) { &queues.seals } else { &queues.fills };
            // Cannot fail: the threads hold the other end until the drop takes this one.
            let _ = queue.send(job);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        drop(self.queues.take());
        for thread in self.threads.drain(..) {
            // A worker's panic is caught where it works; what else could have ended it, the hook has printed.
            let _ = thread.join();
        }
    }
}

impl Queues<Receiver<Job>> {
    /// The next job, what is to be sealed first; `None` when nothing comes any more.
    fn next(&self) -> Option<Job> {
        // Both ends go at once, but what is in the other queue then is still to be done.
        select_biased! {
            recv(self.seals) -> job => job.or_else(|_| self.fills.recv()).ok(),
            recv(self.fills) -> job => job.or_else(|_| self.seals.recv()).ok(),
        }
    }
}

/// One worker: works until both queues are empty and their other ends gone.
fn work(queues: &Queues<Receiver<Job>>, mut filler: Filler, done: &Sender<JobDone>) {
    let mut column = Vec::new();
    while let Some(job) = queues.next() {
        let answer = match job {
            // The segment is let go of before the answer, after which the core may end the session.
            Job::Fill(order, payload) => JobDone::Filled(filler.fill(order, &payload)),
            Job::Seal(order, payload) => match seal(&order, &payload, &mut column) {
                Ok(()) => JobDone::Sealed(order.ticket),
                Err(error) => JobDone::SealFailed(order.ticket, error),
            },
        };
        shrink(&mut column);
        // Nobody listens any more only when the daemon is stopping; the queue is drained all the same.
        let _ = done.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use shade_formats::control::Output;
    use shade_formats::ring::{BatchLayout, Layout, Region};

    use super::*;
    use crate::batches::{Columns, FillOrder, SealOrder, Ticket};

    #[test]
    fn what_is_to_be_sealed_goes_first_and_nothing_is_lost_at_the_end() {
        let ((seals, seals_out), (fills, fills_out)) = (unbounded(), unbounded());
        let queues = Queues { seals: seals_out, fills: fills_out };
        let ticket = |seq| Ticket { session: 0, seq };
        for seq in [2, 3] {
            let order = FillOrder { ticket: ticket(seq), output: Output::Raw, rows: Vec::new() };
            fills.send(Job::Fill(order, Region::heap(4096))).unwrap();
        }
        let order = SealOrder {
            ticket: ticket(1),
            block_offset: 0,
            layout: BatchLayout::new(Layout::Raw, 1, 0).unwrap(),
            columns: Columns::default(),
            moves: Vec::new(),
        };
        seals.send(Job::Seal(Box::new(order), Region::heap(4096))).unwrap();
        drop((seals, fills));
        let mut order = Vec::new();
        while let Some(job) = queues.next() {
            order.push(match job {
                Job::Fill(fill, _) => fill.ticket.seq,
                Job::Seal(seal, _) => seal.ticket.seq,
            });
        }
        assert_eq!(order, [1, 2, 3]);
    }
}
