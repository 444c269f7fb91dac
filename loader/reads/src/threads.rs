//! The engine where io_uring is not allowed: threads that each read one record at a time.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::io::preadv;

use crate::flight::{Engine, Flight, Shared, Step};
use crate::op::{Completion, deliver};
use crate::resumed::Resumed;

/// Thread limit: what more would give is lost to switching between them.
const THREADS_MAX: u32 = 128;

/// The pool: a thread more whenever a read finds none idle, as far as the depth allows.
pub(super) struct Threads {
    pool: Arc<Pool>,
}

struct Pool {
    shared: Arc<Shared>,
    completions: Sender<Completion>,
    state: Mutex<State>,
    /// Told when a read is queued, room is made for one, or the pool stops.
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Flight>,
    /// Flights that go before those of the queue: they were submitted earlier.
    first: Resumed,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    stopping: bool,
}

impl State {
    /// Flights that could begin now.
    fn ready(&self) -> usize {
        self.first.len() + self.queue.len()
    }
}

impl Threads {
    /// Starts the pool with its first thread.
    pub(super) fn start(shared: &Arc<Shared>, completions: &Sender<Completion>) -> io::Result<Self> {
        let pool = Arc::new(Pool {
            shared: Arc::clone(shared),
            completions: completions.clone(),
            state: Mutex::default(),
            work: Condvar::new(),
        });
        let threads = Self { pool };
        threads.pool.spawn(&mut threads.pool.lock())?;
        Ok(threads)
    }
}

impl Engine for Threads {
    fn submit(&self, flight: Flight) {
        let mut state = self.pool.lock();
        state.queue.push_back(flight);
        self.pool.add_thread(&mut state);
        drop(state);
        self.pool.work.notify_one();
    }

    fn description(&self) -> String {
        format!("threads (at most {})", self.pool.most())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.lock().stopping = true;
        self.pool.work.notify_all();
        // No thread starts another one any more.
        let threads = std::mem::take(&mut self.pool.lock().threads);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn most(&self) -> u32 {
        self.shared.gate.most().min(THREADS_MAX)
    }

    /// Starts a thread more if a read finds none idle and the depth allows it. Without it the read
    /// waits for one of those that there are.
    fn add_thread(self: &Arc<Self>, state: &mut State) {
        let most = self.most().min(self.shared.gate.depth()) as usize;
        if !state.stopping && state.ready() > state.idle && state.threads.len() < most {
            let _ = self.spawn(state);
        }
    }

    fn spawn(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let pool = Arc::clone(self);
        let thread = std::thread::Builder::new().name(format!("shade-read-{}", state.threads.len()));
        state.threads.push(thread.spawn(move || pool.work())?);
        Ok(())
    }

    /// A thread's life.
    fn work(self: &Arc<Self>) {
        while let Some(flight) = self.take() {
            let then = self.read(flight);
            let mut state = self.lock();
            match then {
                Then::Nothing => {}
                Then::Alone(flights) => flights.into_iter().for_each(|flight| state.first.push(flight)),
                Then::Later(flight, wait) => {
                    state.first.push_later(Instant::now() + wait, flight);
                    // An idle thread watches the time, as this one may be busy then.
                    self.work.notify_one();
                }
            }
            if state.ready() > 0 {
                // This thread takes one of them; another may have been kept waiting by the depth.
                self.add_thread(&mut state);
                self.work.notify_one();
            }
        }
        let mut state = self.lock();
        let (first, queue) = (std::mem::take(&mut state.first), std::mem::take(&mut state.queue));
        drop(state);
        let rest = first.into_flights().chain(queue);
        rest.for_each(|flight| deliver(&self.completions, flight.stop(Instant::now(), &self.shared)));
    }

    /// The next flight, begun; `None` when the pool stops.
    fn take(&self) -> Option<Flight> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            state.first.end_waits(Instant::now());
            let wait = state.first.next_wait();
            if self.shared.gate.has_room()
                && let Some(mut flight) = state.first.pop().or_else(|| state.queue.pop_front())
            {
                flight.begin(Instant::now(), &self.shared);
                return Some(flight);
            }
            state.idle += 1;
            state = match wait {
                Some(wait) => self.work.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.idle -= 1;
        }
    }

    /// Reads a flight to its end or to its next wait.
    fn read(&self, flight: Flight) -> Then {
        let shared = &*self.shared;
        let mut step = flight.next(Instant::now(), shared);
        loop {
            step = match step {
                Step::Done(completion) => {
                    deliver(&self.completions, [completion]);
                    return Then::Nothing;
                }
                Step::Landed(done, again) => {
                    deliver(&self.completions, done);
                    return Then::Alone(again);
                }
                Step::Wait(flight, wait) => return Then::Later(flight, wait),
                Step::Read(mut flight, file, offset) => {
                    let buffers: Result<Vec<_>, _> =
                        flight.buffers(shared).map(|slices| slices.map(IoSliceMut::new).collect());
                    let result = buffers.map(|mut buffers| preadv(file.fd(), &mut buffers, offset));
                    match result {
                        Ok(result) => flight.after(result.map(|got| got as u64), Instant::now(), shared),
                        Err(error) => flight.misfit(error, Instant::now(), shared),
                    }
                }
            };
        }
    }
}

/// What remains to be done after a read.
enum Then {
    Nothing,
    /// Read these records alone.
    Alone(Vec<Flight>),
    /// Try it again after a wait.
    Later(Flight, Duration),
}
