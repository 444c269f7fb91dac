//! Reads of records that no batch wants yet, into the cache, while nothing else is to be read.
//!
//! They follow the plan: the next use that is missing is read first, as soon as there is room for it. Room is what is free
//! and what holds samples with no known use. A sample whose use is known gives way to none that is prefetched, even if it
//! is used later: its hit would become a read, so no read would be saved, only moved.

use std::collections::{HashMap, HashSet};

use shade_formats::SampleId;

use crate::action::Action;
use crate::block_size::charged_bytes;
use crate::machine::Core;
use crate::memory::Memory;

/// Prefetches in flight at most: the reads of batches come first, and must not find the store full.
pub const PREFETCHES_MAX: u32 = 32;

/// What was prefetched and is not used yet.
#[derive(Debug, Default)]
pub(super) struct Prefetch {
    /// The position of the known accesses from which on to look.
    at: u32,
    /// On their way, with the bytes that they will take of the cache.
    coming: HashMap<SampleId, u64>,
    /// In the cache.
    here: HashSet<SampleId>,
}

impl Prefetch {
    /// Other accesses are known from now on.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
    }

    /// The sample, which nobody wants, is to be read, and will take so many bytes of the cache.
    pub(super) fn expect(&mut self, sample: SampleId, bytes: u64) {
        self.coming.insert(sample, bytes);
    }

    /// The sample is used or leaves: whether a prefetch had brought it.
    pub(super) fn take(&mut self, sample: SampleId) -> bool {
        !self.here.is_empty() && self.here.remove(&sample)
    }

    /// A row waits for a read under way: whether it is a prefetch, that came too late.
    pub(super) fn join(&mut self, sample: SampleId) -> bool {
        self.coming.remove(&sample).is_some()
    }

    /// A read is back: whether it was a prefetch that nobody has waited for.
    pub(super) fn came_back(&mut self, sample: SampleId, kept: bool) -> bool {
        let prefetched = self.coming.remove(&sample).is_some();
        if prefetched && kept {
            self.here.insert(sample);
        }
        prefetched
    }
}

impl<M: Memory> Core<M> {
    /// Prefetches while the store has nothing else to do.
    pub(super) fn prefetch(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        if !self.cache.properties().looks_ahead {
            return;
        }
        while self.reading.next(&*self.index).is_none() {
            let Some((sample, bytes)) = self.find_prefetch() else { return };
            self.prefetch.expect(sample, bytes);
            // Not again if it fails: the batch that wants it tries once more, and tells.
            self.prefetch.at = self.prefetch.at.saturating_add(1);
            self.reading.want_ahead(sample, &*self.index);
            if let Some(job) = &mut self.job {
                job.count(|counts| counts.prefetches += 1);
            }
            self.submit_reads(now_ns, actions);
        }
    }

    /// The next sample of the known accesses that is missing, with its bytes, if there is room for it and for its read.
    fn find_prefetch(&mut self) -> Option<(SampleId, u64)> {
        let job = self.job.as_ref()?;
        let sight = job.outlook.as_ref()?.sight();
        let epoch = job.epoch()?;
        let most = self.config.prefetches_max.min(self.reads_submitted_max / 2);
        if self.prefetch.coming.len() >= most as usize {
            return None;
        }
        let wanted = self.sessions.iter().filter_map(|session| session.wanted);
        let opened = wanted.filter(|wanted| wanted.epoch == epoch).map(|wanted| wanted.next_batch).max()?;
        let known = job.known();
        let mut at = self.prefetch.at.max(job.slices.start(opened));
        let missing = loop {
            match known.get(at) {
                Some(sample) if self.cache.get(sample).is_some() || self.reading.is_wanted(sample) => at += 1,
                missing => break missing,
            }
        };
        self.prefetch.at = at;
        // The cache would not keep what it does not know to be used.
        let sample = missing.filter(|_| at < sight)?;
        let bytes = charged_bytes(self.index.entry(sample)?.stored_len, self.config.block_bytes);
        // Half of what is beside the cache stays free for the reads of batches.
        let reserve = self.free.total_bytes().saturating_sub(self.cache.capacity_bytes()) / 2;
        if self.free.free_bytes() < reserve.saturating_add(bytes) {
            return None;
        }
        let coming: u64 = self.prefetch.coming.values().sum();
        let pinned = |held: &M::Record| M::holders(held) > 1;
        let importance = &self.job.as_ref()?.importance;
        self.cache
            .has_unused_room(coming.saturating_add(bytes), importance, pinned)
            .then_some((sample, bytes))
    }
}
