//! Flights that wait for their turn a second time: their shard was opened, or they wait before
//! another try.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::flight::Flight;

/// Flights in the order in which they were submitted, whatever the order in which they come back.
///
/// All that was submitted later waits behind them. Otherwise a read whose shard had to be opened
/// would go behind everything that was submitted meanwhile: on a slow link that is most of an
/// epoch.
#[derive(Default)]
pub(super) struct Resumed {
    ready: VecDeque<Flight>,
    /// Flights that wait before another try, and until when.
    waiting: Vec<(Instant, Flight)>,
}

impl Resumed {
    /// Takes a flight in at its place; behind those of the same number.
    pub(super) fn push(&mut self, flight: Flight) {
        let at = self.ready.partition_point(|ready| ready.number() <= flight.number());
        self.ready.insert(at, flight);
    }

    /// Takes in a flight that waits until `until`.
    pub(super) fn push_later(&mut self, until: Instant, flight: Flight) {
        self.waiting.push((until, flight));
    }

    /// Makes flights ready whose wait is over.
    pub(super) fn end_waits(&mut self, now: Instant) {
        for (until, flight) in std::mem::take(&mut self.waiting) {
            if until <= now {
                self.push(flight);
            } else {
                self.waiting.push((until, flight));
            }
        }
    }

    /// Time until the next wait is over.
    pub(super) fn next_wait(&self) -> Option<Duration> {
        let until = self.waiting.iter().map(|(until, _)| *until).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// The ready flight that was submitted first.
    pub(super) fn pop(&mut self) -> Option<Flight> {
        self.ready.pop_front()
    }

    /// Flights that are ready.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// All flights: those that wait first.
    pub(super) fn into_flights(self) -> impl Iterator<Item = Flight> {
        self.waiting.into_iter().map(|(_, flight)| flight).chain(self.ready)
    }
}
