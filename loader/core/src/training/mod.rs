//! Training: one room of the core. It has the jobs, their ranks, what each job has learned from its
//! losses, the plan of its epoch, and what is saved of all that.
//!
//! It never sees a record or a row, and of a ring only its size. Others ask it for the batches of a
//! plan ([`Job::planned`]), and tell it what came of them ([`Training::deliver`],
//! [`Training::report`]). What it needs to know of the cache comes as an argument. What takes long
//! it hands out as an order ([`AsideOrder`](crate::AsideOrder)).
//!
//! | part | what it decides |
//! |---|---|
//! | `jobs`, `job`, `epoch` | all jobs and their common importance; one job; its current epoch |
//! | `attach`, `rank` | ranks that come, ask for epochs and go |
//! | `due_plans`, `ahead`, `drawing` | when a plan is drawn, and from what; the one after it |
//! | `group`, `pace`, `due_times` | jobs that wait for each other; when uses of several are due |
//! | `foresight` | the uses in sight, and samples that change places |
//! | `planned`, `outcome` | the rows of a batch, and what came of it |
//! | `report`, `reports`, `scored_at`, `validation` | losses and validation scores |
//! | `states`, `snapshot`, `loading`, `stop`, `resume` | the saved state, and where it goes on |
//! | `base`, `gathering`, `succession` | what a successor of this daemon goes on from |
//! | `seats`, `scores`, `lists`, `pool`, `pooling` | what nodes tell each other |
//! | `tables`, `use_numbers` | weights and subsets; which use of its sample a position is |

mod ahead;
mod attach;
mod base;
mod drawing;
mod due_plans;
mod due_times;
mod epoch;
mod foresight;
mod gathering;
mod group;
mod job;
mod jobs;
mod lists;
mod loading;
mod outcome;
mod pace;
mod planned;
mod pool;
mod pooling;
mod rank;
mod report;
mod reports;
mod resume;
mod scored_at;
mod scores;
mod seats;
mod snapshot;
mod states;
mod stop;
mod succession;
mod tables;
#[cfg(test)]
mod tests;
mod use_numbers;
mod validation;

pub(crate) use attach::{Attached, Begun};
pub(crate) use base::Base;
pub use base::BaseVersion;
pub use drawing::{DrawOrder, Drawn};
pub(crate) use due_plans::{EpochBegun, Ordered};
pub(crate) use foresight::Foreseen;
pub(crate) use job::Job;
pub(crate) use jobs::Jobs;
pub use loading::{LoadOrder, LoadedState};
pub(crate) use planned::Planned;
pub(crate) use rank::{EpochRequest, Rank};
pub(crate) use report::{Losses, Reported};
pub use snapshot::{SaveOrder, SavedState};
pub(crate) use states::{LoadAnswer, Restored};
pub(crate) use succession::{Gathered, Places, Redo, Redos, Succeeded};

use std::sync::Arc;

use shade_formats::SampleId;

use crate::ids::{JobId, SessionId};
use crate::samples::Samples;

/// All jobs and their ranks.
pub(super) struct Training {
    index: Arc<dyn Samples>,
    jobs: Jobs,
    /// Not in the order in which they came: the last one takes the place of one that leaves.
    ranks: Vec<Rank>,
    /// See [`CoreConfig::lookahead`](crate::CoreConfig::lookahead).
    lookahead: f64,
    /// See [`CoreConfig::opens_ahead`](crate::CoreConfig::opens_ahead).
    opens_ahead: bool,
    /// When the due times of several jobs are predicted anew at the earliest.
    predict_at_ns: u64,
    /// Number of the order that was given last; 0 before the first.
    last_order: u64,
    /// Strata of the last job that trains; 1 before the first.
    strata_of_last: u32,
}

impl Training {
    /// No job, over the samples of `index`. `lookahead` and `opens_ahead` are `CoreConfig`'s.
    pub(super) fn new(index: Arc<dyn Samples>, lookahead: f64, opens_ahead: bool) -> Self {
        Self {
            index,
            jobs: Jobs::default(),
            ranks: Vec::new(),
            lookahead,
            opens_ahead,
            predict_at_ns: 0,
            last_order: 0,
            strata_of_last: 1,
        }
    }

