//! Reads of a recorded training. They are answered when as many batches are open as in the
//! recording.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use shade_core::{Event, ReadOp};
use shade_formats::SampleId;
use shade_formats::trace::{Open, Served};

use crate::store::{NoMemory, answered};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Recalled<'a> {
    /// By batch of the plan: see [`Script::back`](crate::script::Script).
    back: &'a [u32],
    /// Number of batches before the plan's.
    first: u32,
    /// Number of the plan's batches opened so far.
    opened: u32,
    /// By sample: the batch that its read is for.
    reader: HashMap<SampleId, u32>,
    /// By batch: its reads.
    waiting: BTreeMap<u32, Vec<ReadOp<()>>>,
}

impl<'a> Recalled<'a> {
    /// Another plan begins, at batch `first` of all.
    pub(crate) fn begin(&mut self, back: &'a [u32], first: usize) {
        (self.back, self.opened) = (back, 0);
        self.first = u32::try_from(first).unwrap_or(u32::MAX);
    }

    /// The core has opened a batch.
    pub(crate) fn opened(&mut self, open: &Open) {
        self.opened = open.batch.saturating_add(1);
        let misses = open.ids.iter().zip(open.served.bytes());
        let misses = misses.filter(|(_, letter)| Served::from_letter(*letter) == Some(Served::Miss));
        self.reader.extend(misses.map(|(&id, _)| (SampleId(id), open.batch)));
    }

    /// A read is sent, of one record or of neighbours.
    pub(crate) fn send(&mut self, ops: Vec<ReadOp<()>>) {
        for op in ops {
            let batch = self.reader.remove(&op.sample).unwrap_or(self.opened);
            self.waiting.entry(batch).or_default().push(op);
        }
    }

    /// The answers to the reads of the first batch that is due. If none is, and nothing else goes
    /// on, to those of the first batch of all.
    pub(crate) fn answer(&mut self, is_idle: bool) -> Vec<Event<NoMemory>> {
        let is_due = |batch: u32| {
            self.back.get(batch as usize).is_none_or(|back| *back <= self.first.saturating_add(self.opened))
        };
        let due = self.waiting.keys().copied().find(|&batch| is_due(batch));
        let due = due.or_else(|| self.waiting.keys().next().copied().filter(|_| is_idle));
        let ops = due.and_then(|batch| self.waiting.remove(&batch)).unwrap_or_default();
        ops.into_iter().map(|op| Event::Read(answered(op, Duration::ZERO))).collect()
    }
}
