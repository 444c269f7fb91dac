//! Batches are opened where a ring has room: laid out, and every sample looked up.

use std::hint::black_box;

use shade_formats::ring::{BatchLayout, FLAG_PADDING};
use shade_formats::trace::{Line, Served};
use shade_formats::{Draw, Size};

use crate::action::Action;
use crate::bad_share::Faults;
use crate::batch::{Batch, BatchRow, Progress, RowRef, RowState};
use crate::cache::Cache;
use crate::importance::Importance;
use crate::job::Job;
use crate::machine::Core;
use crate::memory::Memory;
use crate::plan::{Plan, Slot};
use crate::rows::row_bytes;
use crate::samples::Samples;
use crate::sizes::{layout_of, room_bytes};
use crate::trace::{open_line, trace};

/// Batches opened before their rows are handed to workers: at an epoch's start a whole ring is to be opened, and nobody has
/// anything else to do.
const OPENED_AT_ONCE: usize = 2;

impl<M: Memory> Core<M> {
    /// Opens some batches, the one furthest behind in the plan first, so that ranks stay abreast. `true`: there may be more to
    /// be opened.
    pub(super) fn open_batches(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        let Some(epoch) = self.job.as_ref().and_then(Job::epoch) else { return false };
        let batches = self.job.as_ref().map_or(0, |job| job.slices.batches_per_epoch());
        let mut full: Vec<bool> = self.sessions.iter().map(|session| session.is_full).collect();
        let mut opened = 0;
        while opened < OPENED_AT_ONCE {
            let next = self
                .sessions
                .iter()
                .enumerate()
                .filter(|(at, s)| s.ready && full.get(*at) == Some(&false) && s.has_descriptor())
                .filter_map(|(at, s)| {
                    let wanted = s.wanted.filter(|w| w.epoch == epoch && w.next_batch < batches)?;
                    Some((wanted.next_batch, s.rank, at))
                })
                .min();
            let Some((_, _, at)) = next else {
                self.end_epochs(epoch, batches, actions);
                return false;
            };
            if self.open_batch(at, now_ns, actions) {
                opened += 1;
            } else if let Some(full) = full.get_mut(at) {
                *full = true;
            }
        }
        true
    }

    /// Opens the next batch of the session at `at`; `false` when its ring has no room.
    fn open_batch(&mut self, at: usize, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        self.look_ahead();
        if let Some(wanted) = self.sessions.get(at).and_then(|session| session.wanted) {
            self.exchange(wanted.next_batch);
        }
        let (Some(job), Some(session)) = (&mut self.job, self.sessions.get_mut(at)) else { return false };
        let (Some(plan), Some(wanted)) = (&job.plan, &mut session.wanted) else { return false };
        let slots = job.slices.batch(wanted.next_batch, session.rank, plan);
        let mut rows = plan_rows(job, &slots, plan, &*self.index);
        let data_len = rows.last().map_or(0, |row| row.offset + row.room);
        let capacity = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let layout = BatchLayout::new(layout_of(job.spec.output), capacity.max(1), data_len);
        // With samples that come more than once a batch can be larger than any that the ring was made for.
        let layout = match layout.and_then(|layout| session.payload.check_fits(layout.total).map(|()| layout))
        {
            Ok(layout) => layout,
            Err(error) => {
                actions.push(Action::Close(session.id, error.to_string()));
                return false;
            }
        };
        let Some(offset) = session.payload.reserve(layout.total) else {
            session.blocked(now_ns);
            return false;
        };
        rows.iter_mut().for_each(|row| row.offset += offset + layout.data);
        look_at_all::<M>(&self.cache, &job.importance, &rows);
        let seq = session.next_seq;
        session.next_seq += 1;
        let accesses: Vec<_> = rows.iter().map(|row| row.sample).zip(slots).collect();
        let batch = Batch {
            seq,
            generation: wanted.generation,
            epoch: wanted.epoch,
            number: wanted.next_batch,
            offset,
            layout,
            pending: rows.len(),
            ready: Vec::with_capacity(rows.len()),
            rows,
            progress: Progress::Filling,
            failure: None,
            faults: Faults::default(),
            abandoned: false,
            hits: 0,
            misses: 0,
            skipped: 0,
            opened_ns: now_ns,
            read_ns: now_ns,
            slot_wait_ns: session.blocked_since_ns.take().map_or(0, |since| now_ns.saturating_sub(since)),
            fill_ns: 0,
        };
        wanted.next_batch += 1;
        let mut open = self.observed.then(|| open_line(session.rank, &batch));
        session.open.push_back(batch);
        let session = session.id;
        for (position, (sample, slot)) in (0..capacity).zip(accesses) {
            self.foresee(sample, slot);
            let row = RowRef { session, seq, position };
            let mut served = self.access(sample, row);
            if self.was_exchanged(slot.position) && served == Served::Hit {
                served = Served::Exchanged;
            }
            self.count_access(row, served);
            if let Some(open) = &mut open {
                open.ids.push(sample.0);
                open.served.push(served.letter());
            }
        }
        actions.extend(open.map(|open| trace(Line::Open(open))));
        true
    }