    /// The jobs.
    pub(super) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The job of this number.
    pub(super) fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(job)
    }

    /// The job of `session`.
    pub(super) fn job_of(&self, session: SessionId) -> Option<&Job> {
        self.jobs.get(self.rank(session)?.job)
    }

    /// The ranks of all jobs.
    pub(super) fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// The rank at this place of [`ranks`](Self::ranks), whose clock may go on.
    pub(super) fn rank_at_mut(&mut self, at: usize) -> &mut Rank {
        &mut self.ranks[at]
    }

    /// The rank of `session`.
    pub(super) fn rank(&self, session: SessionId) -> Option<&Rank> {
        self.ranks.iter().find(|rank| rank.id == session)
    }

    fn rank_mut(&mut self, session: SessionId) -> Option<&mut Rank> {
        self.ranks.iter_mut().find(|rank| rank.id == session)
    }

    fn job_of_mut(&mut self, session: SessionId) -> Option<&mut Job> {
        let job = self.rank(session)?.job;
        self.jobs.get_mut(job)
    }

    /// The ranks of a job.
    pub(super) fn ranks_of(&self, job: JobId) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().filter(move |rank| rank.job == job)
    }

    /// The sessions of a job's ranks.
    pub(super) fn sessions_of(&self, job: JobId) -> Vec<SessionId> {
        self.ranks_of(job).map(|rank| rank.id).collect()
    }

    /// The next batches of the job's ranks that asked for `epoch`.
    fn next_batches(&self, job: JobId, epoch: u32) -> impl Iterator<Item = u32> {
        let requests = self.ranks_of(job).filter_map(|rank| rank.request);
        requests.filter(move |request| request.epoch == epoch).map(|request| request.next_batch)
    }

    /// Share of the current epoch's batches that each rank of the job has opened.
    pub(super) fn opened_share(&self, job: &Job) -> f64 {
        let opened = job.epoch().and_then(|epoch| self.next_batches(job.id, epoch).min());
        f64::from(opened.unwrap_or(0)) / f64::from(job.batches_per_epoch().max(1))
    }

    /// From which place on the job's accesses are not looked up yet.
    pub(super) fn begins(&self, job: &Job) -> Option<u32> {
        let opened = self.next_batches(job.id, job.epoch()?).max()?;
        Some(job.start(opened))
    }

    /// A job has begun or ended, or its table is another: their common table is made anew, in
    /// slices ([`go_on_weighing`](Self::go_on_weighing)), and due times are predicted at once.
    pub(super) fn weigh_jobs(&mut self) {
        self.jobs.aggregate_anew();
        self.predict_at_ns = 0;
    }

    /// Makes a slice of the common table of importance. Returns whether there is more to make.
    pub(super) fn go_on_weighing(&mut self) -> bool {
        self.jobs.go_on_aggregating()
    }

    /// `job` has used a resident.
    pub(super) fn record_hit(&mut self, job: JobId, sample: SampleId) {
        self.jobs.record_hit(job, sample);
    }

    /// Names a new order of the job.
    fn next_order(&mut self, job: JobId) -> drawing::OrderId {
        self.last_order += 1;
        drawing::OrderId { job, number: self.last_order }
    }

    /// Asserts that what the parts count for themselves adds up.
    pub(super) fn check_books(&self) {
        let mut attached = 0;
        for job in self.jobs.iter() {
            let (ranks, here) = (self.ranks_of(job.id).count(), job.spec.local_ranks() as usize);
            assert!((1..=here).contains(&ranks), "job {:?} has {ranks} of {here} ranks", job.name);
            attached += ranks;
            let (scored, samples) = (job.scored_at.len(), job.importance.len());
            assert_eq!(scored, samples, "job {:?}: reports and scores of other samples", job.name);
            let (of, next) = (job.epoch(), job.ahead.as_ref().map(|ahead| ahead.epoch));
            assert!(
                next.is_none_or(|next| of.is_some_and(|of| of < next)),
                "job {:?} prepares {next:?}",
                job.name
            );
        }
        assert_eq!(attached, self.ranks.len(), "each rank is of a job");
    }
}
