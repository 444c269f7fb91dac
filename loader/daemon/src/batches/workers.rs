//! The threads that fill batches: all take from the same queue and answer into another.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use shade_core::WholeSamples;
use shade_dataset::Dictionaries;
use shade_job::JpegDecoder;
use shade_reads::blocks::Arena;

use super::fill::Filler;
use super::{FillOrder, Filled, Room, fatal};

/// Running worker threads. Dropping waits until they have answered all queued orders and ended.
#[derive(Debug)]
pub struct Workers {
    /// Dropping it ends the threads. Unbounded, since the core must never wait for a worker; its
    /// orders are bounded by the rings, where each row has its place.
    orders: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// An order and its room.
type Job = (FillOrder, Room);

impl Workers {
    /// Starts `count` threads, which decode JPEGs by `jpeg` and answer each order through `done`. A
    /// batch's orders may end in any order.
    ///
    /// # Errors
    /// `InvalidInput` for no threads; otherwise the system cannot start that many.
    pub fn start(
        count: usize,
        jpeg: JpegDecoder,
        samples: &Arc<WholeSamples>,
        arena: Arc<Arena>,
        done: Sender<Filled>,
    ) -> io::Result<Self> {
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "0 workers: expected at least 1"));
        }
        fatal::watch()?;
        let (orders, queue) = unbounded();
        // Made first, so that the threads end if a later one cannot be started.
        let mut workers = Self { orders: Some(orders), threads: Vec::with_capacity(count) };
        let dictionaries = Dictionaries::prepare(samples.index());
        for number in 0..count {
            let (queue, done) = (queue.clone(), done.clone());
            let (arena, samples) = (Arc::clone(&arena), Arc::clone(samples));
            let filler = Filler::new(number, arena, samples, dictionaries.clone(), jpeg);
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

    /// Queues an order. Never waits.
    pub fn submit(&self, order: FillOrder, room: impl Into<Room>) {
        if let Some(orders) = &self.orders {
            // Cannot fail: the threads keep the other end until the drop.
            let _ = orders.send((order, room.into()));
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
    while let Ok((order, room)) = queue.recv() {
        let filled = filler.fill(order, &room);
        // Dropped before the answer, after which the core may end the session.
        drop(room);
        // Fails only when the daemon is stopping; the queue is drained nevertheless.
        let _ = done.send(filled);
    }
}
