//! The room alone: no plan, no batches, no step. Rows are names, reads end in any order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use shade_formats::SampleId;
use shade_formats::trace::Served;
use shade_job::{JobSpec, Policy, Tables};

use super::{Arrival, Demand, Landed, Records, Wanted};
use crate::action::Action;
use crate::block_size::charged_bytes;
use crate::cache::Cache;
use crate::config::CoreConfig;
use crate::counted::{Counted, Record, Room};
use crate::event::Attach;
use crate::figures::Figures;
use crate::ids::RowId;
use crate::lens::{BLOCK_BYTES, Lens, SAMPLES};
use crate::orders::{Completion, Fault, FaultKind, ReadOp};
use crate::samples::Samples;
use crate::training::Training;

const JOB: u32 = 0;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A row looks this sample up.
    Access(u32),
    /// One of the reads in flight ends, well or not.
    Land(usize, bool),
    /// A worker gives back one of the records that rows have.
    GiveBack(usize),
    /// The cache has another capacity, in blocks.
    Resize(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..SAMPLES).prop_map(Act::Access),
        5 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(at, is_good)| Act::Land(at, is_good)),
        4 => any::<usize>().prop_map(Act::GiveBack),
        1 => (0..60_u64).prop_map(Act::Resize),
    ]
}

/// The room, its store, and its workers.
struct World {
    records: Records<Counted>,
    training: Training,
    figures: Figures,
    in_flight: Vec<ReadOp<Room>>,
    lent: Vec<Arc<Record>>,
    /// Rows that wait, each with its sample.
    waiting: HashMap<u32, SampleId>,
    rows: u32,
}

fn config(policy: Policy, cache_blocks: u64, gap_bytes_max: u32) -> CoreConfig {
    CoreConfig {
        cache_bytes: u64::from(BLOCK_BYTES) * cache_blocks,
        policy,
        lookahead: 1.0,
        reads_max: 8,
        gap_bytes_max,
        window_bytes: 0,
        package_bytes: 0,
        prefetches_max: 0,
        opens_ahead: false,
        block_bytes: BLOCK_BYTES,
        orders_max: 8,
        decoded_bytes: 0,
    }
}

fn records(config: &CoreConfig) -> Records<Counted> {
    // As much again as the largest cache of the test, for rows and reads.
    let memory = Counted::new(u64::from(BLOCK_BYTES) * 160, BLOCK_BYTES);
    let cache = Cache::new(config.policy, config.cache_bytes, SAMPLES);
    Records::new(Arc::new(Lens), memory, cache, config)
}

