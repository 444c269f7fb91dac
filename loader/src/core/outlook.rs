//! What the cache is told of the plan: each sample's next use, as far as one looks ahead.

use shade_formats::SampleId;

use super::machine::Core;
use crate::cache::Policy;
use crate::plan::{Outlook, Slot, in_sight};

impl Core {
    /// The access of `slot` begins: tells the cache when its sample is used next, and which uses have come into sight.
    pub(super) fn foresee(&mut self, sample: SampleId, slot: Slot) {
        // A row that only fills up a batch is no planned use.
        if self.config.policy != Policy::Lookahead || slot.padding {
            return;
        }
        let Some(job) = &mut self.job else { return };
        let (Some(plan), Some(outlook)) = (&job.plan, &mut job.outlook) else { return };
        let (cache, importance) = (&mut self.cache, &job.importance);
        let next = outlook.access(&plan.ids, slot.position, |(id, at)| cache.see(id, at, importance));
        cache.use_at(sample, next);
    }

    /// Begins to look ahead over the current plan, unless that is so already: from the first batch that some rank wants.
    pub(super) fn look_ahead(&mut self) {
        if self.config.policy != Policy::Lookahead {
            return;
        }
        let Some(job) = &mut self.job else { return };
        let (Some(plan), None) = (&job.plan, &job.outlook) else { return };
        let wanted = self.sessions.iter().filter_map(|session| session.wanted);
        let first = wanted.filter(|wanted| wanted.epoch == plan.epoch).map(|wanted| wanted.next_batch).min();
        let from = job.slices.start(first.unwrap_or(0));
        let ahead = in_sight(self.config.lookahead, plan.ids.len());
        let mut outlook = Outlook::new(&plan.ids, self.index.len(), from, ahead);
        let (cache, importance) = (&mut self.cache, &job.importance);
        cache.forget_uses(importance);
        outlook.begin(&plan.ids, |(id, at)| cache.see(id, at, importance));
        job.outlook = Some(outlook);
    }
}
