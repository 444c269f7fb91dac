//! The simulator: reads real bytes, when and as a simulated store would answer.
//!
//! [`Sim`] is the state machine over a queue of answers. [`SimThread`] runs it in the machine's
//! time, or jumps from answer to answer if the store's clock is virtual.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rustix::io::{Errno, preadv};
use shade_dataset::OpenShard;
use shade_job::{ClockModel, StoreModel};

use crate::flight::{Engine, Flight, Shared, Step};
use crate::op::{Completion, deliver};
use crate::resumed::Resumed;
use crate::store_model::{Fate, Queues, answer};

/// The engine, seen from outside its thread.
pub(super) struct SimThread {
    /// Closed when the engine is dropped.
    queue: Option<Sender<Flight>>,
    thread: Option<JoinHandle<()>>,
    model: StoreModel,
}

impl SimThread {
    pub(super) fn start(
        model: StoreModel,
        shared: &Arc<Shared>,
        completions: &Sender<Completion>,
    ) -> io::Result<Self> {
        // Unbounded, yet bounded by the arena: every flight owns blocks of it.
        let (queue, flights) = crossbeam_channel::unbounded();
        let sim = Sim::new(model, Arc::clone(shared), completions.clone(), Instant::now());
        let thread =
            std::thread::Builder::new().name("shade-sim".into()).spawn(move || run(sim, &flights))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), model })
    }
}

impl Engine for SimThread {
    fn submit(&self, flight: Flight) {
        if let Some(queue) = &self.queue {
            // The thread listens as long as the engine lives.
            let _ = queue.send(flight);
        }
    }

    fn description(&self) -> String {
        format!("sim (SIMULATED store: {})", self.model)
    }
}

