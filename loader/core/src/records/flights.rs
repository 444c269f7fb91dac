//! The reads that the store has not answered yet.

use std::collections::{BTreeMap, VecDeque};

use shade_formats::SampleId;

use crate::ids::JobId;
use crate::number::to_usize;

/// Number of a flight: one read of the store, which brings one record or several neighbours.
pub(super) type FlightId = u64;

/// A flight submitted and not yet ended.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) submitted_ns: u64,
    pub(super) job: JobId,
    /// The first of its records.
    pub(super) first: SampleId,
    /// Records that have not come.
    missing: u32,
}

/// Where more places than this are kept for flights that have ended, the oldest flight is moved.
const ENDED_MAX: usize = 1024;

/// All flights, in the order of their submission.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// Flights that many later ones have overtaken, by number. A read may never end.
    overtaken: BTreeMap<FlightId, Flight>,
    /// All other flights by number, from `first` on: the oldest first. `None` have ended.
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
    pub(super) fn submitted(&mut self, job: JobId, first: SampleId, records: u32, now_ns: u64) {
        self.in_flight += 1;
        self.records_in_flight += records as usize;
        if self.flights.is_empty() && self.overtaken.is_empty() {
            self.oldest_since_ns = now_ns;
        }
        let flight = Flight { submitted_ns: now_ns, job, first, missing: records };
        self.flights.push_back(Some(flight));
    }

    /// One record of `flight` has come. Returns the flight's job, and whether the flight has ended.
    /// Each of its records comes once.
    pub(super) fn landed(&mut self, id: FlightId, now_ns: u64) -> (JobId, bool) {
        let is_oldest = self.overtaken.first_key_value().is_some_and(|(&first, _)| first == id);
        let place = id.checked_sub(self.first).map(|at| &mut self.flights[to_usize(at)]);
        let is_overtaken = place.is_none();
        let flight = place.map_or_else(|| self.overtaken.get_mut(&id), Option::as_mut);
        let Some(flight) = flight else { panic!("flight {id} has ended") };
        let job = flight.job;
        flight.missing -= 1;
        let has_ended = flight.missing == 0;
        self.records_in_flight -= 1;
        if has_ended {
            self.in_flight -= 1;
            self.ended(id, is_overtaken, is_oldest, now_ns);
        }
        if self.flights.len() > self.in_flight + ENDED_MAX {
            self.overtake();
        }
        (job, has_ended)
    }

    /// Forgets a flight.
    fn ended(&mut self, id: FlightId, is_overtaken: bool, is_oldest: bool, now_ns: u64) {
        if is_overtaken {
            self.overtaken.remove(&id);
            if is_oldest {
                self.oldest_since_ns = now_ns;
            }
            return;
        }
        self.flights[to_usize(id - self.first)] = None;
        while self.flights.front().is_some_and(Option::is_none) {
            self.flights.pop_front();
            self.first += 1;
            if self.overtaken.is_empty() {
                self.oldest_since_ns = now_ns;
            }
        }
    }

    /// Moves the first flight, whose place keeps those of all later ones, and drops the places of
    /// flights behind it that have ended.
    fn overtake(&mut self) {
        if let Some(Some(flight)) = self.flights.pop_front() {
            self.overtaken.insert(self.first, flight);
        }
        self.first += 1;
        while self.flights.front().is_some_and(Option::is_none) {
            self.flights.pop_front();
            self.first += 1;
        }
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
        self.overtaken.values().chain(self.flights.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(flights: &mut Flights, records: u32, now_ns: u64) -> FlightId {
        let id = flights.next_id();
        flights.submitted(7, SampleId(0), records, now_ns);
        id
    }

    #[test]
    fn reads_that_never_end_keep_no_place_of_those_that_do() {
        let mut flights = Flights::default();
        let stuck = [1, 3].map(|records| submit(&mut flights, records, 5));
        for now_ns in 10..100_000 {
            let ids = [1, 2].map(|records| submit(&mut flights, records, now_ns));
            assert_eq!(flights.landed(ids[1], now_ns), (7, false));
            assert_eq!(flights.landed(ids[0], now_ns), (7, true));
            assert_eq!(flights.landed(ids[1], now_ns), (7, true));
        }
        assert!(flights.flights.len() <= 2 + ENDED_MAX, "{}", flights.flights.len());
        assert_eq!((flights.in_flight(), flights.records_in_flight()), (2, 4));
        assert_eq!(flights.iter().map(|flight| flight.missing).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(flights.oldest_since_ns(), 5);
        // They may end after all.
        assert_eq!(flights.landed(stuck[0], 200_000), (7, true));
        assert_eq!(flights.oldest_since_ns(), 200_000);
        for ends in [false, false, true] {
            assert_eq!(flights.landed(stuck[1], 300_000), (7, ends));
        }
        assert_eq!((flights.in_flight(), flights.records_in_flight(), flights.iter().count()), (0, 0, 0));
        let last = submit(&mut flights, 1, 400_000);
        assert_eq!(flights.oldest_since_ns(), 400_000);
        assert_eq!(flights.landed(last, 400_001), (7, true));
    }

    #[test]
    #[should_panic(expected = "flight 0 has ended")]
    fn a_record_comes_once() {
        let mut flights = Flights::default();
        let id = submit(&mut flights, 1, 5);
        submit(&mut flights, 1, 6);
        assert_eq!(flights.landed(id, 7), (7, true));
        flights.landed(id, 8);
    }
}
