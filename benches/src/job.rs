//! The job of every bench: one rank that takes each sample once an epoch, in batches of 256.

use shade_formats::control::{JobSpec, OnError, Output, PlanSpec, Tail};

/// The job, with this output.
pub(crate) fn job(output: Output) -> JobSpec {
    JobSpec {
        plan: PlanSpec::default(),
        batch_size: 256,
        world_size: 1,
        ranks_here: 0,
        // Each epoch delivers the whole dataset, which is divided by the time.
        tail: Tail::Even,
        output,
        admit: true,
        on_error: OnError::Raise,
        bad_max: 0.01,
        ring_bytes: 0,
    }
}
