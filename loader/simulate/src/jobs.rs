//! Several trainings at the same time, over one cache or over caches of their own.
//!
//! Each has a trainer with its own speed and its own losses. Without a store reads take no time:
//! then only compute does, which is what makes one job faster than another.

use std::time::Duration;

use serde::Serialize;
use shade_core::driver::Driver;
use shade_core::{Counts, RING_BATCHES, SessionId};
use shade_job::{PlanSpec, group_digest};

use crate::cli::Simulate;
use crate::error::SimulateError;
use crate::interval::{half_width_95, mean};
use crate::losses::Losses;
use crate::play::Setup;
use crate::store::{NoMemory, VirtualStore};
use crate::system::System;
use crate::trainer::Trainer;
use crate::watch::Watch;
use crate::workload::{Accesses, COMPUTE_DEFAULT, Workload};
use crate::world::{Answers, VirtualWorld};

/// The jobs that train at the same time.
#[derive(Clone, Debug)]
pub(super) struct Jobs {
    /// One for each job.
    speeds: Vec<f64>,
    correlation: f64,
    /// Whether they are a group with any system.
    is_group: bool,
    /// Compute time of a sample at speed 1.
    compute: Duration,
}

/// The result of several jobs with one policy at one capacity: means over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct JobsRow {
    /// The policy's name, or the preset's.
    pub(super) policy: String,
    /// The capacity of all caches together, as given.
    pub(super) cache: String,
    /// The same in bytes; in samples where sizes are not known.
    pub(super) capacity: u64,
    /// Whether the jobs share one cache. Else each has its own part.
    pub(super) is_shared: bool,
    /// Records read by all jobs in an epoch of each, over the samples of the dataset.
    pub(super) datasets_per_epoch: f64,
    /// Half of its 95 % interval; with more than one seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) datasets_per_epoch_ci95: Option<f64>,
    /// Hits over accesses, of all jobs.
    pub(super) hit_ratio: f64,
    /// Rows decoded over rows delivered, of all jobs: the others are copied.
    pub(super) decoded_share: f64,
    /// Stall over compute time of each job; `None` without a store.
    pub(super) stall_shares: Option<Vec<f64>>,
    /// Jain's index of the stalls: 1 if all are equal.
    pub(super) jain: Option<f64>,
}

/// What one job had, from the first epoch on that counts.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    counts: Counts,
    stall: Duration,
    compute: Duration,
}

impl Jobs {
    /// The jobs that `args` ask for.
    ///
    /// # Errors
    /// The speeds are not one for each job.
    pub(super) fn of(args: &Simulate) -> Result<Option<Self>, SimulateError> {
        let Some(count) = args.jobs else { return Ok(None) };
        let speeds = if args.speeds.is_empty() { vec![1.0; count as usize] } else { args.speeds.clone() };
        if speeds.len() != count as usize {
            let what = format!("--speeds: {} of them for {count} jobs: give one for each", speeds.len());
            return Err(SimulateError::Usage(what));
        }
        let compute = args.compute.unwrap_or(COMPUTE_DEFAULT);
        Ok(Some(Self { speeds, correlation: args.correlation, is_group: args.group, compute }))
    }

    /// Number of jobs.
    pub(super) fn len(&self) -> usize {
        self.speeds.len()
    }

    /// Plays all seeds, over one cache and over caches of their own.
    ///
    /// # Errors
    /// The core refuses the workload, or Ctrl-C.
    pub(super) fn rows(
        &self,
        workload: &Workload,
        system: &System,
        cache: &str,
        capacity: u64,
        watch: &Watch,
    ) -> Result<[JobsRow; 2], SimulateError> {
        let row = |is_shared| {
            let play = |nth| self.outcomes(workload, system, capacity, u64::from(nth), is_shared, watch);
            let seeds = (0..workload.seeds()).map(play).collect::<Result<Vec<_>, _>>()?;
            Ok::<_, SimulateError>(self.row(workload, system, cache, capacity, is_shared, &seeds))
        };
        Ok([row(true)?, row(false)?])
    }

