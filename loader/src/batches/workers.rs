//! The threads that fill and seal batches: all take from one queue and answer into another.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
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
    /// Taken by the drop: its absence ends the threads. Unbounded, because the core orders only rows that have their
    /// place in a ring, which bounds them, and must never wait for a worker.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
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
        let (jobs, queue) = unbounded();
        // Made first, so that the threads already started end if a later one cannot be.
        let mut workers = Self { jobs: Some(jobs), threads: Vec::with_capacity(count) };
        let dictionaries = Dictionaries::prepare(&index);
        for number in 0..count {
            let (queue, done) = (queue.clone(), done.clone());
            let filler = Filler::new(Arc::clone(&index), Arc::clone(&arena), dictionaries.clone());
            let thread = Builder::new()
                .name(format!("shade-fill-{number}"))
                .spawn(move || work(&queue, filler, &done))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Queues a job. Never waits.
    pub fn submit(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Cannot fail: the threads hold the other end until the drop takes this one.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            // A worker's panic is caught where it works; what else could have ended it, the hook has printed.
            let _ = thread.join();
        }
    }
}

/// One worker: works until the queue is empty and its other end gone.
fn work(queue: &Receiver<Job>, mut filler: Filler, done: &Sender<JobDone>) {
    let mut column = Vec::new();
    for job in queue {
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
