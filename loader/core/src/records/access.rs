//! One access: a hit, or a miss that becomes a read. And what the cache keeps of what has come.

use std::hint::black_box;

use shade_formats::SampleId;
use shade_formats::trace::Served;

use super::Records;
use super::reading::Wanted;
use crate::block_size::charged_bytes;
use crate::cache::Admission;
use crate::figures::Figures;
use crate::ids::{JobId, RowId};
use crate::importance::Importance;
use crate::memory::Memory;
use crate::training::Jobs;

impl<M: Memory> Records<M> {
    /// The record of a sample that is in the cache, and how it is served. `admits` says whether it
    /// is used by a job that keeps records there.
    pub(crate) fn hit(
        &mut self,
        sample: SampleId,
        admits: bool,
        importance: &Importance,
    ) -> Option<(M::Record, Served)> {
        let record = if admits { self.cache.hit(sample, importance) } else { self.cache.get(sample) };
        let record = record.cloned()?;
        let was_prefetched = admits && self.prefetched.take(sample).is_some();
        Some((record, if was_prefetched { Served::Prefetched } else { Served::Hit }))
    }

    /// `row` needs the record of a sample that is not in the cache: it waits for a read of its own,
    /// or for one that is under way.
    pub(crate) fn request(&mut self, wanted: Wanted, sample: SampleId, row: RowId) -> Served {
        // A prefetch that is still in flight when its row comes is a miss like any other.
        let source = self.tier.source_of(sample);
        let is_first = self.reading.request(wanted, sample, row, source, &*self.index)
            || (wanted.admits && self.prefetched.join(sample));
        if is_first { Served::Miss } else { Served::Joined }
    }

    /// Touches the memory that accesses to `samples` need. One after the other, each access would
    /// wait for its own cache lines. Touched together they come at the same time, which saves a
    /// quarter of a hit (`shade-benches core`).
    pub(crate) fn touch_all(&self, samples: impl Iterator<Item = SampleId> + Clone) {
        let residents = || samples.clone().filter_map(|sample| self.cache.get(sample));
        let holders = residents().map(M::holders).max();
        let checked = residents().filter(|record| M::is_checked(record)).count();
        // The values are of no use.
        black_box((holders, checked));
    }

    /// A worker found `record` damaged: it leaves the cache. Returns whether it was there.
    pub(crate) fn drop_damaged(&mut self, sample: SampleId, record: &M::Record) -> bool {
        if !self.cache.get(sample).is_some_and(|held| M::is_same(held, record)) {
            return false;
        }
        self.cache.remove(sample).into_iter().for_each(|held| self.release(held));
        true
    }

    /// The pending record of `sample` was read before with a wrong checksum.
    pub(crate) fn recheck(&mut self, sample: SampleId) {
        self.reading.recheck(sample);
    }

    /// A record of `stored_len` bytes has come, and its rows have it. It is offered to the cache if
    /// a job that wants it keeps records there. Returns whether it may stand in for other samples
    /// from now on.
    pub(crate) fn keep(
        &mut self,
        Wanted { job: wanted_by, admits }: Wanted,
        sample: SampleId,
        stored_len: u32,
        record: M::Record,
        jobs: &Jobs,
        figures: &mut Figures,
    ) -> bool {
        assert!(!self.has(sample), "sample {sample} was read, and is cached");
        // Without any job nobody says what is worth keeping.
        if admits && !jobs.is_empty() {
            self.offer(wanted_by, sample, stored_len, record, jobs.importance(), figures);
        } else {
            self.release(record);
        }
        let is_kept = self.has(sample);
        if !self.prefetched.completed(sample, wanted_by, is_kept) {
            return false;
        }
        if is_kept {
            self.cache.await_use(sample);
        } else {
            figures.count(wanted_by, |counts| counts.prefetches_unused += 1);
        }
        is_kept && self.packages.is_some() && self.cache.may_stand_in(sample)
    }

    /// Offers a record that was read for `job` to the cache. The blocks of evicted records are free
    /// again.
    fn offer(
        &mut self,
        job: JobId,
        sample: SampleId,
        stored_len: u32,
        record: M::Record,
        importance: &Importance,
        figures: &mut Figures,
    ) {
        let bytes = charged_bytes(stored_len, self.block_bytes);
        let mut evicted = Vec::new();
        let admission =
            self.cache.offer(sample, bytes, record.clone(), importance, is_pinned::<M>, &mut evicted);
        match admission {
            Admission::Admitted => {
                self.tier.remove(sample);
                let evictions = evicted.len() as u64;
                figures.count(job, |counts| {
                    counts.admitted += 1;
                    counts.evicted += evictions;
                });
            }
            Admission::Bypassed(same) => {
                drop(same);
                figures.count(job, |counts| counts.bypassed += 1);
                self.offer_to_tier(job, sample, &record, importance);
            }
        }
        self.let_go(job, evicted, importance, figures);
        self.release(record);
    }

    /// Takes the blocks of records back that were evicted for `job`, unless the tier wants the
    /// records first.
    pub(super) fn let_go(
        &mut self,
        job: JobId,
        evicted: Vec<(SampleId, M::Record)>,
        importance: &Importance,
        figures: &mut Figures,
    ) {
        for (id, victim) in evicted {
            self.offer_to_tier(job, id, &victim, importance);
            if let Some(job) = self.prefetched.take(id) {
                figures.count(job, |counts| counts.prefetches_unused += 1);
            }
            self.release(victim);
        }
    }
}

/// Whether a worker still reads the record: its blocks are shared.
pub(super) fn is_pinned<M: Memory>(record: &M::Record) -> bool {
    M::holders(record) > 1
}
