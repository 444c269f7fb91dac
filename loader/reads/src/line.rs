//! Flights that wait for their turn a second time: back from having their shard opened, or from a wait before another try.

use std::collections::VecDeque;

use crate::flight::Flight;

/// Flights in the order in which they were submitted, whatever the order in which they come back.
///
/// All that was submitted later waits behind them. Without that a read whose shard had to be opened would go behind
/// everything that was submitted meanwhile: on a slow link that is most of an epoch.
#[derive(Default)]
pub(super) struct Line {
    flights: VecDeque<Flight>,
}

impl Line {
    /// Takes a flight in at its place; behind those of the same number.
    pub(super) fn push(&mut self, flight: Flight) {
        let at = self.flights.partition_point(|waiting| waiting.number() <= flight.number());
        self.flights.insert(at, flight);
    }

    /// The flight that was submitted first.
    pub(super) fn pop(&mut self) -> Option<Flight> {
        self.flights.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }
}

impl IntoIterator for Line {
    type Item = Flight;
    type IntoIter = std::collections::vec_deque::IntoIter<Flight>;

    fn into_iter(self) -> Self::IntoIter {
        self.flights.into_iter()
    }
}
