//! Records on their way from storage: who waits for them, in which order they are asked for, which flight brings them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use shade_formats::SampleId;
use shade_formats::index::Index;

use super::batch::RowRef;
use super::event::SessionId;
use crate::reads::coalesce::{Neighbours, SPAN_BYTES_MAX};

/// Number of a flight: one read of the store, which brings one record or several neighbours.
pub(super) type FlightId = u64;

/// The records wanted from storage. Single flight: a record is asked for once, however many rows wait for it.
#[derive(Debug)]
pub(super) struct Reading {
    wanted: HashMap<SampleId, Wanted>,
    /// Records wanted and not yet asked for, in plan order; those that went with a neighbour are still in it.
    queued: VecDeque<SampleId>,
    neighbours: Neighbours,
    /// The oldest first.
    flights: BTreeMap<FlightId, Flying>,
    next_flight: FlightId,
}

#[derive(Debug, Default)]
struct Wanted {
    waiting: Vec<RowRef>,
    /// Flights that will bring it; 0 while it is queued, 2 when it is hedged.
    flights: u32,
}

/// A flight submitted and not yet back.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) submitted_ns: u64,
    /// Records that are not back.
    pub(super) missing: Vec<SampleId>,
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
            flights: BTreeMap::new(),
            next_flight: 0,
        }
    }

    /// `row` wants `sample`. `false` when it was wanted already: the row waits along.
    pub(super) fn want(&mut self, sample: SampleId, row: RowRef, index: &Index) -> bool {
        if let Some(wanted) = self.wanted.get_mut(&sample) {
            wanted.waiting.push(row);
            return false;
        }
        self.wanted.insert(sample, Wanted { waiting: vec![row], flights: 0 });
        self.queued.push_back(sample);
        if let Some(entry) = index.entry(sample)
            && entry.stored_len > 0
        {
            self.neighbours.insert(sample, entry.shard, entry.offset, entry.stored_len);
        }
        true
    }

    /// The record to ask for next: the first in plan order that somebody still waits for.
    pub(super) fn next(&mut self, index: &Index) -> Option<SampleId> {
        while let Some(&sample) = self.queued.front() {
            match self.wanted.get(&sample) {
                Some(wanted) if wanted.flights > 0 => {}
                Some(wanted) if !wanted.waiting.is_empty() => return Some(sample),
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

    /// `sample`, which is to be asked for now, and the neighbours that one read brings along, by their offsets.
    pub(super) fn group(&mut self, sample: SampleId, index: &Index) -> Vec<SampleId> {
        let Some(entry) = index.entry(sample) else { return vec![sample] };
        let mut group = self.neighbours.take(entry.shard, entry.offset);
        if group.is_empty() {
            group.push(sample);
        }
        group
    }

    /// There was no room for `sample` of a group: it waits for another read.
    pub(super) fn put_back(&mut self, sample: SampleId, index: &Index) {
        if let Some(entry) = index.entry(sample) {
            self.neighbours.insert(sample, entry.shard, entry.offset, entry.stored_len);
        }
    }

    /// One read of `samples` is submitted.
    pub(super) fn submitted(&mut self, samples: &[SampleId], hedged: bool, now_ns: u64) -> FlightId {
        let id = self.next_flight;
        self.next_flight += 1;
        for sample in samples {
            self.wanted.entry(*sample).or_default().flights += 1;
        }
        self.flights.insert(id, Flying { submitted_ns: now_ns, missing: samples.to_vec(), hedged });
        id
    }

    /// `flight` brought the record of `sample`. Returns the rows that wait for it, and whether another flight will still
    /// bring it, too.
    pub(super) fn came_back(
        &mut self,
        flight: FlightId,
        sample: SampleId,
        good: bool,
    ) -> (Vec<RowRef>, bool) {
        if let Some(flying) = self.flights.get_mut(&flight) {
            flying.missing.retain(|&missing| missing != sample);
            if flying.missing.is_empty() {
                self.flights.remove(&flight);
            }
        }
        let Some(wanted) = self.wanted.get_mut(&sample) else { return (Vec::new(), false) };
        wanted.flights = wanted.flights.saturating_sub(1);
        let another = wanted.flights > 0;
        // A fault is nobody's as long as the record may still come.
        let rows = if good || !another { std::mem::take(&mut wanted.waiting) } else { Vec::new() };
        if !another {
            self.wanted.remove(&sample);
        }
        (rows, another)
    }

    /// Nobody of `session` waits any more.
    pub(super) fn forget(&mut self, session: SessionId) {
        for wanted in self.wanted.values_mut() {
            wanted.waiting.retain(|row| row.session != session);
        }
    }

    /// Reads submitted and not yet back.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// The flights, the oldest first.
    pub(super) fn flights_mut(&mut self) -> impl Iterator<Item = &mut Flying> {
        self.flights.values_mut()
    }

    /// The flights, the oldest first.
    pub(super) fn flights(&self) -> impl Iterator<Item = &Flying> {
        self.flights.values()
    }
}
