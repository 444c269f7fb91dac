//! Records on their way from storage: who waits for them, in which order they are asked for, which flight brings them.

use std::collections::{HashMap, VecDeque};

use shade_formats::SampleId;
use shade_formats::index::Entry;

use crate::batch::RowRef;
use crate::event::SessionId;
use crate::neighbours::{Neighbours, SPAN_BYTES_MAX};
use crate::samples::Samples;

/// Number of a flight: one read of the store, which brings one record or several neighbours.
pub(super) type FlightId = u64;

/// The records wanted from storage. Single flight: a record is asked for once, however many rows wait for it.
#[derive(Debug)]
pub(super) struct Reading {
    wanted: HashMap<SampleId, Wanted>,
    /// Records wanted and not yet asked for, in plan order; those that went with a neighbour are still in it.
    queued: VecDeque<SampleId>,
    neighbours: Neighbours,
    /// By number, from `first_flight` on: the oldest first. `None` are back already.
    flights: VecDeque<Option<Flying>>,
    first_flight: FlightId,
    in_flight: usize,
    /// Records of those flights that are not back yet.
    records_in_flight: usize,
    /// Since when the oldest flight has been that.
    oldest_since_ns: u64,
    /// The group that was asked for last, with offsets; kept for its memory.
    group: Vec<(u64, SampleId)>,
}

#[derive(Debug, Default)]
struct Wanted {
    waiting: Vec<RowRef>,
    /// It is wanted even if no row waits.
    ahead: bool,
    /// It came before and was not what was packed.
    doubted: bool,
    /// Flights that will bring it; 0 while it is queued, 2 when it is hedged.
    flights: u32,
    /// The first of them. Earlier ones were asked for when it was wanted before, and a hedge was faster.
    first_flight: Option<FlightId>,
}

/// A flight submitted and not yet back.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) submitted_ns: u64,
    /// The first of its records.
    pub(super) first: SampleId,
    /// Its records.
    pub(super) records: u32,
    /// Those that are not back.
    missing: u32,
    /// It was hedged, or is a hedge itself.
    pub(super) hedged: bool,
}

impl Reading {
    /// Nothing yet; neighbours up to `gap_bytes_max` apart are read together.
    pub(super) fn new(gap_bytes_max: u32) -> Self {
        Self {
            wanted: HashMap::new(),
            queued: VecDeque::new(),
            neighbours: Neighbours::new(gap_bytes_max, SPAN_BYTES_MAX),
            flights: VecDeque::new(),
            first_flight: 0,
            in_flight: 0,
            records_in_flight: 0,
            oldest_since_ns: 0,
            group: Vec::new(),
        }
    }

    /// `row` wants `sample`. `false` when it was wanted already: the row waits along.
    pub(super) fn want(&mut self, sample: SampleId, row: RowRef, index: &dyn Samples) -> bool {
        if let Some(wanted) = self.wanted.get_mut(&sample) {
            wanted.waiting.push(row);
            return false;
        }
        self.queue(sample, Wanted { waiting: vec![row], ..Wanted::default() }, index);
        true
    }

    /// `sample`, which nobody wants, is to be read all the same.
    pub(super) fn want_ahead(&mut self, sample: SampleId, index: &dyn Samples) {
        self.queue(sample, Wanted { ahead: true, ..Wanted::default() }, index);
    }

    fn queue(&mut self, sample: SampleId, wanted: Wanted, index: &dyn Samples) {
        self.wanted.insert(sample, wanted);
        self.queued.push_back(sample);
        if let Some(entry) = index.entry(sample)
            && entry.stored_len > 0
        {
            self.neighbours.insert(sample, entry.shard, entry.offset, entry.stored_len);
        }
    }

    /// `sample`, which somebody wants, came before and was not what was packed.
    pub(super) fn doubt(&mut self, sample: SampleId) {
        if let Some(wanted) = self.wanted.get_mut(&sample) {
            wanted.doubted = true;
        }
    }

    /// Whether the record came before and was not what was packed.
    pub(super) fn is_doubted(&self, sample: SampleId) -> bool {
        self.wanted.get(&sample).is_some_and(|wanted| wanted.doubted)
    }

    /// Whether somebody wants the record, or it is on its way.
    pub(super) fn is_wanted(&self, sample: SampleId) -> bool {
        self.wanted.contains_key(&sample)
    }

    /// The record to ask for next: the first in plan order that somebody still waits for.
    pub(super) fn next(&mut self, index: &dyn Samples) -> Option<SampleId> {
        while let Some(&sample) = self.queued.front() {
            match self.wanted.get(&sample) {
                Some(wanted) if wanted.flights > 0 => {}
                Some(wanted) if wanted.ahead || !wanted.waiting.is_empty() => return Some(sample),
                Some(_) => {
                    self.wanted.remove(&sample);
                    if let Some(entry) = index.entry(sample) {
                        self.neighbours.remove(entry.shard, entry.offset);
                    }
                }
                None => {}
            }
            self.queued.pop_front();
        }
        None
    }

