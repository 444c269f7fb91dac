//! The batches of a plan, for others to open.

use std::ops::Range;
use std::sync::Arc;

use shade_formats::{DrawnRow, SampleId};
use shade_job::Output;

use super::Training;
use super::drawing::DrawnPlan;
use super::job::Job;
use super::use_numbers::UseNumbers;
use crate::ids::{JobId, SessionId};
use crate::plan::{Plan, Slices, Slot};

/// A plan whose batches are opened.
#[derive(Clone, Copy)]
pub(crate) struct Planned<'a> {
    pub(crate) job: &'a Job,
    plan: &'a Plan,
    use_numbers: &'a UseNumbers,
    slices: Slices,
}

impl Planned<'_> {
    /// Its epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.plan.epoch
    }

    /// Batches of each rank.
    pub(crate) fn batches_per_epoch(&self) -> u32 {
        self.slices.batches_per_epoch()
    }

    /// The rows of a rank's batch.
    pub(crate) fn batch(&self, number: u32, rank: u32) -> Vec<Slot> {
        self.slices.batch(number, rank, self.plan)
    }

    /// What the batch holds, of any rank.
    pub(crate) fn output(&self, number: u32) -> &Arc<Output> {
        let Range { start, end } = self.slices.positions(number);
        self.job.output_of(self.plan.ids.get(start as usize..end as usize).unwrap_or_default())
    }

    /// The sample of a row.
    pub(crate) fn sample(&self, slot: &Slot) -> Option<SampleId> {
        self.plan.ids.get(slot.place as usize).copied()
    }

    /// The weight of a row's loss: 0 of padding.
    pub(crate) fn weight(&self, slot: &Slot) -> f32 {
        let of_place = self.plan.weights.get(slot.place as usize).copied().unwrap_or(1.0);
        if slot.padding { 0.0 } else { of_place }
    }

    /// The row's own part of its random numbers.
    pub(crate) fn drawn(&self, sample: SampleId, slot: Slot) -> DrawnRow {
        self.job.drawn_row(sample, slot, self.use_numbers)
    }
}

impl Job {
    /// The plan of its epoch, or the one that is drawn ahead.
    pub(crate) fn planned(&self, is_ahead: bool) -> Option<Planned<'_>> {
        if is_ahead {
            let DrawnPlan { plan, use_numbers, .. } = self.plan_ahead()?;
            return Some(Planned { job: self, plan, use_numbers, slices: self.slices_of_plan(Some(plan)) });
        }
        let (use_numbers, slices) = (&self.current.use_numbers, self.current.slices);
        Some(Planned { job: self, plan: self.plan()?, use_numbers, slices })
    }

    /// Least room of the row of a sample with this label.
    pub(crate) fn room_of(&self, sample: SampleId, label: u32) -> u64 {
        self.rooms.of(sample, label)
    }
}

impl Training {
    /// A batch was opened for the job, after a wait for room in the ring or without.
    pub(crate) fn opened(&mut self, job: JobId, has_waited: bool) {
        self.jobs.get_mut(job).into_iter().for_each(|job| job.pace.opened(has_waited));
    }

    /// The rank is given the next batch of the epoch that it asked for. Returns its generation.
    pub(crate) fn begin_batch(&mut self, session: SessionId) -> u32 {
        let request = self.rank_mut(session).and_then(|rank| rank.request.as_mut());
        let Some(request) = request else { unreachable!("a batch of an epoch that nobody asked for") };
        request.next_batch += 1;
        request.generation
    }
}
