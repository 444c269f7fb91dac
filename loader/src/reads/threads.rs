//! The engine for where io_uring is not allowed: threads that each read one record at a time.

use super::engine::Engine;
use super::flight::{Flight, Shared, Step};
use super::op::{Completion, deliver};
use crossbeam_channel::Sender;
use rustix::io::{Errno, preadv};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most threads. What more would give is lost to switching between them.
const THREADS_MAX: u32 = 128;

/// The pool: a thread more whenever a read finds none idle, as far as the depth allows.
pub(super) struct Threads {
    pool: Arc<Pool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Pool {
    shared: Arc<Shared>,
    completions: Sender<Completion>,
    state: Mutex<State>,
    /// Told when a read is queued or room is made for one.
    work: Condvar,
    /// Told when the pool stops; wakes those that wait before they try again.
    stop: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Flight>,
    idle: u32,
    threads: u32,
    stopping: bool,
}

impl Threads {
    /// Starts the pool with its first thread.
    pub(super) fn start(shared: &Arc<Shared>, completions: &Sender<Completion>) -> io::Result<Self> {
        let pool = Arc::new(Pool {
            shared: Arc::clone(shared),
            completions: completions.clone(),
            state: Mutex::default(),
            work: Condvar::new(),
            stop: Condvar::new(),
        });
        let threads = Self { pool, threads: Mutex::default() };
        threads.spawn(0)?;
        threads.pool.lock().threads = 1;
        Ok(threads)
    }

    fn spawn(&self, number: u32) -> io::Result<()> {
        let pool = Arc::clone(&self.pool);
        let thread = std::thread::Builder::new().name(format!("shade-read-{number}"));
        let thread = thread.spawn(move || pool.work())?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    fn most(&self) -> u32 {
        self.pool.shared.gate.most().min(THREADS_MAX)
    }
}

impl Engine for Threads {
    fn submit(&self, flight: Flight) {
        let mut state = self.pool.lock();
        state.queue.push_back(flight);
        let wanted = state.queue.len() > state.idle as usize;
        if wanted && state.threads < self.most() && state.threads < self.pool.shared.gate.depth() {
            // Without another thread the read waits for one of those that there are.
            if self.spawn(state.threads).is_ok() {
                state.threads += 1;
            }
        }
        drop(state);
        self.pool.work.notify_one();
    }

    fn description(&self) -> String {
        format!("threads (at most {})", self.most())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.lock().stopping = true;
        self.pool.work.notify_all();
        self.pool.stop.notify_all();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn work(&self) {
        while let Some(flight) = self.take() {
            let again = self.read(flight);
            let mut state = self.lock();
            again.into_iter().rev().for_each(|flight| state.queue.push_front(flight));
            if !state.queue.is_empty() {
                // This thread takes one of them; another may have been kept waiting by the depth.
                self.work.notify_one();
            }
        }
        let rest = std::mem::take(&mut self.lock().queue);
        rest.into_iter()
            .for_each(|flight| deliver(&self.completions, flight.stop(Instant::now(), &self.shared)));
    }

    /// The next flight, begun; `None` when the pool stops.
    fn take(&self) -> Option<Flight> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if self.shared.gate.has_room()
                && let Some(mut flight) = state.queue.pop_front()
            {
                flight.begin(Instant::now(), &self.shared);
                return Some(flight);
            }
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Reads a flight to its end; returns what is to be read alone.
    fn read(&self, flight: Flight) -> Vec<Flight> {
        let shared = &*self.shared;
        let mut step = flight.next(Instant::now(), shared);
        loop {
            step = match step {
                Step::Done(completion) => {
                    deliver(&self.completions, [completion]);
                    return Vec::new();
                }
                Step::Landed(done, again) => {
                    deliver(&self.completions, done);
                    return again;
                }
                Step::Wait(flight, wait) if self.stops_within(wait) => {
                    deliver(&self.completions, flight.stop(Instant::now(), shared));
                    return Vec::new();
                }
                Step::Wait(flight, _) => flight.next(Instant::now(), shared),
                Step::Read(mut flight, file, offset) => {
                    let buffers: Result<Vec<_>, _> =
                        flight.buffers(shared).map(|slices| slices.map(IoSliceMut::new).collect());
                    let result = buffers.map(|mut buffers| preadv(&file.fd, &mut buffers, offset));
                    match result {
                        Ok(result) => {
                            let result =
                                result.and_then(|got| u32::try_from(got).map_err(|_| Errno::OVERFLOW));
                            flight.after(result, Instant::now(), shared)
                        }
                        Err(error) => flight.misfit(error, Instant::now(), shared),
                    }
                }
            };
        }
    }

    fn stops_within(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        while !state.stopping {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.stop.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