impl World {
    fn new(policy: Policy, cache_blocks: u64, gap_bytes_max: u32) -> Self {
        let records = records(&config(policy, cache_blocks, gap_bytes_max));
        let (mut training, mut figures) = (Training::new(Arc::new(Lens), 1.0, false), Figures::default());
        let spec = JobSpec { ring_bytes: 1 << 20, ..JobSpec::default() };
        let attach = Attach {
            session: 0,
            job: "job".to_owned(),
            rank: 0,
            spec,
            tables: Tables::default(),
            survives: false,
        };
        let attached = training.attach(0, attach, 0).unwrap_or_else(|refusal| panic!("{}", refusal.text));
        assert_eq!(attached.job, JOB);
        figures.begin_job(JOB, "job");
        let (in_flight, lent, waiting) = (Vec::new(), Vec::new(), HashMap::new());
        Self { records, training, figures, in_flight, lent, waiting, rows: 0 }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Access(sample) => self.access(SampleId(sample)),
            Act::Land(at, is_good) if !self.in_flight.is_empty() => {
                let op = self.in_flight.swap_remove(at % self.in_flight.len());
                self.land(op, is_good);
            }
            Act::GiveBack(at) if !self.lent.is_empty() => {
                let record = self.lent.swap_remove(at % self.lent.len());
                self.records.take_back(Some(record));
            }
            Act::Resize(blocks) => self.records.resize(u64::from(BLOCK_BYTES) * blocks, 0),
            Act::Land(..) | Act::GiveBack(_) => {}
        }
        self.records.evict_surplus(self.training.jobs(), &mut self.figures);
        self.submit();
        self.records.check_books(self.lent.is_empty());
    }

    fn access(&mut self, sample: SampleId) {
        let position = self.rows;
        self.rows += 1;
        if let Some((record, served)) = self.records.hit(sample, true, self.training.jobs().importance()) {
            assert_eq!(served, Served::Hit);
            return self.lent.push(record);
        }
        let row = RowId { session: 0, seq: 0, position };
        let served = self.records.request(Wanted { job: JOB, admits: true }, sample, row);
        let is_first = !self.waiting.values().any(|&other| other == sample);
        assert_eq!(served, if is_first { Served::Miss } else { Served::Joined });
        self.waiting.insert(position, sample);
    }

    fn submit(&mut self) {
        let demand = Demand { jobs: self.training.jobs(), runs_dry: &[], has_begun: true };
        let mut actions = Vec::new();
        self.records.submit(0, demand, &mut self.figures, &mut actions);
        for action in actions {
            match action {
                Action::Read(op) => self.in_flight.push(op),
                Action::ReadTogether(ops) => self.in_flight.extend(ops),
                _ => unreachable!("the room only reads"),
            }
        }
        for (at, op) in self.in_flight.iter().enumerate() {
            assert!(self.in_flight[..at].iter().all(|other| other.sample != op.sample), "single flight");
        }
    }

    fn land(&mut self, op: ReadOp<Room>, is_good: bool) {
        let fault = || Fault { kind: FaultKind::Record, text: "bad".to_owned() };
        let outcome = if is_good { Ok(()) } else { Err(fault()) };
        let completion = Completion { op, outcome, checked: true, latency: Duration::from_millis(1) };
        let (sample, rows) = match self.records.landed(0, completion, &mut self.figures) {
            Landed::Came(Arrival { wanted, sample, len, record, rows }) => {
                rows.iter().for_each(|_| self.lent.push(Arc::clone(&record)));
                self.records.keep(wanted, sample, len, record, self.training.jobs(), &mut self.figures);
                (sample, rows)
            }
            Landed::Failed(sample, _, rows) => (sample, rows),
        };
        for row in rows {
            assert_eq!(self.waiting.remove(&row.position), Some(sample), "each row has its own record, once");
        }
        assert!(self.waiting.values().all(|&other| other != sample), "nobody waits for it any more");
    }

    /// All reads end well and all rows are filled.
    fn settle(&mut self) {
        while let Some(op) = self.in_flight.pop() {
            self.land(op, true);
            self.lent.drain(..).for_each(|record| self.records.take_back(Some(record)));
            self.records.evict_surplus(self.training.jobs(), &mut self.figures);
            self.submit();
        }
        self.lent.drain(..).for_each(|record| self.records.take_back(Some(record)));
        self.records.evict_surplus(self.training.jobs(), &mut self.figures);
    }
}

#[test]
fn windows_and_packages_take_turns_as_the_cache_is_resized() {
    let config = config(Policy::Lookahead, 100, 0);
    let brought = |records: &Records<Counted>| (records.windows.is_some(), records.packages.is_some());
    for (package_bytes, has_packages) in [(0, false), (1 << 15, true)] {
        let mut records = records(&CoreConfig { window_bytes: 1 << 16, package_bytes, ..config });
        assert_eq!(brought(&records), (true, false));
        for _ in 0..2 {
            records.resize(u64::from(BLOCK_BYTES) * 30, 0);
            assert_eq!(brought(&records), (false, has_packages));
            records.resize(config.cache_bytes, 1 << 16);
            assert_eq!(brought(&records), (true, false));
        }
    }
}

proptest! {
    #[test]
    fn each_row_gets_its_record_once_and_no_block_is_lost(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        cache_blocks in 0..60_u64,
        gap_bytes_max in prop::sample::select(vec![0_u32, 4096, 1 << 20]),
        acts in prop::collection::vec(act(), 1..300),
    ) {
        let mut world = World::new(policy, cache_blocks, gap_bytes_max);
        acts.into_iter().for_each(|act| world.act(act));
        world.settle();
        prop_assert!(world.waiting.is_empty(), "rows wait for nothing: {:?}", world.waiting);
        world.records.check_books(true);
        let stats = world.records.stats();
        prop_assert!(stats.cache_used_bytes <= stats.cache_bytes);
        prop_assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes);
        let bytes = |id: SampleId| Lens.entry(id).map_or(0, |entry| charged_bytes(entry.stored_len, BLOCK_BYTES));
        prop_assert_eq!(world.records.cached().map(bytes).sum::<u64>(), stats.cache_used_bytes);
        let total = world.figures.total(JOB);
        prop_assert_eq!(total.admitted - total.evicted, stats.resident as u64);
    }
}
