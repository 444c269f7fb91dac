//! Opens shards for the io_uring thread, several at a time: an open on a network file system takes
//! round trips, during which that thread could begin no read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use shade_formats::ShardId;

use crate::bell::Bell;
use crate::flight::{Flight, Shared, Step};
use crate::op::{Completion, deliver};

/// Shards that are opened at a time. A dataset of 600 shards is open after about 75 round trips.
const THREADS: u32 = 8;
/// Images' own files that are opened at a time: each read needs an open, so at least as many as
/// reads are in flight where a store is far. At 2 ms an operation these are some 30,000 opens a
/// second.
const FILE_THREADS: u32 = 64;

/// The threads. Dropping it waits for the opens under way; other flights come back unopened.
pub(super) struct Opener {
    /// Closed when the opener is dropped.
    queue: Option<Sender<Flight>>,
    /// The flights that wait for each shard being opened. Only the first occupies a thread.
    waiting: HashMap<ShardId, Vec<Flight>>,
    threads: Vec<JoinHandle<()>>,
}

/// The end of one open, good or not.
pub(super) struct Opened {
    shard: ShardId,
    /// What is left of the flight that the shard was opened for. It begins after `wait`.
    pub(super) flights: Vec<Flight>,
    pub(super) wait: Duration,
}

impl Opener {
    /// Starts the threads, which report each open through `back` and then ring `bell`.
    pub(super) fn start(
        shared: &Arc<Shared>,
        back: &Sender<Opened>,
        bell: &Arc<Bell>,
        completions: &Sender<Completion>,
    ) -> io::Result<Self> {
        let (queue, flights) = crossbeam_channel::unbounded();
        let mut opener = Self { queue: Some(queue), waiting: HashMap::new(), threads: Vec::new() };
        let threads = if shared.files.are_samples() { FILE_THREADS } else { THREADS };
        for number in 0..threads {
            let (shared, flights) = (Arc::clone(shared), flights.clone());
            let (back, bell, completions) = (back.clone(), Arc::clone(bell), completions.clone());
            let thread = std::thread::Builder::new().name(format!("shade-open-{number}"));
            let body = move || open(&shared, &flights, &back, &bell, &completions);
            opener.threads.push(thread.spawn(body)?);
        }
        Ok(opener)
    }

    /// Opens the shard of `flight`, unless that is under way.
    pub(super) fn submit(&mut self, flight: Flight) {
        match self.waiting.entry(flight.shard()) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push(flight),
            Entry::Vacant(place) => {
                place.insert(Vec::new());
                if let Some(queue) = &self.queue {
                    // The threads listen as long as the opener lives.
                    let _ = queue.send(flight);
                }
            }
        }
    }

    /// The flights that waited for an open that has ended. If it failed, each learns so by an open
    /// of its own.
    pub(super) fn ended(&mut self, opened: &Opened) -> Vec<Flight> {
        self.waiting.remove(&opened.shard).unwrap_or_default()
    }

    /// All flights that wait for an open.
    pub(super) fn take_waiting(&mut self) -> Vec<Flight> {
        self.waiting.drain().flat_map(|(_, flights)| flights).collect()
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
    back: &Sender<Opened>,
    bell: &Bell,
    completions: &Sender<Completion>,
) {
    for flight in flights {
        let shard = flight.shard();
        // Nothing is read here: a flight that wants to read has its file now.
        let step = if bell.stopping() {
            Step::Wait(flight, Duration::ZERO)
        } else {
            flight.next(Instant::now(), shared)
        };
        let (flights, wait) = match step {
            Step::Read(flight, ..) => (vec![flight], Duration::ZERO),
            Step::Wait(flight, wait) => (vec![flight], wait),
            Step::Done(completion) => {
                deliver(completions, [completion]);
                (Vec::new(), Duration::ZERO)
            }
            Step::Landed(done, again) => {
                deliver(completions, done);
                (again, Duration::ZERO)
            }
        };
        // The engine's thread listens until this one has ended.
        let _ = back.send(Opened { shard, flights, wait });
        bell.ring_if_waited();
    }
}
