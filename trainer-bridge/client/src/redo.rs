//! What a rank keeps for a successor of its daemon: the base of its epoch, which the daemon gave
//! it, and a record of what it was given and said since. `CONTROL.md` of `shade-formats` says how a
//! successor goes on from both.
//!
//! Only jobs whose plans do not follow from their document are given bases; of others nothing is
//! recorded but where they are.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use shade_formats::control::{RedoRow, Request, Step, redo_to_bytes};
use shade_shm::memfd;

use crate::ClientError;
use crate::dialogue::Dialogue;

/// Rows of a record, batches and losses, for each sample of the dataset, or for each position of an
/// epoch if that has more. A rank that goes through an epoch again and again records the last time
/// only, so it has far fewer.
const ROWS_MAX_PER_PLACE: usize = 8;
/// The same, whatever the dataset.
const ROWS_MAX: usize = 1 << 20;

/// A rank's record.
#[derive(Debug)]
pub(crate) struct Redo {
    /// Samples of the dataset, or positions of an epoch if there are more.
    places: u32,
    /// The job's plans do not follow from its document, so its daemon gives bases.
    has_bases: bool,
    /// States that were loaded.
    loads: u32,
    base: Option<Base>,
    steps: Vec<Step>,
    /// Rows in `steps`.
    rows: usize,
    /// Where the last step of a batch is in `steps`.
    delivered: HashMap<BatchKey, usize>,
    reported: HashMap<BatchKey, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BatchKey {
    epoch: u32,
    batch: u32,
}

/// A base, or the state that was loaded last.
#[derive(Debug)]
struct Base {
    /// As [`Request::TakeBase`] has it.
    begun: u32,
    file: OwnedFd,
}

impl Redo {
    /// Before the first epoch. `places` are the dataset's samples, or an epoch's positions if there
    /// are more; `has_bases` says whether the job's plans do not follow from its document.
    pub(crate) fn new(places: u32, has_bases: bool) -> Self {
        Self {
            places,
            has_bases,
            loads: 0,
            base: None,
            steps: Vec::new(),
            rows: 0,
            delivered: HashMap::new(),
            reported: HashMap::new(),
        }
    }

    /// From now on the job's plans may be others than its document's.
    pub(crate) fn depart(&mut self) {
        self.has_bases = true;
    }

    /// A state was loaded, whose bytes are in this file.
    pub(crate) fn load(&mut self, file: OwnedFd) {
        self.loads = self.loads.saturating_add(1);
        self.base = Some(Base { begun: 0, file });
        self.has_bases = true;
        self.keep(|_| false);
    }

    /// The daemon has given the base of `epoch`: what came before is in it.
    pub(crate) fn begin(&mut self, epoch: u32, file: OwnedFd) {
        self.base = Some(Base { begun: epoch.saturating_add(1), file });
        let started = self.steps.iter().rposition(|step| *step == Step::Started { epoch });
        let from = started.unwrap_or(self.steps.len());
        let mut at = 0;
        self.keep(|step| {
            at += 1;
            // Losses of the epoch before may still come.
            at > from || matches!(step, Step::Delivered { epoch: of, .. } if of.checked_add(1) == Some(epoch))
        });
    }

    /// The rank asks for an epoch.
    pub(crate) fn start(&mut self, epoch: u32) {
        let last = self.steps.iter().rfind(|step| matches!(step, Step::Started { .. }));
        if last == Some(&Step::Started { epoch }) {
            return;
        }
        // What comes from here on is not in the next base, also of a batch that was reported.
        self.reported.clear();
        if self.base.is_none() {
            // Only what it said since the last start may be unknown to a successor.
            let last = self.steps.iter().rposition(|step| matches!(step, Step::Started { .. }));
            drop(self.steps.drain(..last.unwrap_or(0)));
        }
        self.steps.push(Step::Started { epoch });
    }

    /// Whether batches and losses are recorded.
    pub(crate) fn records(&self) -> bool {
        self.base.is_some()
    }

    /// The rank was given a batch.
    pub(crate) fn deliver(&mut self, epoch: u32, batch: u32, rows: Vec<RedoRow>) {
        self.rows += rows.len();
        let key = BatchKey { epoch, batch };
        let step = Step::Delivered { epoch, batch, rows };
        let at = self.delivered.entry(key).or_insert(self.steps.len());
        match self.steps.get_mut(*at) {
            Some(known) => {
                self.rows -= rows_of(known);
                *known = step;
            }
            None => {
                *at = self.steps.len();
                self.steps.push(step);
            }
        }
        self.limit();
    }

    /// The rank reports losses, of all that it reported of this batch the last.
    pub(crate) fn report(&mut self, epoch: u32, batch: u32, losses: &[f32]) {
        if !self.records() {
            return;
        }
        self.rows += losses.len();
        let key = BatchKey { epoch, batch };
        let step = Step::Reported { epoch, batch, losses: losses.to_vec() };
        let at = self.reported.entry(key).or_insert(self.steps.len());
        match self.steps.get_mut(*at) {
            // It scores all samples anew that the one before did.
            Some(known) if rows_of(known) <= losses.len() => {
                self.rows -= rows_of(known);
                *known = step;
            }
            _ => {
                *at = self.steps.len();
                self.steps.push(step);
            }
        }
        self.limit();
    }

