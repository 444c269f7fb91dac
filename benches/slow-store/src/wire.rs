//! The link between client and store: every answer takes a fixed time, any number at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

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
    delay: Duration,
    lanes: Vec<Lane>,
    late: Sender<(Instant, Answer)>,
}

/// One kind of operation.
#[derive(Debug)]
struct Lane {
    operation: Operation,
    delayed: bool,
    count: AtomicU64,
}

impl Wire {
    /// A wire that delays the named operations by `delay`.
    pub(crate) fn new(delay: Duration, delayed: &[Operation]) -> Self {
        let lane = |&operation: &Operation| Lane {
            operation,
            delayed: delayed.contains(&operation) && !delay.is_zero(),
            count: AtomicU64::new(0),
        };
        let (late, due) = channel();
        // This thread ends when the wire is dropped.
        thread::spawn(move || deliver(&due));
        Self { delay, lanes: Operation::value_variants().iter().map(lane).collect(), late }
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
            // Fails only after the thread's end, when nobody waits for the answer.
            let _ = self.late.send((arrived + self.delay, Box::new(answer)));
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

/// Delivers in the order of arrival, as all answers take equally long.
fn deliver(due: &Receiver<(Instant, Answer)>) {
    for (at, answer) in due {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        answer();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::{Operation, Wire};

    #[test]
    fn delays_overlap() {
        let delay = Duration::from_millis(20);
        let (wire, (done, answers)) = (Wire::new(delay, &[Operation::Read]), channel());
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
    fn what_is_not_delayed_is_answered_at_once() {
        let (wire, (done, answers)) = (Wire::new(Duration::from_secs(60), &[Operation::Read]), channel());
        wire.answer(Operation::Open, Instant::now(), move || done.send(()).unwrap());
        assert_eq!(answers.try_recv(), Ok(()));
    }
}