impl Drop for SimThread {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut sim: Sim, flights: &Receiver<Flight>) {
    loop {
        let real = sim.model.clock == ClockModel::Real;
        let next = match sim.next_due() {
            Some(due) if real => flights.recv_deadline(due),
            Some(_) => flights.try_recv().map_err(|error| match error {
                crossbeam_channel::TryRecvError::Empty => RecvTimeoutError::Timeout,
                crossbeam_channel::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            None => flights.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        // Before the flight is taken: it arrives now, however long the store was idle.
        if real {
            sim.now = sim.now.max(Instant::now());
        }
        match next {
            Ok(flight) => sim.take(flight),
            Err(RecvTimeoutError::Timeout) => sim.answer(),
            Err(RecvTimeoutError::Disconnected) => return sim.stop(),
        }
    }
}

/// The store, and the reads on their way to it and back.
struct Sim {
    model: StoreModel,
    shared: Arc<Shared>,
    completions: Sender<Completion>,
    now: Instant,
    queues: Queues<Instant>,
    waiting: Resumed,
    events: BinaryHeap<Reverse<Event>>,
    /// Number of events so far: events of equal times keep their order.
    count: u64,
}

/// A flight and what happens to it next.
struct Event {
    due: Instant,
    number: u64,
    flight: Flight,
    /// An answer from this file at this offset; without one the flight begins anew after a wait.
    answer: Option<(Arc<OpenShard>, u64, Fate)>,
}

impl Sim {
    fn new(model: StoreModel, shared: Arc<Shared>, completions: Sender<Completion>, now: Instant) -> Self {
        let (queues, waiting, events) = (Queues::default(), Resumed::default(), BinaryHeap::new());
        Self { model, shared, completions, now, queues, waiting, events, count: 0 }
    }

    /// When the next thing happens.
    fn next_due(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse(event)| event.due)
    }

    fn take(&mut self, flight: Flight) {
        self.waiting.push(flight);
        self.begin();
    }

    /// Lets the next thing happen, at its time.
    fn answer(&mut self) {
        let Some(Reverse(event)) = self.events.pop() else { return };
        self.now = self.now.max(event.due);
        match event.answer {
            None => self.waiting.push(event.flight),
            Some((file, offset, fate)) => {
                let step = self.land(event.flight, &file, offset, fate);
                self.follow(step);
            }
        }
        self.begin();
    }

    fn begin(&mut self) {
        while self.shared.gate.has_room() {
            let Some(mut flight) = self.waiting.pop() else { return };
            flight.begin(self.now, &self.shared);
            let step = flight.next(self.now, &self.shared);
            self.follow(step);
        }
    }

    fn follow(&mut self, step: Step) {
        match step {
            Step::Done(completion) => deliver(&self.completions, [completion]),
            Step::Landed(done, again) => {
                deliver(&self.completions, done);
                again.into_iter().for_each(|flight| self.waiting.push(flight));
            }
            Step::Wait(flight, wait) => self.push(self.now + wait, flight, None),
            Step::Read(flight, file, offset) => {
                let (shard, place, tried) = flight.attempt();
                let answer = answer(&self.model, shard, place, tried);
                let bytes = u64::from(flight.len());
                let due = self.queues.answer_at(&self.model, self.now, answer.latency, bytes);
                self.push(due, flight, Some((file, offset, answer.fate)));
            }
        }
    }

    fn push(&mut self, due: Instant, flight: Flight, answer: Option<(Arc<OpenShard>, u64, Fate)>) {
        let number = self.count;
        self.count += 1;
        self.events.push(Reverse(Event { due, number, flight, answer }));
    }

    /// The answer of the store: what the file says, or less.
    fn land(&self, mut flight: Flight, file: &OpenShard, offset: u64, fate: Fate) -> Step {
        let result = match fate {
            Fate::Error(errno) => Err(errno),
            Fate::Whole | Fate::Short(_) => {
                let part = if let Fate::Short(part) = fate { part } else { 1.0 };
                match read(&mut flight, &self.shared, file, offset, part) {
                    Ok(result) => result,
                    Err(error) => return flight.misfit(error, self.now, &self.shared),
                }
            }
        };
        flight.after(result.map(u64::from), self.now, &self.shared)
    }

    fn stop(self) {
        let events = self.events.into_iter().map(|Reverse(event)| event.flight);
        let flights = events.chain(self.waiting.into_flights());
        deliver(&self.completions, flights.flat_map(|flight| flight.stop(self.now, &self.shared)));
    }
}

/// Reads for real, a share `part` of the bytes: a multiple of the alignment, as from a real direct
/// read, but at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
fn read(
    flight: &mut Flight,
    shared: &Shared,
    file: &OpenShard,
    offset: u64,
    part: f64,
) -> Result<Result<u32, Errno>, crate::blocks::BlocksError> {
    let mut buffers: Vec<IoSliceMut<'_>> = flight.buffers(shared)?.map(IoSliceMut::new).collect();
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let align = file.align_bytes() as usize;
    let kept = if part < 1.0 { ((wanted as f64 * part) as usize / align * align).max(align) } else { wanted };
    let got = preadv(file.fd(), &mut buffers, offset).map(|got| got.min(kept));
    Ok(got.and_then(|got| u32::try_from(got).map_err(|_| Errno::OVERFLOW)))
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use shade_dataset::Files;
    use shade_formats::index::{INDEX_FILE, Index, IndexBuilder, Shard};
    use shade_formats::{SampleId, ShardId};

    use super::*;
    use crate::blocks::Arena;
    use crate::gate::Gate;
    use crate::land::BouncePool;
    use crate::{Depth, ReadFault, ReadOp};

    #[test]
    fn neighbours_whose_shard_is_gone_are_waited_for_once() {
        const PATIENCE: Duration = Duration::from_secs(60);
        let folder = tempfile::tempdir().unwrap();
        let mut index = IndexBuilder::new();
        let shard = Shard { name: "shard-000000.tar", bytes: 4096, crc32c: 0, records: 0 };
        index.push_shard(shard).unwrap();
        let index = index.finish().unwrap();
        std::fs::write(folder.path().join(INDEX_FILE), &index).unwrap();
        let index = Arc::new(Index::open(index).unwrap());
        let (arena, mut free) = Arena::create(1 << 20, 512).unwrap();
        let shared = Arc::new(Shared {
            // There when the files were looked at, and gone since.
            files: Files::surveyed(folder.path(), index, None, &[], PATIENCE),
            arena: Arc::new(arena),
            bounce: Some(BouncePool::create().unwrap()),
            gate: Gate::new(Depth::Auto),
            flights: AtomicU64::new(0),
            on_failure: Box::new(|why| panic!("{why}")),
        });
        let (sender, completions) = crossbeam_channel::unbounded();
        let start = Instant::now();
        let model = "latency=2ms,clock=virtual".parse().unwrap();
        let mut sim = Sim::new(model, Arc::clone(&shared), sender, start);
        let op = |number: u32| ReadOp {
            flight: 0,
            sample: SampleId(number),
            shard: ShardId(0),
            offset: u64::from(1024 * number + 512),
            len: 512,
            crc32c: Some(0),
            recheck: false,
            blocks: free.take(512).unwrap(),
        };
        let mut flights = Flight::neighbours((0..3).map(op).collect(), &shared);
        assert_eq!(flights.len(), 1, "they travel together");
        sim.take(flights.remove(0));
        while sim.next_due().is_some() {
            sim.answer();
        }
        let waited = sim.now.saturating_duration_since(start);
        assert!((PATIENCE..2 * PATIENCE).contains(&waited), "{waited:?}");
        let back: Vec<Completion> = completions.try_iter().collect();
        assert_eq!(back.len(), 3);
        for completion in back {
            let fault = completion.outcome.unwrap_err();
            let ReadFault::Open { errno: Errno::NOENT, tried, .. } = fault else { panic!("{fault}") };
            assert!(tried >= PATIENCE);
            free.give(completion.op.blocks);
        }
        assert!((0..64).all(|_| shared.bounce.as_ref().unwrap().take().is_some()), "the buffer is back");
    }
}
