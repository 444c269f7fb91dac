//! The core's CPU time: `Core::step` and `Core::advance` per record, all hits, all misses, and with
//! several jobs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shade_core::{Attach, Completion, FillOrder, Filled, staging_bytes};
use shade_formats::Geometry;
use shade_formats::index::Index;
use shade_job::{Decode, Policy, Tables};
use shade_reads::blocks::{Arena, FreeList};

use crate::cpu_time::cpu_time;
use crate::figure::{Figure, Unit};
use crate::job::{core_config, job};
use crate::result::Result;
use crate::synthetic;

type Core = shade_core::Core<FreeList>;
type Event = shade_core::Event<FreeList>;
type Action = shade_core::Action<FreeList>;

const SAMPLES: u32 = 200_000;
const RECORD_BYTES: u32 = 500;
const BLOCK_BYTES: u32 = 512;
const DEPTH: u32 = 32;
const RUNS: u32 = 5;
/// Jobs that share a core.
const JOBS: u32 = 8;
/// Budget: an access's time with that many jobs, as a multiple of one job's.
const TIMES_MAX: f64 = 2.0;

/// Nanoseconds per record with everything resident, with nothing cached, and with one and several
/// jobs where a fifth is cached by the plans.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let index = Arc::new(synthetic::index(SAMPLES, RECORD_BYTES)?);
    let dataset_bytes = u64::from(SAMPLES) * u64::from(BLOCK_BYTES);
    let mut resident = Driver::new(&index, dataset_bytes, Policy::App, 1)?;
    let mut uncached = Driver::new(&index, 0, Policy::App, 1)?;
    let [hits, misses] = epochs_of([&mut resident, &mut uncached])?;
    resident.check(|counts| counts.hits, RUNS)?;
    uncached.check(|counts| counts.misses, RUNS + 1)?;
    // Apart from those, so that eight jobs do not push their memory out of the CPU's caches.
    let mut alone = Driver::new(&index, dataset_bytes / 5, Policy::Lookahead, 1)?;
    let mut shared = Driver::new(&index, dataset_bytes / 5, Policy::Lookahead, JOBS)?;
    let [times_alone, times_shared] = epochs_of([&mut alone, &mut shared])?;
    shared.check(|counts| counts.accesses, RUNS + 1)?;
    let alone = Figure::new("core, an access of one job", Unit::NsPerRecord, times_alone);
    let shared = Figure::new(format!("core, an access of {JOBS} jobs"), Unit::NsPerRecord, times_shared);
    let shared = shared.within(TIMES_MAX, &alone);
    Ok(vec![
        Figure::new("core, a hit", Unit::NsPerRecord, hits).with_budget(300.0),
        Figure::new("core, a miss", Unit::NsPerRecord, misses).with_budget(2000.0),
        alone,
        shared,
    ])
}

/// Nanoseconds per record in each epoch but the first, which fills the cache. The two run by turns,
/// so that a busy machine slows both.
fn epochs_of(mut drivers: [&mut Driver; 2]) -> Result<[Vec<f64>; 2]> {
    let mut times: [Vec<f64>; 2] = Default::default();
    for epoch in 0..=RUNS {
        for (driver, times) in drivers.iter_mut().zip(&mut times) {
            let time = driver.epoch(epoch)?;
            if epoch > 0 {
                times.push(time);
            }
        }
    }
    Ok(times)
}

/// A core and the time spent in it. Everything outside answers at once.
struct Driver {
    core: Core,
    jobs: u32,
    started: Instant,
    spent: Duration,
}

impl Driver {
    fn new(index: &Arc<Index>, cache_bytes: u64, policy: Policy, jobs: u32) -> Result<Self> {
        let arena_bytes =
            cache_bytes + staging_bytes(&**index, BLOCK_BYTES, DEPTH, shade_core::STAGING_BYTES_MAX);
        let (_, free) = Arena::create(arena_bytes, BLOCK_BYTES)?;
        let config = core_config(cache_bytes, policy, DEPTH, BLOCK_BYTES);
        let core = Core::new(Arc::clone(index), free, config);
        let mut driver = Self { core, jobs, started: Instant::now(), spent: Duration::ZERO };
        for session in 0..jobs {
            let mut spec = job(Decode::Raw);
            spec.plan.seed = session.into();
            let attach = Attach {
                session,
                job: session.to_string(),
                rank: 0,
                spec,
                tables: Tables::default(),
                survives: false,
            };
            driver.feed(vec![Event::Attach(Box::new(attach)), Event::Ready(session)])?;
        }
        Ok(driver)
    }

    /// Runs one epoch of all jobs with their plans. Returns nanoseconds per record.
    fn epoch(&mut self, epoch: u32) -> Result<f64> {
        self.spent = Duration::ZERO;
        let (generation, first_batch, has_taken) = (epoch + 1, 0, epoch > 0);
        let start = |session| Event::StartEpoch { session, generation, epoch, first_batch, has_taken };
        self.feed((0..self.jobs).map(start).collect())?;
        Ok(self.spent.as_nanos() as f64 / f64::from(SAMPLES * self.jobs))
    }

    /// Feeds events until no more follow.
    fn feed(&mut self, mut events: Vec<Event>) -> Result<()> {
        let mut actions = Vec::new();
        while !events.is_empty() {
            let now_ns = u64::try_from(self.started.elapsed().as_nanos())?;
            let started = cpu_time();
            for event in events.drain(..) {
                self.core.step(now_ns, event, &mut actions);
            }
            while self.core.advance(now_ns, &mut actions) {}
            self.spent += cpu_time().saturating_sub(started);
            events.extend(actions.drain(..).filter_map(|action| self.outcome(action)));
        }
        Ok(())
    }

    /// The answers of a perfect store, worker and trainer.
    fn outcome(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Aside(order) => {
                // Another thread of the daemon does it; it is a part of an epoch's work.
                let started = cpu_time();
                let result = order.carry_out();
                self.spent += cpu_time().saturating_sub(started);
                Some(Event::Aside(result))
            }
            Action::Read(op) => {
                Some(Event::Read(Completion { op, outcome: Ok(()), checked: true, latency: Duration::ZERO }))
            }
            Action::Fill(order) => {
                let FillOrder { ticket, output, rows, .. } = order;
                let geometry = vec![Geometry::default(); output.views().len() * rows.len()];
                Some(Event::Filled(Filled { ticket, rows, faults: Vec::new(), geometry, fill_ns: 0 }))
            }
            Action::Finalize(order) => Some(Event::Finalized(order.ticket)),
            Action::Publish(session, descriptor) => {
                Some(Event::Released { session, seqs: vec![descriptor.seq] })
            }
            _ => None,
        }
    }

    /// Checks that all records of `epochs` epochs were hits, or all misses, as measured.
    fn check(&self, count: impl Fn(&shade_core::Counts) -> u64, epochs: u32) -> Result<()> {
        let got = count(&self.core.stats(0).total.counts.counts);
        let expected = u64::from(SAMPLES) * u64::from(epochs);
        if got == expected { Ok(()) } else { Err(format!("void: {got} records, expected {expected}").into()) }
    }
}