    /// Finds the neighbours that one read of `sample` brings along; returns how many records that are with itself.
    pub(super) fn find_group(&mut self, sample: SampleId, entry: &Entry) -> usize {
        self.neighbours.take(entry.shard, entry.offset, &mut self.group);
        if self.group.is_empty() {
            self.group.push((entry.offset, sample));
        }
        self.group.len()
    }

    /// The `at`-th record of the group that was found last, by offset.
    pub(super) fn member(&self, at: usize) -> Option<SampleId> {
        self.group.get(at).map(|&(_, sample)| sample)
    }

    /// There was no room for `sample` of a group: it waits for another read.
    pub(super) fn put_back(&mut self, sample: SampleId, index: &dyn Samples) {
        if let Some(entry) = index.entry(sample) {
            self.neighbours.insert(sample, entry.shard, entry.offset, entry.stored_len);
        }
    }

    /// The number that the next flight will have.
    pub(super) fn next_flight(&self) -> FlightId {
        self.first_flight + self.flights.len() as u64
    }

    /// The next flight is submitted: one read of these records, at least one.
    pub(super) fn submitted(&mut self, samples: impl Iterator<Item = SampleId>, hedged: bool, now_ns: u64) {
        let flight = self.next_flight();
        let (mut first, mut records) = (None, 0);
        for sample in samples {
            let wanted = self.wanted.entry(sample).or_default();
            wanted.flights += 1;
            wanted.first_flight.get_or_insert(flight);
            first.get_or_insert(sample);
            records += 1;
        }
        let Some(first) = first else { return };
        self.in_flight += 1;
        self.records_in_flight += records as usize;
        if self.flights.is_empty() {
            self.oldest_since_ns = now_ns;
        }
        let flying = Flying { submitted_ns: now_ns, first, records, missing: records, hedged };
        self.flights.push_back(Some(flying));
    }

    /// One record of `flight` is back.
    fn landed(&mut self, flight: FlightId, now_ns: u64) {
        let at = flight.checked_sub(self.first_flight).and_then(|at| usize::try_from(at).ok());
        let Some(place) = at.and_then(|at| self.flights.get_mut(at)) else { return };
        let Some(flying) = place else { return };
        if flying.missing > 0 {
            flying.missing -= 1;
            self.records_in_flight -= 1;
        }
        if flying.missing == 0 {
            *place = None;
            self.in_flight -= 1;
        }
        while self.flights.front().is_some_and(Option::is_none) {
            self.flights.pop_front();
            self.first_flight += 1;
            self.oldest_since_ns = now_ns;
        }
    }

    /// `flight` brought the record of `sample`, or a fault. Returns the rows whose record or fault it is; none of a fault as
    /// long as another flight may still bring the record.
    pub(super) fn came_back(
        &mut self,
        flight: FlightId,
        sample: SampleId,
        good: bool,
        now_ns: u64,
    ) -> Vec<RowRef> {
        self.landed(flight, now_ns);
        let Some(wanted) = self.wanted.get_mut(&sample) else { return Vec::new() };
        if wanted.first_flight.is_some_and(|first| flight >= first) {
            wanted.flights = wanted.flights.saturating_sub(1);
        } else if !good {
            return Vec::new();
        } else if wanted.flights == 0 {
            // It is still queued: it need not be asked for any more.
            return std::mem::take(&mut wanted.waiting);
        }
        if !good && wanted.flights > 0 {
            return Vec::new();
        }
        // Whoever wants it from now on asks anew, and does not wait for a flight that a hedge was faster than.
        self.wanted.remove(&sample).map_or_else(Vec::new, |wanted| wanted.waiting)
    }

    /// Nobody of `session` waits any more.
    pub(super) fn forget(&mut self, session: SessionId) {
        for wanted in self.wanted.values_mut() {
            wanted.waiting.retain(|row| row.session != session);
        }
    }

    /// Reads submitted and not yet back.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Records of those reads, of which a read of neighbours has several.
    pub(super) fn records_in_flight(&self) -> usize {
        self.records_in_flight
    }

    /// Since when the oldest flight has been that. More are submitted than are in flight, and begun in order: from then on at
    /// the latest it is in flight, and does not wait for its turn.
    pub(super) fn oldest_since_ns(&self) -> u64 {
        self.oldest_since_ns
    }

    /// The flights with their numbers, the oldest first.
    pub(super) fn flights_mut(&mut self) -> impl Iterator<Item = (FlightId, &mut Flying)> {
        (self.first_flight..)
            .zip(&mut self.flights)
            .filter_map(|(flight, flying)| Some((flight, flying.as_mut()?)))
    }

    /// The records that `flight` has not brought yet and no other flight will, by id. Looks at all that are wanted.
    pub(super) fn missing(&self, flight: FlightId) -> Vec<SampleId> {
        let missing = self
            .wanted
            .iter()
            .filter(|(_, wanted)| wanted.flights == 1 && wanted.first_flight == Some(flight));
        let mut missing: Vec<SampleId> = missing.map(|(&sample, _)| sample).collect();
        missing.sort_unstable();
        missing
    }

    /// The flights, the oldest first.
    pub(super) fn flights(&self) -> impl Iterator<Item = &Flying> {
        self.flights.iter().flatten()
    }
}
