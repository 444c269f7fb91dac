//! The reads that the store has not answered yet.

use std::collections::VecDeque;

use shade_formats::SampleId;

use crate::job::JobId;

/// Number of a flight: one read of the store, which brings one record or several neighbours.
pub(super) type FlightId = u64;

/// A flight submitted and not yet ended.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) submitted_ns: u64,
    pub(super) job: JobId,
    /// The first of its records.
    pub(super) first: SampleId,
    /// Number of its records.
    pub(super) records: u32,
    /// Records that have not come.
    missing: u32,
    /// It was hedged, or is a hedge itself.
    pub(super) hedged: bool,
}

/// All flights, in the order of their submission.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// By number, from `first` on: the oldest first. `None` have ended.
    flights: VecDeque<Option<Flight>>,
    first: FlightId,
    in_flight: usize,
    records_in_flight: usize,
    oldest_since_ns: u64,
}

impl Flights {
    /// The number of the next flight.
    pub(super) fn next_id(&self) -> FlightId {
        self.first + self.flights.len() as u64
    }

    /// The next flight is submitted for `job`: one read of `records`, of which `first` is one.
    pub(super) fn submitted(
        &mut self,
        job: JobId,
        (first, records): (SampleId, u32),
        hedged: bool,
        now_ns: u64,
    ) {
        self.in_flight += 1;
        self.records_in_flight += records as usize;
        if self.flights.is_empty() {
            self.oldest_since_ns = now_ns;
        }
        let flight = Flight { submitted_ns: now_ns, job, first, records, missing: records, hedged };
        self.flights.push_back(Some(flight));
    }

    /// One record of `flight` has come. Returns the flight's job, and whether the flight has ended.
    pub(super) fn landed(&mut self, flight: FlightId, now_ns: u64) -> Option<(JobId, bool)> {
        let at = flight.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let slot = at.and_then(|at| self.flights.get_mut(at))?;
        let flight = slot.as_mut()?;
        let job = flight.job;
        if flight.missing > 0 {
            flight.missing -= 1;
            self.records_in_flight -= 1;
        }
        let has_ended = flight.missing == 0;
        if has_ended {
            *slot = None;
            self.in_flight -= 1;
        }
        while self.flights.front().is_some_and(Option::is_none) {
            self.flights.pop_front();
            self.first += 1;
            self.oldest_since_ns = now_ns;
        }
        Some((job, has_ended))
    }

    /// Number of flights submitted and not yet ended.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of their records. A read of neighbours has several.
    pub(super) fn records_in_flight(&self) -> usize {
        self.records_in_flight
    }

    /// When the oldest flight became the oldest. More flights are submitted than the store has at a
    /// time, and they begin in order: at the latest then the oldest has begun, and does not wait
    /// for its turn.
    pub(super) fn oldest_since_ns(&self) -> u64 {
        self.oldest_since_ns
    }

    /// The flights, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().flatten()
    }

    /// The flights with their numbers, the oldest first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (FlightId, &mut Flight)> {
        (self.first..).zip(&mut self.flights).filter_map(|(id, flight)| Some((id, flight.as_mut()?)))
    }
}
