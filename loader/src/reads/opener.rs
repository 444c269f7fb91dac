//! Opens shards for the io_uring thread, several at a time: an open on a network file system takes round trips, during
//! which that thread would begin no read.

use super::bell::Bell;
use super::flight::{Flight, Shared, Step};
use super::op::{Completion, deliver};
use crossbeam_channel::{Receiver, Sender};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
        // Nothing is read here: a flight that asks for a read has its file now.
        let step = if bell.stopping() {
            Step::Wait(flight, Duration::ZERO)
        } else {
            flight.next(Instant::now(), shared)
        };
        let to_read = match step {
            Step::Read(flight, ..) | Step::Wait(flight, _) => vec![flight],
            Step::Done(completion) => {
                deliver(completions, [completion]);
                Vec::new()
            }
            Step::Landed(done, again) => {
                deliver(completions, done);
                again
            }
        };
        for flight in to_read {
            // The engine's thread listens until this one has ended.
            let _ = back.send(flight);
            bell.ring_if_waited();
        }
    }
}