    fn row(
        &self,
        workload: &Workload,
        system: &System,
        cache: &str,
        capacity: u64,
        is_shared: bool,
        seeds: &[Vec<Outcome>],
    ) -> JobsRow {
        let epochs = f64::from(workload.epochs() - workload.skip_epochs);
        let sum =
            |jobs: &[Outcome], of: fn(&Counts) -> u64| jobs.iter().map(|job| of(&job.counts)).sum::<u64>();
        let read: fn(&Counts) -> u64 = |counts| counts.reads + counts.coalesced;
        let datasets =
            |jobs: &Vec<Outcome>| sum(jobs, read) as f64 / epochs / f64::from(workload.dataset.samples);
        let datasets: Vec<f64> = seeds.iter().map(datasets).collect();
        let hit_ratio = |jobs: &Vec<Outcome>| {
            sum(jobs, |counts| counts.hits) as f64 / sum(jobs, |counts| counts.accesses).max(1) as f64
        };
        let decoded_share = |jobs: &Vec<Outcome>| {
            1.0 - sum(jobs, |counts| counts.copied) as f64 / sum(jobs, |counts| counts.accesses).max(1) as f64
        };
        let stall_shares: Option<Vec<f64>> = workload.service.map(|_| {
            let of = |at: usize| {
                let share = |job: &Outcome| job.stall.as_secs_f64() / job.compute.as_secs_f64();
                seeds.iter().filter_map(|jobs| jobs.get(at).map(share)).collect::<Vec<_>>()
            };
            (0..self.len()).map(|at| mean(of(at).into_iter())).collect()
        });
        JobsRow {
            policy: system.name.to_owned(),
            cache: cache.to_owned(),
            capacity,
            is_shared,
            datasets_per_epoch: mean(datasets.iter().copied()),
            datasets_per_epoch_ci95: half_width_95(&datasets),
            hit_ratio: mean(seeds.iter().map(hit_ratio)),
            decoded_share: mean(seeds.iter().map(decoded_share)),
            jain: stall_shares.as_deref().map(jain),
            stall_shares,
        }
    }

    /// The group's digest in the training with this seed; 0 without a group.
    fn group_of(&self, system: &System, nth: u64) -> u64 {
        if self.is_group || system.is_group { group_digest("simulated").wrapping_add(nth).max(1) } else { 0 }
    }

    /// Plays one seed.
    fn outcomes(
        &self,
        workload: &Workload,
        system: &System,
        capacity: u64,
        nth: u64,
        is_shared: bool,
        watch: &Watch,
    ) -> Result<Vec<Outcome>, SimulateError> {
        let all: Vec<usize> = (0..self.len()).collect();
        if is_shared {
            return self.together(workload, system, capacity, nth, &all, watch);
        }
        let part = capacity / self.len() as u64;
        let alone = |job: usize| self.together(workload, system, part, nth, &[job], watch);
        all.into_iter().map(alone).collect::<Result<Vec<_>, _>>().map(|jobs| jobs.concat())
    }

    /// Plays these jobs over one cache.
    fn together(
        &self,
        workload: &Workload,
        system: &System,
        capacity: u64,
        nth: u64,
        jobs: &[usize],
        watch: &Watch,
    ) -> Result<Vec<Outcome>, SimulateError> {
        let Accesses::Training { plan, weights, epochs, .. } = &workload.accesses else {
            return Err(SimulateError::Usage("--jobs: a trace is of one job".to_owned()));
        };
        let setup = Setup {
            dataset: &workload.dataset,
            keeper: system.keeper,
            capacity,
            lookahead: system.keeper.lookahead(workload.lookahead),
            plan: system.plan(plan),
            weights: weights.as_ref(),
            batch_size: workload.batch_size,
            ring: RING_BATCHES,
            ahead: RING_BATCHES,
            recalls: false,
            service: workload.service,
            skip_epochs: workload.skip_epochs,
            coalesces: workload.coalesces,
            package_bytes: workload.package_bytes,
        };
        let answers = match workload.service {
            Some(service) => {
                let mut store = service.store;
                store.seed = store.seed.wrapping_add(nth);
                Answers::Store(VirtualStore::new(store))
            }
            None => Answers::AtOnce,
        };
        let mut trainers = jobs.iter().map(|&job| {
            let speed = self.speeds.get(job).copied().unwrap_or(1.0);
            let mut trainer = Trainer::new(self.compute.div_f64(speed), 0);
            let seed = plan.seed.wrapping_add(nth);
            trainer.losses = Losses::of_job(seed, job as u64, workload.dataset.samples, self.correlation);
            trainer
        });
        let first = trainers.next().unwrap_or_else(|| Trainer::new(self.compute, 0));
        let mut world = VirtualWorld::new(answers, first);
        world.others = trainers.collect();
        let mut driver = Driver::new(setup.core(), world);
        let seed_of = |job: usize| plan.seed.wrapping_add(nth).wrapping_add(1000 * job as u64);
        for (session, &job) in (0..).zip(jobs) {
            let plan = PlanSpec { seed: seed_of(job), group: self.group_of(system, nth), ..setup.plan };
            let spec = Setup { plan, ..setup }.job()?;
            driver.attach(session, &job.to_string(), 0, &spec, weights.clone());
        }
        let mut playing = Playing { driver, epochs: *epochs, skip_epochs: workload.skip_epochs };
        playing.run(jobs.len(), watch)
    }
}

