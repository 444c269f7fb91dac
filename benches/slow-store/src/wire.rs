//! The link between client and store: every answer takes a fixed time and, if there is a limit,
//! waits for its turn.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::turns::Turns;

/// A client's operations, in NFS 4's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// A name's lookup in a directory, with the file's attributes.
    Lookup,
    /// Attributes of a file whose cached ones have expired.
    Getattr,
    /// Opening a file, also a cached one, so that a reader sees what a writer has closed.
    Open,
    /// Bytes of a file, up to the kernel's read-ahead.
    Read,
    /// Some names of a directory.
    Readdir,
    /// The target of a symbolic link.
    Readlink,
}

/// An answer in flight.
type Answer = Box<dyn FnOnce() + Send>;

/// Delays and counts operations.
#[derive(Debug)]
pub(crate) struct Wire {
    lanes: Vec<Lane>,
    // Together, so that answers are sent in the order of their ends.
    late: Mutex<(Turns, Sender<(Instant, Answer)>)>,
}

/// One kind of operation.
#[derive(Debug)]
struct Lane {
    operation: Operation,
    delayed: bool,
    count: AtomicU64,
}

impl Wire {
    /// A wire that delays the named operations by `delay`, at most `at_once` at the same time.
    pub(crate) fn new(delay: Duration, at_once: Option<NonZeroUsize>, delayed: &[Operation]) -> Self {
        let lane = |&operation: &Operation| Lane {
            operation,
            delayed: delayed.contains(&operation) && !delay.is_zero(),
            count: AtomicU64::new(0),
        };
        let (late, due) = channel();
        // This thread ends when the wire is dropped.
        thread::spawn(move || deliver(&due));
        let lanes = Operation::value_variants().iter().map(lane).collect();
        Self { lanes, late: Mutex::new((Turns::new(delay, at_once), late)) }
    }

    /// Sends the answer to an operation that came at `arrived`, when its time has come.
    pub(crate) fn answer(
        &self,
        operation: Operation,
        arrived: Instant,
        answer: impl FnOnce() + Send + 'static,
    ) {
        let lane = self.lanes.iter().find(|lane| lane.operation == operation);
        if let Some(lane) = lane {
            lane.count.fetch_add(1, Ordering::Relaxed);
        }
        if lane.is_some_and(|lane| lane.delayed) {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            let end = late.0.end(arrived);
            // Fails only after the thread's end, when nobody waits for the answer.
            let _ = late.1.send((end, Box::new(answer)));
        } else {
            answer();
        }
    }

    /// How many operations of each kind were answered.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let name = |lane: &Lane| format!("{:?}", lane.operation).to_lowercase();
        self.lanes.iter().map(|lane| (name(lane), lane.count.load(Ordering::Relaxed))).collect()
    }
}

/// Delivers in the order of arrival, which is that of the ends.
fn deliver(due: &Receiver<(Instant, Answer)>) {
    for (at, answer) in due {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        answer();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::{Operation, Wire};

    #[test]
    fn delays_overlap() {
        let delay = Duration::from_millis(20);
        let (wire, (done, answers)) = (Wire::new(delay, None, &[Operation::Read]), channel());
        let started = Instant::now();
        for number in 0..50 {
            let done = done.clone();
            wire.answer(Operation::Read, Instant::now(), move || done.send(number).unwrap());
        }
        let order: Vec<u32> = answers.iter().take(50).collect();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
        assert!(started.elapsed() >= delay);
        assert!(started.elapsed() < 10 * delay, "50 delays in turn would be 50 of them");
        assert_eq!(wire.counts().get("read"), Some(&50));
    }

    #[test]
    fn what_is_above_the_limit_is_late() {
        let delay = Duration::from_millis(5);
        let wire = Wire::new(delay, NonZeroUsize::new(2), &[Operation::Read]);
        let (done, answers) = channel();
        let started = Instant::now();
        for number in 0..10 {
            let done = done.clone();
            wire.answer(Operation::Read, Instant::now(), move || done.send(number).unwrap());
        }
        let order: Vec<u32> = answers.iter().take(10).collect();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
        assert!(started.elapsed() >= 5 * delay, "ten by twos");
    }

    #[test]
    fn what_is_not_delayed_is_answered_at_once() {
        let wire = Wire::new(Duration::from_secs(60), NonZeroUsize::new(1), &[Operation::Read]);
        let (done, answers) = channel();
        wire.answer(Operation::Open, Instant::now(), move || done.send(()).unwrap());
        assert_eq!(answers.try_recv(), Ok(()));
    }
}
