//! Plays a whole workload once: a training, epoch by epoch, or a trace.

use shade_formats::control::PlanSpec;

use super::error::SimulateError;
use super::losses::{LossSource, Losses};
use super::replay::{Outcome, Replay, Setup};
use super::stall::Service;
use super::trace::{Repeats, Trace};
use super::watch::Watch;
use super::workload::{Accesses, Workload};
use crate::cache::Policy;
use crate::importance::rank;
use crate::plan::{Plan, draw_plan, rep_now};

/// Plays the `nth` training of the workload (from 0; a trace has only the first) with `policy` at `capacity`.
///
/// # Errors
/// Recorded losses cannot be read, or Ctrl-C.
pub(super) fn play(
    workload: &Workload,
    policy: Policy,
    capacity: u64,
    nth: u32,
    watch: &Watch,
) -> Result<Outcome, SimulateError> {
    let nth = u64::from(nth);
    let service = workload.service.map(|mut service| {
        service.store.seed = service.store.seed.wrapping_add(nth);
        service
    });
    let replay = start(workload, policy, capacity, service);
    match &workload.accesses {
        Accesses::Training { plan, epochs, losses, .. } => {
            let spec = PlanSpec { seed: plan.seed.wrapping_add(nth), ..*plan };
            train(replay, workload, &spec, *epochs, losses, watch)
        }
        Accesses::Trace(trace) => follow(replay, trace, workload.batch_size, watch),
    }
}

fn start(workload: &Workload, policy: Policy, capacity: u64, service: Option<Service>) -> Replay<'_> {
    let &Workload { samples, ref sizes, lookahead, skip_epochs, .. } = workload;
    Replay::new(Setup { samples, sizes, policy, lookahead, capacity, skip_epochs, service })
}

/// Draws each epoch's plan from what the one before has left, as the daemon does.
fn train(
    mut replay: Replay<'_>,
    workload: &Workload,
    spec: &PlanSpec,
    epochs: u32,
    source: &LossSource,
    watch: &Watch,
) -> Result<Outcome, SimulateError> {
    let batch_size = workload.batch_size;
    let mut losses = Losses::new(source, spec.seed, workload.samples);
    let (mut reported, mut values) = (Vec::new(), Vec::new());
    // No validation score is reported here.
    let rep = rep_now(spec, &[]);
    for epoch in 0..epochs {
        watch.go_on(0)?;
        let is_resident = |id| replay.is_resident(id);
        // The weights are dropped: nobody trains.
        let Plan { ids, summary, .. } =
            draw_plan(spec, epoch, batch_size, replay.importance(), is_resident, rep);
        losses.begin_epoch(epoch)?;
        let repeats = Repeats { distinct: summary.distinct, most: summary.repeat_max };
        replay.begin_epoch(epoch, repeats, true);
        replay.look_ahead(&ids);
        for batch in ids.chunks(batch_size as usize) {
            watch.go_on(batch.len())?;
            replay.batch(batch, &ids);
            losses.report(batch, &mut reported, &mut values);
            replay.credit(&rank(&reported, &values));
        }
    }
    Ok(replay.outcome())
}

fn follow(
    mut replay: Replay<'_>,
    trace: &Trace,
    batch_size: u32,
    watch: &Watch,
) -> Result<Outcome, SimulateError> {
    replay.look_ahead(trace.accesses());
    for (epoch, (ids, repeats)) in (0..).zip(trace.epochs()) {
        replay.begin_epoch(epoch, repeats, false);
        for batch in ids.chunks(batch_size as usize) {
            watch.go_on(batch.len())?;
            replay.batch(batch, trace.accesses());
        }
    }
    Ok(replay.outcome())
}
