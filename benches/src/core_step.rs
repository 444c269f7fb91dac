//! The core's CPU time: `Core::step` and `Core::advance` per record, all hits and all misses.

use std::sync::Arc;
use std::time::Duration;

use shade_core::{Attach, Completion, CoreConfig, FillOrder, Filled, staging_bytes};
use shade_formats::control::{Output, Policy};
use shade_formats::index::Index;
use shade_reads::blocks::{Arena, FreeList};

use crate::cpu_time::cpu_time;
use crate::figure::{Figure, Unit};
use crate::job::job;
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

/// Nanoseconds per record with everything resident, and with nothing cached.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let index = Arc::new(synthetic::index(SAMPLES, RECORD_BYTES)?);
    let dataset_bytes = u64::from(SAMPLES) * u64::from(BLOCK_BYTES);
    let mut resident = Driver::new(&index, dataset_bytes)?;
    let mut uncached = Driver::new(&index, 0)?;
    let (mut hits, mut misses) = (Vec::new(), Vec::new());
    for epoch in 0..=RUNS {
        let (hit, miss) = (resident.epoch(epoch), uncached.epoch(epoch));
        // The first epoch fills the cache.
        if epoch > 0 {
            hits.push(hit);
            misses.push(miss);
        }
    }
    resident.check(|counts| counts.hits, RUNS)?;
    uncached.check(|counts| counts.misses, RUNS + 1)?;
    Ok(vec![
        Figure::new("core, a hit", Unit::NsPerRecord, hits).with_budget(300.0),
        Figure::new("core, a miss", Unit::NsPerRecord, misses).with_budget(2000.0),
    ])
}

/// A core and the time spent in it. Everything outside answers at once.
struct Driver {
    core: Core,
    spent: Duration,
}

impl Driver {
    fn new(index: &Arc<Index>, cache_bytes: u64) -> Result<Self> {
        let arena_bytes = cache_bytes + staging_bytes(index, BLOCK_BYTES, DEPTH);
        let (_, free) = Arena::create(arena_bytes, BLOCK_BYTES)?;
        let config = CoreConfig {
            cache_bytes,
            policy: Policy::App,
            lookahead: 1.0,
            reads_max: DEPTH,
            gap_bytes_max: 0,
            window_bytes: 0,
            package_bytes: 0,
            prefetches_max: 0,
            hedge: false,
            block_bytes: BLOCK_BYTES,
            orders_max: usize::MAX,
            decoded_bytes: 0,
        };
        let core = Core::new(Arc::clone(index), free, config);
        let mut driver = Self { core, spent: Duration::ZERO };
        let spec = job(Output::Raw);
        driver.feed(vec![
            Event::Attach(Box::new(Attach { session: 0, job: String::new(), rank: 0, spec, weights: None })),
            Event::Ready(0),
        ]);
        Ok(driver)
    }

    /// Runs one epoch with its plan. Returns nanoseconds per record.
    fn epoch(&mut self, epoch: u32) -> f64 {
        self.spent = Duration::ZERO;
        self.feed(vec![Event::StartEpoch { session: 0, generation: epoch + 1, epoch, first_batch: 0 }]);
        self.spent.as_nanos() as f64 / f64::from(SAMPLES)
    }

    /// Feeds events until no more follow.
    fn feed(&mut self, mut events: Vec<Event>) {
        let mut actions = Vec::new();
        while !events.is_empty() {
            let started = cpu_time();
            for event in events.drain(..) {
                self.core.step(0, event, &mut actions);
            }
            while self.core.advance(0, &mut actions) {}
            self.spent += cpu_time().saturating_sub(started);
            events.extend(actions.drain(..).filter_map(|action| self.outcome(action)));
        }
    }

    /// The answers of a perfect store, worker and trainer.
    fn outcome(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Read(op) => {
                Some(Event::Read(Completion { op, outcome: Ok(()), checked: true, latency: Duration::ZERO }))
            }
            Action::Fill(order) => {
                let FillOrder { ticket, rows, .. } = order;
                Some(Event::Filled(Filled { ticket, rows, faults: Vec::new(), fill_ns: 0 }))
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
