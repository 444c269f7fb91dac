//! The threads that fill batches: all take from the same queue and answer into another.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use shade_dataset::Dictionaries;
use shade_formats::index::Index;
use shade_job::JpegDecoder;
use shade_reads::blocks::Arena;
use shade_shm::Region;

use super::fill::Filler;
use super::{FillOrder, Filled};

/// Running worker threads. Dropping waits until they have answered all queued orders and ended.
#[derive(Debug)]
pub struct Workers {
    /// Dropping it ends the threads. Unbounded, since the core must never wait for a worker; its
    /// orders are bounded by the rings, where each row has its place.
    orders: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// An order and its payload segment.
type Job = (FillOrder, Region);

impl Workers {
    /// Starts `count` threads, which decode JPEGs by `jpeg` and answer each order through `done`. A
    /// batch's orders may end in any order.
    ///
    /// # Errors
    /// `InvalidInput` for no threads; otherwise the system cannot start that many.
    pub fn start(
        count: usize,
        jpeg: JpegDecoder,
        index: &Index,
        arena: Arc<Arena>,
        done: Sender<Filled>,
    ) -> io::Result<Self> {
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "0 workers: expected at least 1"));
        }
        let (orders, queue) = unbounded();
        // Made first, so that the threads end if a later one cannot be started.
        let mut workers = Self { orders: Some(orders), threads: Vec::with_capacity(count) };
        let dictionaries = Dictionaries::prepare(index);
        for number in 0..count {
            let (queue, done) = (queue.clone(), done.clone());
            let filler = Filler::new(Arc::clone(&arena), dictionaries.clone(), jpeg);
            let thread = Builder::new()
                .name(format!("shade-fill-{number}"))
                .spawn(move || work(&queue, filler, &done))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Number of threads.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Queues an order for `payload`. Never waits.
    pub fn submit(&self, order: FillOrder, payload: Region) {
        if let Some(orders) = &self.orders {
            // Cannot fail: the threads keep the other end until the drop.
            let _ = orders.send((order, payload));
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        drop(self.orders.take());
        for thread in self.threads.drain(..) {
            // The panic hook has told of a panic outside the guarded work.
            let _ = thread.join();
        }
    }
}

/// One worker: works until the queue is empty and closed.
fn work(queue: &Receiver<Job>, mut filler: Filler, done: &Sender<Filled>) {
    while let Ok((order, payload)) = queue.recv() {
        let filled = filler.fill(order, &payload);
        // Dropped before the answer, after which the core may end the session.
        drop(payload);
        // Fails only when the daemon is stopping; the queue is drained nevertheless.
        let _ = done.send(filled);
    }
}
