//! The engine for where io_uring is not allowed: threads that each read one record at a time.

use super::ReadFault;
use super::engine::Engine;
use super::flight::{Flight, Shared, Step};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use rustix::io::{Errno, preadv};
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Most threads. What more would give is lost to switching between them.
const THREADS_MAX: u32 = 128;

/// The pool.
pub(super) struct Threads {
    shared: Arc<Shared>,
    // Both close when the pool is dropped, which ends the threads.
    queue: Option<Sender<Flight>>,
    running: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `depth` threads, at most 128.
    pub(super) fn start(depth: u32, shared: &Arc<Shared>) -> io::Result<Self> {
        // Unbounded, yet bounded by the arena: every flight owns blocks of it.
        let (queue, flights) = crossbeam_channel::unbounded();
        let (running, stop) = crossbeam_channel::bounded(0);
        let mut pool = Self {
            shared: Arc::clone(shared),
            queue: Some(queue),
            running: Some(running),
            threads: Vec::new(),
        };
        for number in 0..depth.min(THREADS_MAX) {
            let worker = Worker { shared: Arc::clone(shared), flights: flights.clone(), stop: stop.clone() };
            let thread = std::thread::Builder::new().name(format!("shade-read-{number}"));
            pool.threads.push(thread.spawn(move || worker.run())?);
        }
        Ok(pool)
    }
}

impl Engine for Threads {
    fn submit(&self, flight: Flight) {
        let Some(queue) = &self.queue else {
            return self.shared.delivery.deliver(flight, Err(ReadFault::Stopped));
        };
        if let Err(refused) = queue.send(flight) {
            self.shared.delivery.deliver(refused.into_inner(), Err(ReadFault::Stopped));
        }
    }

    fn description(&self) -> String {
        format!("threads ({})", self.threads.len())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.running = None;
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    flights: Receiver<Flight>,
    /// Closed when the pool stops; nothing is ever sent.
    stop: Receiver<()>,
}

impl Worker {
    fn run(&self) {
        while let Ok(mut flight) = self.flights.recv() {
            let outcome = if self.stopped() { Err(ReadFault::Stopped) } else { self.read(&mut flight) };
            self.shared.delivery.deliver(flight, outcome);
        }
    }

    fn read(&self, flight: &mut Flight) -> Result<(), ReadFault> {
        let mut step = flight.next(&self.shared);
        loop {
            step = match step {
                Step::Done(outcome) => return outcome,
                Step::Wait(wait) if self.stops_within(wait) => return Err(ReadFault::Stopped),
                Step::Wait(_) => flight.next(&self.shared),
                Step::Read(file, offset) => {
                    let mut buffers: Vec<IoSliceMut<'_>> =
                        flight.buffers(&self.shared.arena)?.map(IoSliceMut::new).collect();
                    let result = preadv(&file.fd, &mut buffers, offset);
                    flight.after(
                        result.and_then(|count| u32::try_from(count).map_err(|_| Errno::OVERFLOW)),
                        &self.shared,
                    )
                }
            };
        }
    }

    fn stopped(&self) -> bool {
        self.stop.try_recv() == Err(TryRecvError::Disconnected)
    }

    fn stops_within(&self, wait: Duration) -> bool {
        self.stop.recv_timeout(wait).is_err_and(|error| error.is_disconnected())
    }
}
