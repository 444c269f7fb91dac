//! A bad record: named by shard, offset and original path, then raised, skipped or replaced as the job wishes.

use shade_formats::SampleId;
use shade_formats::control::OnError;
use shade_formats::index::Entry;
use shade_formats::ring::FLAG_SUBSTITUTED;

use crate::action::Action;
use crate::batch::{BatchRow, RowRef, RowState};
use crate::machine::Core;
use crate::memory::Memory;
use crate::rows::row_bytes;
use crate::sizes::same_class;

/// Samples tried in place of one bad record before it is raised after all.
const SUBSTITUTES_MAX: u32 = 16;

impl<M: Memory> Core<M> {
    /// What went wrong, with everything a user needs to find the record.
    pub(super) fn name_fault(&self, sample: SampleId, fault: &dyn std::fmt::Display) -> String {
        let path = self.index.path(sample).map_or_else(|| "?".into(), String::from_utf8_lossy);
        let Some(entry) = self.index.entry(sample) else {
            return format!("sample {sample} ({path}): {fault}");
        };
        let shard = self.index.shard(entry.shard).map_or("?", |shard| shard.name);
        format!("sample {sample} ({path}) in shard {shard} at byte {}: {fault}", entry.offset)
    }

    /// A row's record cannot be had: does what `on_error` says. What is skipped or substituted counts when its batch is
    /// delivered.
    pub(super) fn row_fault(&mut self, row: RowRef, text: &str, actions: &mut Vec<Action<M>>) {
        let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) else { return };
        if batch.abandoned {
            return batch.finish(row.position, RowState::Skipped);
        }
        let Some(job) = &mut self.job else { return };
        job.count(|counts| counts.faults += 1);
        let on_error = job.spec.on_error;
        let substitute = if on_error == OnError::Substitute { self.substitute(row) } else { None };
        let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) else { return };
        match (on_error, substitute) {
            (OnError::Skip, _) => {
                batch.finish(row.position, RowState::Skipped);
                let is_sample = batch.rows.get(row.position as usize).is_some_and(BatchRow::is_sample);
                batch.skipped += u32::from(is_sample);
                batch.faults.push(text);
                actions.push(Action::BadRecord(format!("skipped {text}")));
            }
            (OnError::Substitute, Some((sample, entry, len))) => {
                let Some(target) = batch.rows.get_mut(row.position as usize) else { return };
                let first = target.flags & FLAG_SUBSTITUTED == 0;
                target.flags |= FLAG_SUBSTITUTED;
                (target.sample, target.entry) = (sample, entry);
                target.len = len;
                target.substitutes += 1;
                target.reread = false;
                target.state = RowState::Waiting;
                if first {
                    batch.faults.push(text);
                    actions.push(Action::BadRecord(format!("substituted sample {sample} for {text}")));
                }
                let served = self.access(sample, row);
                self.count_access(row, served);
            }
            (OnError::Raise | OnError::Substitute, _) => {
                batch.finish(row.position, RowState::Skipped);
                batch.failure.get_or_insert_with(|| text.to_owned());
            }
        }
    }

    /// A row's record cannot be had, which is not the record's fault: an error whatever `on_error` says. Leaving it out
    /// would leave out all that lies there.
    pub(super) fn row_error(&mut self, row: RowRef, text: &str) {
        let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) else { return };
        batch.finish(row.position, RowState::Skipped);
        if batch.abandoned {
            return;
        }
        batch.failure.get_or_insert_with(|| text.to_owned());
        if let Some(job) = &mut self.job {
            job.count(|counts| counts.faults += 1);
        }
    }

    /// A worker found that `record` is not what was packed: it leaves the cache. The first time, `row` waits for it to be
    /// read again, as what went wrong may have been the way and not the place; returns whether it does.
    pub(super) fn read_again(&mut self, row: RowRef, sample: SampleId, record: &M::Record) -> bool {
        if self.cache.get(sample).is_some_and(|held| M::is_same(held, record))
            && let Some(held) = self.cache.remove(sample)
        {
            self.release(held);
            if let Some(job) = &mut self.job {
                job.count(|counts| counts.evicted += 1);
            }
        }
        let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) else {
            return false;
        };
        let abandoned = batch.abandoned;
        let Some(target) = batch.rows.get_mut(row.position as usize) else { return false };
        if abandoned || target.reread {
            return false;
        }
        target.reread = true;
        target.state = RowState::Waiting;
        self.access(sample, row);
        self.reading.doubt(sample);
        true
    }

    /// The next sample after the row's own, by id and round the end, that has the planned sample's label and fits into
    /// the row's place, with the bytes it takes there. Deterministic, so that a rerun delivers the same.
    fn substitute(&mut self, row: RowRef) -> Option<(SampleId, Entry, u64)> {
        let output = self.job.as_ref()?.spec.output;
        let target =
            self.session_mut(row.session)?.batch_mut(row.seq)?.rows.get(row.position as usize)?.clone();
        if target.substitutes >= SUBSTITUTES_MAX {
            return None;
        }
        same_class(&*self.index, target.sample).find_map(|(candidate, entry)| {
            let len = row_bytes(output, &entry).ok()?;
            (len <= target.room).then_some((candidate, entry, len))
        })
    }
}
