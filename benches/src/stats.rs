//! CPU time of the core's figures, which `stats()` and `shade-load status` ask for while it serves.

use std::sync::Arc;

use shade_core::{Attach, Core, Event};
use shade_job::{Decode, JobSpec, PlanSpec, Policy, Sampler, Tables};
use shade_reads::blocks::{Arena, FreeList};

use crate::cpu_time::timed;
use crate::equal::{BLOCK_BYTES, Equal};
use crate::figure::{Figure, Unit};
use crate::job::{core_config, go_on, job};
use crate::result::Result;

/// Looks in a run: one alone is shorter than a clock's tick.
const LOOKS: u32 = 1000;
const RUNS: usize = 5;
/// Budget: the time with 100 times as many samples, as a multiple.
const TIMES_MAX: f64 = 2.0;

/// Nanoseconds of one look at a training by importance, under way on each of two datasets.
pub(crate) fn run(few: u32, many: u32) -> Result<Vec<Figure>> {
    let of_few = Figure::new(name(few), Unit::Ns, times(few)?);
    let of_many = Figure::new(name(many), Unit::Ns, times(many)?).within(TIMES_MAX, &of_few);
    Ok(vec![of_few, of_many])
}

fn name(samples: u32) -> String {
    format!("core, stats() of {:.1} million samples", f64::from(samples) / 1e6)
}

fn times(samples: u32) -> Result<Vec<f64>> {
    let (_, free) = Arena::create(u64::from(BLOCK_BYTES) * 64, BLOCK_BYTES)?;
    let config = core_config(0, Policy::Lookahead, 1, BLOCK_BYTES);
    let mut core = Core::<FreeList>::new(Arc::new(Equal(samples)), free, config);
    let plan = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let spec = JobSpec { plan, ..job(Decode::Raw) };
    let attach = Attach {
        session: 0,
        job: "stats".to_owned(),
        rank: 0,
        spec,
        tables: Tables::default(),
        survives: false,
    };
    let mut actions = Vec::new();
    core.step(0, Event::Attach(Box::new(attach)), &mut actions);
    core.step(0, Event::Ready(0), &mut actions);
    core.step(
        0,
        Event::StartEpoch { session: 0, generation: 1, epoch: 0, first_batch: 0, has_taken: false },
        &mut actions,
    );
    go_on(&mut core, &mut actions);
    if core.stats(0).epoch.epoch != Some(0) {
        return Err("void: no epoch was drawn".into());
    }
    let look = || std::hint::black_box(core.stats(0));
    let run = |_| {
        let (time, ()) = timed(|| (0..LOOKS).for_each(|_| drop(look())));
        time.as_secs_f64() * 1e9 / f64::from(LOOKS)
    };
    Ok((0..RUNS).map(run).collect())
}