/// Jobs under way.
struct Playing<'a> {
    driver: Driver<NoMemory, VirtualWorld<'a>>,
    epochs: u32,
    skip_epochs: u32,
}

impl Playing<'_> {
    fn run(&mut self, jobs: usize, watch: &Watch) -> Result<Vec<Outcome>, SimulateError> {
        let mut epochs = vec![0; jobs];
        let mut before = vec![Outcome::default(); jobs];
        let mut after = before.clone();
        for session in 0..u32::try_from(jobs).unwrap_or(u32::MAX) {
            self.begin(session, 0);
        }
        let mut told = 0;
        while self.driver.tick() {
            for (session, epoch) in (0..).zip(&mut epochs) {
                if !self.driver.world.trainer_of(session).has_ended() {
                    continue;
                }
                *epoch += 1;
                let here = if *epoch == self.skip_epochs { &mut before } else { &mut after };
                if let Some(outcome) = here.get_mut(session as usize) {
                    *outcome = self.outcome(session);
                }
                if *epoch < self.epochs {
                    self.begin(session, *epoch);
                }
            }
            let world = &self.driver.world;
            let taken = world.trainer.taken + world.others.iter().map(|trainer| trainer.taken).sum::<u64>();
            watch.go_on(usize::try_from(taken - told).unwrap_or(usize::MAX))?;
            told = taken;
        }
        let world = &mut self.driver.world;
        let mut trainers = std::iter::once(&mut world.trainer).chain(&mut world.others);
        if let Some(text) = trainers.find_map(|trainer| trainer.refused.take()) {
            return Err(SimulateError::Usage(text));
        }
        Ok(after.into_iter().zip(before).map(|(after, before)| after.since(&before)).collect())
    }

    fn begin(&mut self, session: SessionId, epoch: u32) {
        self.driver.world.trainer_of(session).losses.begin_epoch(epoch);
        self.driver.start(session, epoch, 0);
    }

    /// What a job has had until now.
    fn outcome(&mut self, session: SessionId) -> Outcome {
        let counts = self.driver.core.stats(session).total.counts.counts;
        let trainer = self.driver.world.trainer_of(session);
        Outcome { counts, stall: trainer.stall, compute: trainer.computed() }
    }
}

impl Outcome {
    fn since(&self, before: &Self) -> Self {
        let counts = self.counts.since(&before.counts);
        Self { counts, stall: self.stall - before.stall, compute: self.compute - before.compute }
    }
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything. Without any stall
/// nobody is worse off.
fn jain(stalls: &[f64]) -> f64 {
    let (sum, squares) = stalls.iter().fold((0.0, 0.0), |(sum, squares), s| (sum + s, squares + s * s));
    if squares > 0.0 { sum * sum / (stalls.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_1_for_equal_stalls_and_1_over_n_for_one_victim() {
        assert_eq!([jain(&[0.2; 4]), jain(&[0.0, 0.0]), jain(&[0.4, 0.0, 0.0, 0.0])], [1.0, 1.0, 0.25]);
    }
}
