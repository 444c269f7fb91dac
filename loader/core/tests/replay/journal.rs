//! A journal of the core's cache, event by event, to be repeated with another cache.
//!
//! The core does not show its residents. But its cache holds each resident's record, and every
//! other holder is a row to fill, which passes here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use shade_core::{Counts, SessionId};

use super::counted::Record;
use super::{Action, Core, Event};

/// One event, as far as it concerns the cache.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    /// A rank wants an epoch, whose plan is drawn at once if it is due.
    Start(SessionId, u32),
    /// Losses of a batch: session, epoch, batch.
    Report(SessionId, u32, u32, Vec<f32>),
    /// A sample was read.
    Read(u32),
    /// A rank's ring may have room.
    Released(SessionId),
    /// Anything else.
    Other,
}

/// An event and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub moment: Moment,
    /// Residents that rows held when it happened: they are pinned.
    pub pinned: BTreeSet<u32>,
    /// The job's counts after it.
    pub counts: Counts,
    /// Bytes of all residents after it.
    pub used_bytes: u64,
    /// The residents after it.
    pub residents: BTreeSet<u32>,
}

/// All events so far.
#[derive(Default)]
pub(crate) struct Journal {
    pub steps: Vec<Step>,
    /// By sample: the record that was read last.
    records: BTreeMap<u32, Weak<Record>>,
    /// Rows that hold a record.
    held: HashMap<*const Record, usize>,
}

/// What is about to happen, and which residents rows hold meanwhile.
pub(super) type Before = (Moment, BTreeSet<u32>);

impl Journal {
    /// `event` is about to happen. [`after`](Self::after) wants back what this returns.
    pub(super) fn before(&mut self, event: &Event) -> Before {
        let moment = match event {
            &Event::StartEpoch { session, epoch, .. } => Moment::Start(session, epoch),
            Event::Report { session, epoch, batch, losses } => {
                Moment::Report(*session, *epoch, *batch, losses.clone())
            }
            Event::Read(completion) => Moment::Read(completion.op.sample.0),
            &Event::Released { session, .. } => Moment::Released(session),
            Event::Filled(filled) => {
                for record in filled.rows.iter().filter_map(|row| row.record.as_ref()) {
                    *self.held.get_mut(&Arc::as_ptr(record)).unwrap() -= 1;
                }
                Moment::Other
            }
            _ => Moment::Other,
        };
        let mut pinned = self.residents();
        pinned.retain(|sample| self.rows(&self.records[sample]) > 0);
        (moment, pinned)
    }

    /// It happened to `core`, and these actions follow; or, if there is no `before`, more of them.
    pub(super) fn after(&mut self, before: Option<Before>, core: &Core, actions: &[Action]) {
        for action in actions {
            let Action::Fill(order) = action else { continue };
            for (row, record) in order.rows.iter().filter_map(|row| Some((row, row.record.as_ref()?))) {
                self.records.insert(row.sample.0, Arc::downgrade(record));
                *self.held.entry(Arc::as_ptr(record)).or_default() += 1;
            }
        }
        self.held.retain(|_, rows| *rows > 0);
        let stats = core.stats(0);
        let (counts, used_bytes) = (stats.total.counts.counts, stats.cache_used_bytes);
        let residents = self.residents();
        if let Some((moment, pinned)) = before {
            self.steps.push(Step { moment, pinned, counts, used_bytes, residents });
        } else if let Some(last) = self.steps.last_mut() {
            (last.counts, last.used_bytes, last.residents) = (counts, used_bytes, residents);
        }
    }

    /// Samples whose record has a holder beside rows.
    fn residents(&self) -> BTreeSet<u32> {
        let is_resident = |record: &Weak<Record>| record.strong_count() > self.rows(record);
        self.records.iter().filter(|(_, record)| is_resident(record)).map(|(&sample, _)| sample).collect()
    }

    fn rows(&self, record: &Weak<Record>) -> usize {
        self.held.get(&record.as_ptr()).copied().unwrap_or(0)
    }
}
