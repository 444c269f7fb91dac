//! What the cache is told of the plan, each sample's next use as far as one looks ahead; and what the plan is told of the
//! cache, which residents may come earlier.

use shade_formats::SampleId;

use crate::machine::Core;
use crate::memory::Memory;
use crate::plan::{Lookahead, Slot, in_sight};

impl<M: Memory> Core<M> {
    /// The access of `slot` begins: tells the cache when its sample is used next, and which uses have come into sight.
    pub(super) fn foresee(&mut self, sample: SampleId, slot: Slot) {
        // A row that only fills up a batch is no planned use.
        if !self.cache.properties().looks_ahead || slot.padding {
            return;
        }
        let Some(job) = &mut self.job else { return };
        let Some(mut outlook) = job.outlook.take() else { return };
        let (cache, importance) = (&mut self.cache, &job.importance);
        let next = outlook.access(job.known(), slot.position, |(id, at)| cache.see(id, at, importance));
        cache.use_at(sample, next);
        job.outlook = Some(outlook);
    }

    /// Whether every sample is resident: nobody will leave, so that it does not matter who is used when.
    pub(super) fn has_all(&self) -> bool {
        self.cache.len() == self.index.len() as usize
    }

    /// Begins to look ahead over the current plan, unless that is so already: from the first batch that some rank wants.
    pub(super) fn look_ahead(&mut self) {
        if !self.cache.properties().looks_ahead || self.has_all() {
            return;
        }
        let Some(job) = &mut self.job else { return };
        let (Some(plan), None) = (&job.plan, &job.outlook) else { return };
        let wanted = self.sessions.iter().filter_map(|session| session.wanted);
        let first = wanted.filter(|wanted| wanted.epoch == plan.epoch).map(|wanted| wanted.next_batch).min();
        let from = job.slices.start(first.unwrap_or(0));
        let ahead = in_sight(self.config.lookahead, plan.ids.len());
        let mut outlook = Lookahead::new(job.known(), self.index.len(), from, ahead);
        let (cache, importance) = (&mut self.cache, &job.importance);
        cache.forget_uses(importance);
        outlook.begin(job.known(), |(id, at)| cache.see(id, at, importance));
        job.outlook = Some(outlook);
        self.prefetch.rewind();
    }

    /// Before the first rank opens global batch `number`: samples that would have to be read change places with residents of
    /// later batches, where the policy has it so. Those batches were opened by nobody.
    pub(super) fn exchange(&mut self, number: u32) {
        let Some(job) = &mut self.job else { return };
        if number < job.settled || job.scripted == job.epoch() || !self.cache.exchanges() {
            return;
        }
        job.settled = number.saturating_add(1);
        let (from, to) = (job.slices.start(number), job.slices.start(job.settled));
        let Some(plan) = &mut job.plan else { return };
        let (cache, reading) = (&self.cache, &self.reading);
        let is_absent = |id| cache.wants_stand_in(id) && !reading.is_wanted(id);
        let exchanged = plan.exchange(from as usize, to as usize, is_absent, |id| cache.may_stand_in(id));
        if self.cache.properties().counts_exchanges {
            job.exchanged.extend(exchanged);
        }
    }

    /// Whether the sample at `position` came there in exchange for another, which is told once.
    pub(super) fn was_exchanged(&mut self, position: u32) -> bool {
        self.job.as_mut().is_some_and(|job| !job.exchanged.is_empty() && job.exchanged.remove(&position))
    }
}
