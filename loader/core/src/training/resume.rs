//! Where a saved state goes on: a position of its plan, whatever the number of ranks.
//!
//! All positions before it are delivered. A job with the saved batch size and world size goes on
//! with the saved batch. Any other divides the rest of the plan anew, from that position on; the
//! plan itself depends on neither.

use super::job::Job;
use super::stop::Next;
use crate::action::Resumed;
use crate::plan::Origin;

impl Next {
    /// Before this batch of the job.
    pub(super) fn of(job: &Job, epoch: u32, batch: u32) -> Self {
        let (batch_size, world_size) = (job.spec.batch_size, job.spec.world_size);
        if job.epoch() != Some(epoch) {
            let origin = Origin::default();
            return Self { epoch, batch: 0, position: 0, origin, batch_size, world_size };
        }
        let slices = job.current.slices;
        let origin = slices.origin();
        let batch = batch.min(slices.batches_per_epoch()).max(origin.batch);
        Self { epoch, batch, position: slices.start(batch), origin, batch_size, world_size }
    }
}

impl Job {
    /// Goes on from there, after [`begin`](Job::begin) with the plan that it [`fits`](Next::fits).
    pub(super) fn resume(&mut self, next: Next) -> Resumed {
        let Next { epoch, batch, position, origin, batch_size, world_size } = next;
        if self.epoch() != Some(epoch) {
            return Resumed { epoch, first_batch: 0, batches: self.slices_of(epoch).batches_per_epoch() };
        }
        let slices = &mut self.current.slices;
        let as_saved = slices.from_origin(origin);
        let is_as_saved = (batch_size, world_size) == (self.spec.batch_size, self.spec.world_size)
            && (origin.batch..=as_saved.batches_per_epoch()).contains(&batch)
            && as_saved.start(batch) == position;
        let first_batch = if is_as_saved {
            *slices = as_saved;
            batch
        } else {
            let origin = slices.origin_at(position);
            *slices = slices.from_origin(origin);
            self.scored_at.end_count();
            origin.batch
        };
        Resumed { epoch, first_batch, batches: self.batches_per_epoch() }
    }
}