    /// Counts one access, in its batch, its epoch and its job.
    pub(super) fn count_access(&mut self, row: RowRef, served: Served) {
        if let Some(batch) = self.session_mut(row.session).and_then(|s| s.batch_mut(row.seq)) {
            match served {
                Served::Hit | Served::Joined | Served::Exchanged => batch.hits += 1,
                // Each was read for this row.
                Served::Miss | Served::Prefetched => batch.misses += 1,
            }
        }
        if let Some(job) = &mut self.job {
            job.count(|counts| {
                counts.accesses += 1;
                match served {
                    Served::Hit => counts.hits += 1,
                    Served::Joined => {
                        counts.hits += 1;
                        counts.joined += 1;
                    }
                    Served::Prefetched => counts.prefetched += 1,
                    Served::Exchanged => counts.exchanged += 1,
                    Served::Miss => counts.misses += 1,
                }
            });
        }
    }
}

/// Looks at what accesses to `rows` will look at. One after the other, each would wait for its own cache lines; looked at
/// together they come at the same time, which saves a quarter of a hit (`shade-benches core`).
fn look_at_all<M: Memory>(cache: &Cache<M::Record>, importance: &Importance, rows: &[BatchRow]) {
    let residents = || rows.iter().filter_map(|row| cache.get(row.sample));
    let uses = rows.iter().map(|row| importance.uses(row.sample)).max();
    let holders = residents().map(M::holders).max();
    let checked = residents().filter(|record| M::is_checked(record)).count();
    // To be looked at is all that they are for.
    black_box((uses, holders, checked));
}

/// The rows of a planned batch, each with its place in the batch's data.
fn plan_rows(job: &Job, slots: &[Slot], plan: &Plan, index: &dyn Samples) -> Vec<BatchRow> {
    let spec = &job.spec;
    let entry_of = |slot: &Slot| {
        let &sample = plan.ids.get(slot.position as usize)?;
        Some((sample, index.entry(sample)?))
    };
    // Looked at together, for the same reason as in `look_at_all`.
    let known = slots.iter().filter(|slot| entry_of(slot).is_some()).count();
    let mut offset = 0;
    let mut rows = Vec::with_capacity(known);
    for slot in slots {
        let Some((sample, entry)) = entry_of(slot) else { continue };
        let len = row_bytes(spec.output, &entry).unwrap_or_else(|_| room_bytes(spec, index, sample));
        let room = len.max(job.rooms.of(entry.label));
        let position = slot.position as usize;
        let weight = if slot.padding { 0.0 } else { plan.weights.get(position).copied().unwrap_or(1.0) };
        let flags = if slot.padding { FLAG_PADDING } else { 0 };
        let (state, size) = (RowState::Waiting, Size::default());
        let draw = Draw { seed: spec.plan.seed, epoch: plan.epoch, position: slot.position };
        rows.push(BatchRow {
            sample,
            entry,
            weight,
            flags,
            offset,
            len,
            room,
            size,
            draw,
            state,
            substitutes: 0,
            reread: false,
        });
        offset += room;
    }
    rows
}
