//! Seats of a job: the ranks tell them, so that strata stay where they are cached.
#![warn(clippy::indexing_slicing)]

use shade_formats::SampleId;
use shade_job::{PlanSpec, Seats, SpecError, held_to_bytes};

use super::Training;
use super::job::{Job, ToldSeats};
use super::rank::Rank;
use crate::ids::SessionId;
use crate::plan::{Strata, StrataError, mixed};

impl Training {
    /// A rank tells the seats of its job's plans. All ranks tell the same, before the first epoch.
    /// `None` if the session is not there.
    pub(crate) fn take_seats(&mut self, session: SessionId, bytes: &[u8]) -> Option<Result<(), String>> {
        let (rank, id) = self.rank(session).map(|rank| (rank.rank, rank.job))?;
        let has_begun = self.ranks_of(id).any(|rank| rank.request.is_some());
        let taken = self.jobs.get_mut(id)?.tell_seats(rank, bytes, has_begun);
        if taken.is_ok() {
            self.rank_mut(session).into_iter().for_each(|rank| rank.seated = true);
        }
        Some(taken)
    }

    /// Why a rank may not begin an epoch: another one has told seats, and it has not.
    pub(super) fn why_not_seated(&self, rank: &Rank, job: &Job) -> Option<String> {
        let told = job.told.as_ref().filter(|_| !rank.seated)?;
        Some(format!("rank {} tells no seats, and rank {} has: {ALIKE}", rank.rank, told.rank))
    }

    /// How much of each of `strata` strata these samples are, as
    /// [`held_from_bytes`](shade_job::held_from_bytes) reads it; 0 strata are those of the last job
    /// that trains. Returns their number, too.
    ///
    /// # Errors
    /// There are more strata than samples.
    pub(crate) fn held(
        &self,
        strata: u32,
        cached: impl Iterator<Item = SampleId>,
    ) -> Result<(u32, Vec<u8>), StrataError> {
        let strata = if strata == 0 { self.strata_of_last } else { strata };
        let parts = self.index.strata(strata)?;
        let mut counts = vec![0_u32; strata as usize];
        for id in cached {
            counts.get_mut(parts.of(id) as usize).into_iter().for_each(|count| *count += 1);
        }
        Ok((strata, held_to_bytes(&counts, self.index.len())))
    }
}

/// What to do where ranks differ.
const ALIKE: &str = "give all ranks the same arguments and the same exchange";

static IN_ORDER: Seats = Seats::IN_ORDER;

impl Job {
    fn tell_seats(&mut self, rank: u32, bytes: &[u8], has_begun: bool) -> Result<(), String> {
        let (strata, samples) = (self.spec.plan.strata, self.strata.samples());
        let seats =
            Seats::from_bytes(bytes, strata, samples).map_err(|error: SpecError| error.to_string())?;
        match &self.told {
            Some(told) if told.seats == seats => Ok(()),
            Some(told) => Err(format!("rank {rank} tells other seats than rank {}: {ALIKE}", told.rank)),
            None if has_begun || self.plan().is_some() => {
                Err(format!("rank {rank} tells seats after the job's first epoch has begun: {ALIKE}"))
            }
            None => {
                self.told = Some(ToldSeats { rank, seats, drawn: None });
                Ok(())
            }
        }
    }

    /// Goes over to the strata and seats of `epoch`, whose plan is drawn next: those that the ranks
    /// have told for the first plan since then, or those of the current plan, mixed since. A loaded
    /// state has its own until then.
    pub(super) fn choose_strata(&mut self, epoch: u32) {
        if let Some(told) = &mut self.told {
            told.drawn.get_or_insert_with(|| (epoch, told.seats.clone()));
        }
        let (strata, seats, from) = self.next_strata();
        let next = (strata.clone(), self.mixed_seats(strata, seats, from, epoch));
        let of_plan = self.plan().map_or(0, |plan| plan.epoch);
        if next != (self.strata.clone(), self.mixed_seats(&self.strata, &self.seats, of_plan, epoch)) {
            // What was drawn early was drawn for others.
            self.next_plan = None;
        }
        (self.strata, self.seats) = next;
    }

    /// The strata of the next plan, and their seats in an epoch from which they are
    /// [mixed](Self::mixed_seats).
    pub(super) fn next_strata(&self) -> (&Strata, &Seats, u32) {
        let of_plan = self.plan().map_or(0, |plan| plan.epoch);
        let strata = if self.keeps_strata() { &self.strata } else { &self.own_strata };
        match &self.told {
            Some(told) if *strata == self.own_strata => {
                let (from, seats) =
                    told.drawn.as_ref().map_or((0, &told.seats), |(epoch, seats)| (*epoch, seats));
                (strata, seats, from)
            }
            _ if self.keeps_strata() => (strata, &self.seats, of_plan),
            _ => (strata, &IN_ORDER, 0),
        }
    }

    /// The seats of these strata in the epoch `to`, from those in the epoch `from`.
    pub(super) fn mixed_seats(&self, strata: &Strata, seats: &Seats, from: u32, to: u32) -> Seats {
        let plan = PlanSpec { strata: strata.count(), ..self.spec.plan };
        mixed(&plan, strata.samples(), seats, from, to)
    }

    /// The seat that has the sample.
    pub(super) fn seat_of(&self, sample: SampleId) -> u32 {
        self.seats.seat(self.strata.of(sample))
    }
}
