//! The way back: every flight becomes exactly one completion, here.

use super::ReadFault;
use super::flight::Flight;
use super::op::Completion;
use super::store::Held;
use crossbeam_channel::Sender;

/// Sends completions to whoever submitted the reads, through the simulated store if there is one.
pub(super) struct Delivery {
    completions: Sender<Completion>,
    store: Option<Sender<Held>>,
}

impl Delivery {
    pub(super) fn new(completions: Sender<Completion>, store: Option<Sender<Held>>) -> Self {
        Self { completions, store }
    }

    /// Ends `flight`. If nobody waits for completions any more, its blocks are lost, as the arena soon is.
    pub(super) fn deliver(&self, flight: Flight, outcome: Result<(), ReadFault>) {
        let Flight { op, submitted, due, .. } = flight;
        match (&self.store, due) {
            (Some(store), Some(due)) => {
                let _ = store.send(Held { op, outcome, submitted, due });
            }
            _ => {
                let latency = submitted.elapsed();
                let _ = self.completions.send(Completion { op, outcome, latency });
            }
        }
    }
}
