//! What cache and plan know of each other: the cache gets each sample's next use, as far as it
//! looks ahead; the plan gets the residents that may come earlier.

use shade_formats::SampleId;

use crate::brain::Core;
use crate::ids::JobId;
use crate::memory::Memory;
use crate::plan::Slot;
use crate::training::Foreseen;

impl<M: Memory> Core<M> {
    /// The access of `slot` begins: tells the cache when the job uses its sample next, and which
    /// uses have come into sight.
    pub(super) fn foresee(&mut self, job: JobId, sample: SampleId, slot: Slot) {
        // Padding is no planned use.
        if !self.records.policy().looks_ahead || slot.padding {
            return;
        }
        self.training.foresee(job, slot.place, |found, importance| match found {
            Foreseen::InSight(sample, at) => self.records.see(job, sample, at, importance),
            Foreseen::Next(next) => self.records.use_at(job, sample, next, importance),
        });
    }

    /// Whether the cache goes by the next uses of the job.
    fn looks_ahead(&self, job: JobId) -> bool {
        // With all samples resident nothing is evicted, and next uses do not matter.
        !self.records.has_all() && self.may_look_ahead(job)
    }

    /// Whether the cache would go by them if it had no room for all samples.
    pub(super) fn may_look_ahead(&self, job: JobId) -> bool {
        self.records.policy().looks_ahead && self.training.jobs().admits_job(job)
    }

    /// Begins to look ahead over the job's current plan, unless that is done.
    pub(super) fn look_ahead(&mut self, job: JobId, now_ns: u64) {
        if !self.looks_ahead(job) {
            return;
        }
        let batch_ns = |session, has_ended| self.batches.batch_ns(session, now_ns, has_ended);
        let Some(clock) = self.training.look_ahead(job, now_ns, batch_ns) else { return };
        self.records.begin_plan(job, clock);
        if !self.look_on() {
            self.records.rank_on(self.training.jobs().importance());
        }
    }

    /// Goes on to tell the cache of the uses that are in sight. Returns whether there are more.
    pub(super) fn look_on(&mut self) -> bool {
        self.training.look_on(|job, sample, at, importance| self.records.see(job, sample, at, importance))
    }

    /// Predicts when the uses of several jobs are due, now and then.
    pub(super) fn predict(&mut self, now_ns: u64) {
        if !self.records.policy().looks_ahead {
            return;
        }
        let clock_of = |job| self.records.clock(job);
        let batch_ns = |session, has_ended| self.batches.batch_ns(session, now_ns, has_ended);
        if let Some(clocks) = self.training.predict(now_ns, clock_of, batch_ns) {
            self.records.set_clocks(clocks.into_iter());
            self.records.rank_anew(self.training.jobs().importance());
        }
    }

    /// Before the first rank opens global batch `number`: its absent samples change places with
    /// residents of later batches, if the policy exchanges samples. Only where it trains: the
    /// batches of a job that leaves the cache to others follow from its document, also while it is
    /// alone and has the cache.
    pub(super) fn exchange(&mut self, job: JobId, number: u32) {
        let policy = self.records.policy();
        let trains = self.training.job(job).is_some_and(|job| job.spec().admit);
        if !policy.exchanges || !trains {
            return;
        }
        let records = &self.records;
        let may_stand_in = |sample| records.may_stand_in(sample);
        if records.brings_stand_ins() {
            self.training.find_stand_ins(job, records.cached().filter(|&sample| may_stand_in(sample)));
        }
        let wants_stand_in = |sample| records.wants_stand_in(sample);
        self.training.exchange(job, number, wants_stand_in, may_stand_in, policy.counts_exchanges);
    }
}
