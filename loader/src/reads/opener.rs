//! Opens shards for the io_uring thread, several at a time: an open on a network file system takes round trips, during
//! which that thread would begin no read.

use super::bell::Bell;
use super::flight::{Flight, Shared, Step};
use super::op::Completion;
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
    pub(super) fn start(
        shared: &Arc<Shared>,
        back: &Sender<Flight>,
        bell: &Arc<Bell>,
        completions: &Sender<Completion>,
    ) -> io::Result<Self> {
        let (queue, flights) = crossbeam_channel::unbounded();
        let mut opener = Self { queue: Some(queue), threads: Vec::new() };
        for number in 0..THREADS {
            let (shared, flights) = (Arc::clone(shared), flights.clone());
            let (back, bell, completions) = (back.clone(), Arc::clone(bell), completions.clone());
            let thread = std::thread::Builder::new().name(format!("shade-open-{number}"));
            let body = move || open(&shared, &flights, &back, &bell, &completions);
            opener.threads.push(thread.spawn(body)?);
        }
        Ok(opener)
    }

    /// Opens the shard of `flight` and sends it on; where it cannot be opened the flight ends.
    pub(super) fn submit(&self, flight: Flight) {
        if let Some(queue) = &self.queue {
            // The threads listen as long as the opener lives.
            let _ = queue.send(flight);
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

fn open(
    shared: &Shared,
    flights: &Receiver<Flight>,
    back: &Sender<Flight>,
    bell: &Bell,
    completions: &Sender<Completion>,
) {
    for flight in flights {
        let opened = if bell.stopping() { Ok(flight) } else { flight.open(Instant::now(), shared) };
        let (done, to_read) = match opened.map_err(|step| *step) {
            Ok(flight) => (Vec::new(), vec![flight]),
            Err(Step::Done(completion)) => (vec![completion], Vec::new()),
            Err(Step::Landed(done, again)) => (done, again),
            // A flight that ended goes nowhere.
            Err(Step::Read(flight, ..) | Step::Wait(flight, _)) => (Vec::new(), vec![flight]),
        };
        // If nobody waits for completions any more, their blocks are lost, as the arena soon is.
        done.into_iter().for_each(|completion| drop(completions.send(completion)));
        for flight in to_read {
            // The engine's thread listens until this one has ended.
            let _ = back.send(flight);
            bell.ring_if_waited();
        }
    }
}
