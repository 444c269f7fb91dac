//! Opens shards for the io_uring thread, several at a time: an open on a network file system takes round trips, during
//! which that thread would begin no read.

use super::bell::Bell;
use super::flight::{Flight, Shared};
use crossbeam_channel::{Receiver, Sender};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Shards that are opened at a time. A dataset of 600 shards is open after 75 round trips or so.
const THREADS: u32 = 8;

/// The threads. Dropping it waits for the opens under way; flights that are not through come back unopened.
pub(super) struct Opener {
    /// Closed when the opener is dropped.
    queue: Option<Sender<Flight>>,
    threads: Vec<JoinHandle<()>>,
}

impl Opener {
    /// Starts the threads, which send flights on through `back` and ring `bell` then.
    pub(super) fn start(shared: &Arc<Shared>, back: &Sender<Flight>, bell: &Arc<Bell>) -> io::Result<Self> {
        let (queue, flights) = crossbeam_channel::unbounded();
        let mut opener = Self { queue: Some(queue), threads: Vec::new() };
        for number in 0..THREADS {
            let (shared, flights) = (Arc::clone(shared), flights.clone());
            let (back, bell) = (back.clone(), Arc::clone(bell));
            let thread = std::thread::Builder::new().name(format!("shade-open-{number}"));
            opener.threads.push(thread.spawn(move || open(&shared, &flights, &back, &bell))?);
        }
        Ok(opener)
    }

    /// Opens the shard of `flight` and sends it on; where it cannot be opened the flight ends.
    pub(super) fn submit(&self, flight: Flight, shared: &Shared) {
        let refused = match &self.queue {
            Some(queue) => queue.send(flight).err().map(crossbeam_channel::SendError::into_inner),
            None => Some(flight),
        };
        if let Some(flight) = refused {
            flight.stop(Instant::now(), shared);
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open(shared: &Shared, flights: &Receiver<Flight>, back: &Sender<Flight>, bell: &Bell) {
    for flight in flights {
        let flights = if bell.stopping() { vec![flight] } else { flight.open(Instant::now(), shared) };
        for flight in flights {
            match back.send(flight) {
                Ok(()) => bell.ring_if_waited(),
                Err(refused) => refused.into_inner().stop(Instant::now(), shared),
            }
        }
    }
}
