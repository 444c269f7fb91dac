//! An epoch is ordered, drawn and begun: what that means for the cache, the rings and the figures.
//!
//! Between two epochs nothing waits: the first batches of the next one are filled before it begins.
//! Where a plan depends on nothing that this epoch still brings, it is drawn while the last batches
//! of this epoch are trained on. Its first batches are opened behind the epoch's end, as far as
//! rings have room, and *held*: nobody gets them, and no figure has them. They become batches like
//! any other once all ranks have asked for the epoch. If another one begins they are dropped, and
//! have cost their reads.

use shade_formats::trace::Line;

use crate::action::Action;
use crate::aside::AsideOrder;
use crate::batches::Dropped;
use crate::brain::Core;
use crate::ids::JobId;
use crate::memory::Memory;
use crate::trace::{NS_PER_US, trace};
use crate::training::{Base, Drawn, EpochBegun, Ordered};

impl<M: Memory> Core<M> {
    /// Orders a job's next plan once every rank of it here wants the same new epoch. Returns
    /// whether one was ordered: then there may be more. An order has copies of what the plan is
    /// drawn from, so it is one at a time.
    pub(super) fn order_due_plan(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) -> bool {
        let due = self.training.due_plan(now_ns);
        if let Some(job) = due {
            let (looks_ahead, exchanges) = (self.may_look_ahead(job), self.records.policy().exchanges);
            let is_resident = |sample| self.records.has(sample);
            let Ordered { draw, warning } =
                self.training.order_plan(job, is_resident, looks_ahead, exchanges);
            actions.extend(warning.map(Action::Warn));
            if let Some(order) = draw {
                actions.push(Action::Aside(AsideOrder::Draw(order)));
                self.drop_ahead(job);
            }
        }
        self.begin_drawn(now_ns, actions);
        due.is_some()
    }

    /// Orders the next plan of each job that is near its epoch's end, where that plan is known.
    pub(super) fn order_next_plans(&mut self, actions: &mut Vec<Action<M>>) {
        // Others than those that are resident now would be exchanged.
        if self.records.policy().exchanges {
            return;
        }
        for job in self.training.jobs_near_their_ends() {
            let order = self.training.order_next_plan(job, self.may_look_ahead(job));
            actions.extend(order.map(|order| Action::Aside(AsideOrder::Draw(order))));
        }
    }

    /// A plan is drawn. If its epoch is due, that begins.
    pub(super) fn drawn(&mut self, now_ns: u64, drawn: Box<Drawn>, actions: &mut Vec<Action<M>>) {
        if self.training.drawn(drawn) {
            self.begin_drawn(now_ns, actions);
        }
    }

    /// Begins the epochs whose plans are drawn.
    fn begin_drawn(&mut self, now_ns: u64, actions: &mut Vec<Action<M>>) {
        for drawn in self.training.take_drawn() {
            self.begin_epoch(now_ns, drawn, actions);
        }
    }

    fn begin_epoch(&mut self, now_ns: u64, drawn: Drawn, actions: &mut Vec<Action<M>>) {
        let warning = self.warning_of_absorbing(&drawn);
        let is_absorbing = warning.is_some();
        actions.extend(warning.map(Action::Warn));
        let begun = self.training.begin_epoch(drawn, self.records.policy().exchanges);
        let Some(EpochBegun { job, base }) = begun else { return };
        actions.extend(base.map(|Base { epoch, sessions, bytes }| Action::Base(sessions, epoch, bytes)));
        self.figures.begin_epoch(job);
        self.figures.count(job, |counts| counts.absorbing_epochs += u64::from(is_absorbing));
        self.begin_held(now_ns, job, actions);
        if self.training.jobs().have_changed() {
            self.weigh_jobs();
        }
        self.begin_cache_epoch(job);
    }

    /// Warns if nothing would be read in the epoch of this plan, and samples are left out of it
    /// because the others are cached.
    fn warning_of_absorbing(&self, drawn: &Drawn) -> Option<String> {
        let records = &self.records;
        let job = self.training.job(drawn.job()).filter(|job| job.draws_by_residents())?;
        let reads_nothing = records.len() < self.index.len() as usize
            && drawn.plan().ids.iter().all(|&sample| records.has(sample));
        if !reads_nothing {
            return None;
        }
        let cached = job.resident_samples(records.cached(), records.len());
        job.warning_of_absorbing(drawn.plan().epoch, cached)
    }

    /// Tells the cache of a job's current plan.
    pub(super) fn begin_cache_epoch(&mut self, job: JobId) {
        if self.training.begin_cache_epoch(job) {
            self.records.begin_epoch(self.training.jobs(), || self.training.high_importance());
        }
    }

    /// The plan of the job's next epoch will be another one, or none: what was prepared is dropped.
    pub(super) fn drop_ahead(&mut self, job: JobId) {
        if self.training.drop_ahead(job) {
            let ranks = self.training.sessions_of(job);
            ranks.into_iter().for_each(|rank| self.abandon(rank, Dropped::Held));
        }
    }

    /// The job's epoch has begun: the batches that were held for it become batches like any other.
    fn begin_held(&mut self, now_ns: u64, job: JobId, actions: &mut Vec<Action<M>>) {
        for session in self.training.sessions_of(job) {
            let Some(generation) = self.training.generation_of_current(session) else { continue };
            for (id, held) in self.batches.begin_held(session, generation) {
                self.training.begin_held(session, id);
                self.figures.count(job, |counts| counts.add(&held.accesses));
                if let Some((observer, mut open)) = held.traced {
                    // Lines come in the order of their times.
                    open.at_us = now_ns / NS_PER_US;
                    actions.push(trace(observer, Line::Open(open)));
                }
            }
        }
    }
}