    /// The rank says something else.
    pub(crate) fn say(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Hands over all that is kept.
    ///
    /// # Errors
    /// The daemon is gone, or there is no memory.
    pub(crate) fn hand_over(&self, dialogue: &Dialogue) -> Result<(), ClientError> {
        if let Some(Base { begun, file }) = &self.base {
            let request = Request::TakeBase { loads: self.loads, begun: *begun };
            dialogue.tell_with("take_base", &request, file)?;
        }
        if self.base.is_some() || self.steps.iter().any(|step| !matches!(step, Step::Started { .. })) {
            let file = memfd::holding("shade-redo", &redo_to_bytes(&self.steps));
            let file = file.map_err(|error| ClientError::NoState { error })?;
            dialogue.tell_with("take_redo", &Request::TakeRedo, &file)?;
        }
        Ok(())
    }

    /// Keeps these steps.
    fn keep(&mut self, is_kept: impl FnMut(&Step) -> bool) {
        let mut is_kept = is_kept;
        self.steps.retain(|step| is_kept(step));
        (self.delivered, self.reported, self.rows) = (HashMap::new(), HashMap::new(), 0);
        for (at, step) in self.steps.iter().enumerate() {
            self.rows += rows_of(step);
            let (of, key) = match *step {
                Step::Delivered { epoch, batch, .. } => (&mut self.delivered, BatchKey { epoch, batch }),
                Step::Reported { epoch, batch, .. } => (&mut self.reported, BatchKey { epoch, batch }),
                Step::Started { .. } | Step::Validated { .. } | Step::Heard { .. } => continue,
            };
            of.insert(key, at);
        }
    }

    /// Drops reports that would make the record longer than a daemon takes: a trainer that reports
    /// parts of the same batch without end. Later losses of a batch replace earlier ones anyway.
    fn limit(&mut self) {
        if self.rows > ROWS_MAX.max(self.places as usize * ROWS_MAX_PER_PLACE) {
            let last: Vec<usize> = self.reported.values().copied().collect();
            let mut at = 0;
            self.keep(|step| {
                at += 1;
                !matches!(step, Step::Reported { .. }) || last.contains(&(at - 1))
            });
        }
    }
}

fn rows_of(step: &Step) -> usize {
    match step {
        Step::Delivered { rows, .. } => rows.len(),
        Step::Reported { losses, .. } => losses.len(),
        Step::Started { .. } | Step::Validated { .. } | Step::Heard { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use shade_formats::SampleId;

    use super::*;

    fn file() -> OwnedFd {
        memfd::holding("shade-test", b"a base").unwrap()
    }

    fn rows(first: u32) -> Vec<RedoRow> {
        (first..first + 2).map(|id| RedoRow { sample: SampleId(id), flags: 0 }).collect()
    }

    fn batches(redo: &Redo) -> Vec<(u32, u32)> {
        let delivered = redo.steps.iter().filter_map(|step| match step {
            Step::Delivered { epoch, batch, .. } => Some((*epoch, *batch)),
            _ => None,
        });
        delivered.collect()
    }

    #[test]
    fn a_base_has_what_came_before_its_start() {
        let mut redo = Redo::new(100, true);
        redo.start(0);
        redo.report(0, 0, &[1.0]);
        assert_eq!(redo.steps, [Step::Started { epoch: 0 }], "nothing was given before the first base");
        redo.begin(0, file());
        redo.deliver(0, 0, rows(0));
        redo.report(0, 0, &[1.0, 2.0]);
        redo.start(1);
        // Late: the next plan may be drawn by now.
        redo.report(0, 0, &[3.0, 4.0]);
        redo.say(Step::Validated { score: 1.0 });
        let late = Step::Reported { epoch: 0, batch: 0, losses: vec![3.0, 4.0] };
        redo.begin(1, file());
        assert_eq!(batches(&redo), [(0, 0)], "late losses may come");
        assert!(redo.steps.contains(&Step::Validated { score: 1.0 }));
        assert!(redo.steps.contains(&late), "{:?}", redo.steps);
        redo.deliver(1, 0, rows(2));
        redo.start(2);
        redo.begin(2, file());
        assert_eq!(batches(&redo), [(1, 0)]);
    }

    #[test]
    fn an_epoch_that_is_gone_through_again_is_recorded_once() {
        let mut redo = Redo::new(10, true);
        redo.start(0);
        redo.begin(0, file());
        for again in 0..1_000 {
            redo.start(0);
            redo.deliver(0, 0, rows(again));
            redo.report(0, 0, &[1.0, 2.0]);
        }
        assert_eq!(batches(&redo), [(0, 0)]);
        assert_eq!(redo.rows, 4);
    }

    #[test]
    fn a_job_without_bases_keeps_where_it_is() {
        let mut redo = Redo::new(10, false);
        for epoch in 0..100 {
            redo.start(epoch);
            redo.report(epoch, 0, &[1.0]);
        }
        assert_eq!(redo.steps, [Step::Started { epoch: 98 }, Step::Started { epoch: 99 }]);
    }

    #[test]
    fn what_is_reported_in_parts_without_end_stays_within_a_limit() {
        let mut redo = Redo::new(1, true);
        redo.start(0);
        redo.begin(0, file());
        for _ in 0..200 {
            redo.report(0, 0, &vec![1.0; 20_000]);
            redo.report(0, 0, &[2.0]);
        }
        assert!(redo.rows <= ROWS_MAX, "{} rows", redo.rows);
    }
}
