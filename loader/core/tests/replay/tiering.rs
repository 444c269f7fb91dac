//! The tier of the core's tests: servers that have what was stored, answer in random order and fail
//! on request.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use shade_core::{TierEvent, TierMiss, TierOrder, TierPut};
use shade_formats::SampleId;

use super::counted::{Counted, Record};
use super::{Event, ReadOp};

/// The servers. They do nothing until the core is told of their room.
#[derive(Default)]
pub(crate) struct Tiering {
    /// Samples that they have.
    pub held: HashSet<u32>,
    /// Samples whose bytes come back wrong.
    pub wrong: HashSet<u32>,
    /// No server answers.
    pub down: bool,
    /// Samples that they have room for; 0 for any number.
    pub samples_max: usize,
    /// Latency of every answer.
    pub latency: Duration,
    /// Records that were asked for, and stored.
    pub asked: u64,
    pub stored: u64,
    fetches: Vec<ReadOp>,
    writes: VecDeque<Write>,
}

enum Write {
    Put(SampleId, Arc<Record>),
    Remove(SampleId),
}

impl Tiering {
    pub(super) fn take(&mut self, order: TierOrder<Counted>) {
        match order {
            TierOrder::Get(ops) => {
                self.asked += ops.len() as u64;
                self.fetches.extend(ops);
            }
            TierOrder::Put { sample, record, .. } => self.writes.push_back(Write::Put(sample, record)),
            TierOrder::Drop(samples) => self.writes.extend(samples.into_iter().map(Write::Remove)),
        }
    }

    /// Number of answers, one of which may come next: of any fetch, and of the first write.
    pub(super) fn pending(&self) -> usize {
        self.fetches.len() + usize::from(!self.writes.is_empty())
    }

    /// The answer number `at`; `None` if there is none to a removal.
    pub(super) fn answer(&mut self, at: usize) -> Option<Event> {
        if at < self.fetches.len() {
            let op = self.fetches.remove(at);
            let outcome = match op.sample.0 {
                _ if self.down => Err(TierMiss::Down),
                sample if !self.held.contains(&sample) => Err(TierMiss::Absent),
                sample if self.wrong.contains(&sample) => Err(TierMiss::Wrong),
                _ => Ok(()),
            };
            return Some(Event::Tier(TierEvent::Got { op, outcome, latency: self.latency }));
        }
        match self.writes.pop_front()? {
            Write::Remove(sample) => {
                self.held.remove(&sample.0);
                None
            }
            Write::Put(sample, record) => {
                let is_full = self.samples_max > 0 && self.held.len() >= self.samples_max;
                let outcome = match is_full {
                    _ if self.down => TierPut::Failed,
                    true => TierPut::Full,
                    false => {
                        self.held.insert(sample.0);
                        self.wrong.remove(&sample.0);
                        self.stored += 1;
                        TierPut::Stored
                    }
                };
                Some(Event::Tier(TierEvent::Put { sample, record, outcome }))
            }
        }
    }
}
