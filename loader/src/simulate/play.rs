//! Plays a whole workload once: a training, epoch by epoch, or a trace.

use shade_formats::SampleId;
use shade_formats::control::{PlanSpec, Policy};

use super::error::SimulateError;
use super::follow;
use super::losses::{LossSource, Losses};
use super::replay::{Outcome, Replay, Setup};
use super::system::{Keeper, System};
use super::trace::{Repeats, Trace};
use super::watch::Watch;
use super::workload::{Accesses, Workload};
use crate::importance::rank;
use crate::plan::{Known, Plan, draw_next_plan, draw_plan, rep_now, spec_now};

/// Plays the `nth` training of the workload (from 0; a trace has only the first) with `system` at `capacity`.
///
/// # Errors
/// Ctrl-C.
pub(super) fn play(
    workload: &Workload,
    system: &System,
    capacity: u64,
    nth: u32,
    watch: &Watch,
) -> Result<Outcome, SimulateError> {
    let nth = u64::from(nth);
    let service = workload.service.map(|mut service| {
        service.store.seed = service.store.seed.wrapping_add(nth);
        service
    });
    let &Workload { samples, ref sizes, lookahead, skip_epochs, batch_size, .. } = workload;
    let setup = |keeper, capacity, service| Setup {
        samples,
        sizes,
        keeper,
        lookahead,
        capacity,
        skip_epochs,
        service,
    };
    let replay = Replay::new(setup(system.keeper, capacity, service));
    match &workload.accesses {
        Accesses::Training { plan, epochs, losses, .. } => {
            let plan = system.plan(plan);
            let spec = PlanSpec { seed: plan.seed.wrapping_add(nth), ..plan };
            let training = Training { spec, epochs: *epochs, losses, samples, batch_size };
            if matches!(system.keeper, Keeper::Min { .. }) {
                // Its plans do not depend on who keeps what: they are drawn first, all of them.
                let mut whole = Whole::default();
                training.play(
                    Replay::new(setup(Keeper::Policy(Policy::Static), 0, None)),
                    watch,
                    |plan| {
                        whole.add(plan);
                    },
                )?;
                whole.play(replay, batch_size, watch)
            } else {
                training.play(replay, watch, |_| {})
            }
        }
        Accesses::Trace(trace) => follow(replay, trace, batch_size, watch),
        Accesses::Recording(recording) => {
            let to_the_end = system.keeper.lookahead(lookahead) == Some(f64::INFINITY);
            follow::follow(replay, recording, to_the_end, watch)
        }
    }
}

/// A training to be played.
struct Training<'a> {
    spec: PlanSpec,
    epochs: u32,
    losses: &'a LossSource,
    samples: u32,
    batch_size: u32,
}

impl Training<'_> {
    /// Draws each epoch's plan from what the one before has left, as the daemon does, and tells `drawn` of it.
    fn play(
        &self,
        mut replay: Replay<'_>,
        watch: &Watch,
        mut drawn: impl FnMut(&Plan),
    ) -> Result<Outcome, SimulateError> {
        let mut losses = Losses::new(self.losses, self.spec.seed, self.samples);
        let mut values = Vec::new();
        // No validation score is reported here.
        let rep = rep_now(&self.spec, []);
        let batch_size = self.batch_size as usize;
        let mut next: Option<Plan> = None;
        // Recorded losses may have none of a whole epoch.
        let mut has_reports = false;
        for epoch in 0..self.epochs {
            watch.go_on(0)?;
            // What is known of the last plan goes before the next is drawn: they are never in memory together.
            replay.end_plan();
            let (batch, importance) = (self.batch_size, replay.importance());
            let is_resident = |id| replay.is_resident(id);
            let spec = spec_now(&self.spec, std::mem::take(&mut has_reports));
            let mut plan =
                next.take().unwrap_or_else(|| draw_plan(&spec, epoch, batch, importance, is_resident, rep));
            next = self
                .spec
                .draw_ahead
                .then(|| draw_next_plan(&spec, &plan, batch, importance, is_resident, rep));
            let next_ids = next.as_ref().map_or(&[][..], |next| &next.ids);
            // 4 bytes a sample that nobody asks for.
            plan.weights = Vec::new();
            drawn(&plan);
            losses.begin_epoch(epoch);
            replay.begin_epoch(epoch, repeats(&plan), true);
            replay.begin_plan(&plan, Known { plan: &plan.ids, next: next_ids });
            for from in (0..plan.ids.len()).step_by(batch_size) {
                let to = plan.ids.len().min(from + batch_size);
                replay.exchange(&mut plan, from, to);
                let batch = plan.ids.get(from..to).unwrap_or_default();
                watch.go_on(batch.len())?;
                replay.batch(batch, Known { plan: &plan.ids, next: next_ids });
                losses.report(batch, &mut values);
                has_reports |= !values.is_empty();
                replay.credit(&rank(batch, &values));
            }
        }
        Ok(replay.outcome())
    }
}

fn repeats(plan: &Plan) -> Repeats {
    Repeats { distinct: plan.summary.distinct, most: plan.summary.repeat_max }
}

/// All accesses of a training, known before it begins.
#[derive(Default)]
struct Whole {
    accesses: Vec<SampleId>,
    /// Of each epoch, with its length.
    epochs: Vec<(usize, Repeats)>,
}

impl Whole {
    fn add(&mut self, plan: &Plan) {
        self.accesses.extend_from_slice(&plan.ids);
        self.epochs.push((plan.ids.len(), repeats(plan)));
    }

    fn play(&self, mut replay: Replay<'_>, batch_size: u32, watch: &Watch) -> Result<Outcome, SimulateError> {
        let known = Known::from(self.accesses.as_slice());
        replay.look_ahead(known);
        let mut rest = self.accesses.as_slice();
        for (epoch, &(len, repeats)) in (0..).zip(&self.epochs) {
            let (ids, later) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            rest = later;
            replay.begin_epoch(epoch, repeats, true);
            for batch in ids.chunks(batch_size as usize) {
                watch.go_on(batch.len())?;
                replay.batch(batch, known);
            }
        }
        Ok(replay.outcome())
    }
}

fn follow(
    mut replay: Replay<'_>,
    trace: &Trace,
    batch_size: u32,
    watch: &Watch,
) -> Result<Outcome, SimulateError> {
    let known = Known::from(trace.accesses());
    replay.look_ahead(known);
    for (epoch, (ids, repeats)) in (0..).zip(trace.epochs()) {
        replay.begin_epoch(epoch, repeats, false);
        for batch in ids.chunks(batch_size as usize) {
            watch.go_on(batch.len())?;
            replay.batch(batch, known);
        }
    }
    Ok(replay.outcome())
}
