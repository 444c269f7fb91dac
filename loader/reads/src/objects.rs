//! The engine for shards that are objects in a bucket: a task for each read in flight, on the
//! client's own threads.
//!
//! A task owns its flight, and bytes are copied into its blocks as they come. So a read can be
//! given up at any moment, unlike a file's: stopping waits for no answer.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use shade_dataset::{Objects, OpenShard, Refusal, Room, Source};
use tokio::sync::watch;

use crate::flight::{Engine, Flight, Shared, Step};
use crate::op::{Completion, deliver};
use crate::resumed::Resumed;

/// The engine, seen from outside its tasks.
pub(super) struct ObjectReads {
    pool: Arc<Pool>,
}

struct Pool {
    shared: Arc<Shared>,
    objects: Arc<Objects>,
    completions: Sender<Completion>,
    state: Mutex<State>,
    /// Told when the last task has ended.
    ended: Condvar,
    /// Whether the engine stops: all tasks listen to it.
    stop: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Flight>,
    /// Flights that go before those of the queue: they were submitted earlier.
    first: Resumed,
    /// Tasks that have a flight, and those that wait before another try.
    tasks: usize,
    stopping: bool,
}

impl ObjectReads {
    pub(super) fn start(
        objects: Arc<Objects>,
        shared: &Arc<Shared>,
        completions: &Sender<Completion>,
    ) -> Self {
        let (stop, _) = watch::channel(false);
        let pool = Pool {
            shared: Arc::clone(shared),
            objects,
            completions: completions.clone(),
            state: Mutex::default(),
            ended: Condvar::new(),
            stop,
        };
        Self { pool: Arc::new(pool) }
    }
}

impl Engine for ObjectReads {
    fn submit(&self, flight: Flight) {
        self.pool.lock().queue.push_back(flight);
        self.pool.advance();
    }

    fn description(&self) -> String {
        format!("objects of {}, at most {} at a time", self.pool.objects.url(), self.pool.shared.gate.most())
    }
}

impl Drop for ObjectReads {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.stopping = true;
        let (first, queue) = (std::mem::take(&mut state.first), std::mem::take(&mut state.queue));
        drop(state);
        self.pool.stop.send_replace(true);
        let rest = first.into_flights().chain(queue);
        rest.for_each(|flight| self.pool.stop_one(flight));
        let mut state = self.pool.lock();
        while state.tasks > 0 {
            state = self.pool.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop_one(&self, flight: Flight) {
        deliver(&self.completions, flight.stop(Instant::now(), &self.shared));
    }

    /// Begins as many flights as the gate has room for.
    fn advance(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.stopping || !self.shared.gate.has_room() {
                return;
            }
            let Some(mut flight) = state.first.pop().or_else(|| state.queue.pop_front()) else { return };
            flight.begin(Instant::now(), &self.shared);
            state.tasks += 1;
            drop(state);
            let pool = Arc::clone(self);
            self.objects.spawn(async move {
                pool.follow(flight).await;
                pool.end_task();
                pool.advance();
            });
        }
    }

    fn end_task(&self) {
        let mut state = self.lock();
        state.tasks -= 1;
        if state.tasks == 0 {
            self.ended.notify_all();
        }
    }

    /// Reads a flight to its end or to its next wait. It waits in a task of its own, as it holds no
    /// place of the gate's then.
    async fn follow(self: &Arc<Self>, flight: Flight) {
        let shared = &*self.shared;
        let mut step = flight.next(Instant::now(), shared);
        loop {
            step = match step {
                Step::Done(completion) => return deliver(&self.completions, [completion]),
                Step::Landed(done, again) => {
                    deliver(&self.completions, done);
                    let mut state = self.lock();
                    if !state.stopping {
                        return again.into_iter().for_each(|flight| state.first.push(flight));
                    }
                    drop(state);
                    return again.into_iter().for_each(|flight| self.stop_one(flight));
                }
                Step::Wait(flight, wait) => return self.later(flight, wait),
                Step::Read(flight, open, offset) => match self.read(flight, &open, offset).await {
                    Some(step) => step,
                    None => return,
                },
            };
        }
    }

    /// Reads what is missing; `None` if the engine stopped meanwhile.
    async fn read(&self, mut flight: Flight, open: &OpenShard, offset: u64) -> Option<Step> {
        let shared = &*self.shared;
        let missing = flight.missing();
        let Source::Object(object) = &open.source else {
            unreachable!("a file was given to the engine that reads objects");
        };
        let mut stop = self.stop.subscribe();
        let result = match flight.buffers(shared) {
            Err(error) => Err(error),
            Ok(slices) => {
                let mut room = Room::new(slices.collect());
                let end = offset.saturating_add(missing.min(room.bytes()));
                Ok(tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => None,
                    result = object.read(offset..end, &mut room) => Some(result),
                })
            }
        };
        match result {
            Err(error) => Some(flight.misfit(error, Instant::now(), shared)),
            Ok(Some(result)) => Some(flight.after::<Refusal>(result, Instant::now(), shared)),
            Ok(None) => {
                self.stop_one(flight);
                None
            }
        }
    }

    /// Lets a flight begin anew after a wait.
    fn later(self: &Arc<Self>, flight: Flight, wait: Duration) {
        self.lock().tasks += 1;
        let pool = Arc::clone(self);
        self.objects.spawn(async move {
            let mut stop = pool.stop.subscribe();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                () = tokio::time::sleep(wait) => {}
            }
            let mut state = pool.lock();
            if state.stopping {
                drop(state);
                pool.stop_one(flight);
            } else {
                state.first.push(flight);
                drop(state);
            }
            pool.end_task();
            pool.advance();
        });
    }
}
