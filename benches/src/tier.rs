//! Records of a cache server's memory, beside reads of a store that takes 2 ms, each by the
//! daemon's own threads, without a daemon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use shade_core::{Memory, TierEvent, TierOrder, TierPut, block_bytes_for};
use shade_formats::checksum::crc32c;
use shade_formats::index::Index;
use shade_formats::{ContentId, SampleId, ShardId};
use shade_job::{EngineChoice, IoMode};
use shade_reads::blocks::{Arena, FreeList, Record};
use shade_reads::{Completion, Depth, PATIENCE, ReadOp, Reads, ReadsConfig};
use shade_tests::{CacheServers, cache_server_programs};
use shade_tier::{Event, Tier, TierConfig};

use crate::cpu_time::process_cpu_s;
use crate::figure::{Figure, Unit};
use crate::local_reads::write_shard;
use crate::result::Result;
use crate::tier_killed;

/// Times that a record is offered again.
const PUTS_MAX: u32 = 60;
/// Time between two of these.
const PUT_PAUSE: Duration = Duration::from_millis(500);
const RECORD_BYTES: u32 = 110_080;
/// What a read of the store takes.
const STORE: &str = "latency=2ms";
const IN_FLIGHT: u32 = 16;
/// The aims: a hit in this part of a read of the store, bytes a second of a server, CPU time.
const AIM_OF_STORE: f64 = 0.1;
const AIM_BYTES_PER_S: f64 = 1.5e9;
const AIM_CPU_US: f64 = 45.0;

/// How much is measured.
pub(crate) struct Scale {
    /// Records that a server has.
    pub(crate) records: u32,
    /// Reads one by one of a round.
    pub(crate) single: u32,
    /// Fetches of a round, `IN_FLIGHT` at once.
    pub(crate) many: u32,
    /// Rounds, in which all take turns.
    pub(crate) rounds: usize,
    /// A dataset for the trainings whose servers are killed.
    pub(crate) killed: tier_killed::Scale,
}

/// What `shade-benches` measures.
pub(crate) const FULL: Scale =
    Scale { records: 512, single: 500, many: 20_000, rounds: 5, killed: tier_killed::FULL };

/// Rows of each server that this machine has.
pub(crate) fn run(scale: &Scale) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let programs = cache_server_programs(folder.path());
    let mut store = Store::new(&folder.path().join("shard"), scale.records)?;
    let servers: Vec<(&str, CacheServers)> = programs
        .iter()
        .map(|(name, program)| (*name, CacheServers::single(program, 1, &["--maxmemory", "512mb"])))
        .collect();
    let mut tiers = Vec::new();
    for (name, server) in &servers {
        tiers.push((*name, World::new(server, scale.records)?, Taken::default()));
    }
    let mut reads = Vec::new();
    for _ in 0..scale.rounds {
        reads.push(store.one_by_one(scale.single)?);
        for (_, world, taken) in &mut tiers {
            taken.single.push(world.fetch(scale.single, 1)?.us);
            let many = world.fetch(scale.many, IN_FLIGHT)?;
            taken.many.push(many.us);
            taken.cpu.push(many.cpu_us);
        }
    }
    let store = Figure::new("store of 2 ms, one by one", Unit::UsPerRecord, reads);
    let mut figures = Vec::new();
    for (name, _, Taken { single, many, cpu }) in tiers {
        let figure = |what: &str, runs| Figure::new(format!("tier, {what}, {name}"), Unit::UsPerRecord, runs);
        let bytes = f64::from(RECORD_BYTES);
        figures.push(figure("one by one", single).within(AIM_OF_STORE, &store));
        figures.push(figure("16 in flight", many).with_budget(bytes * 1e6 / AIM_BYTES_PER_S).of_bytes(bytes));
        figures.push(figure("CPU, 16 in flight", cpu).with_budget(AIM_CPU_US));
    }
    figures.push(store);
    drop(servers);
    for (name, program) in &programs {
        figures.extend(tier_killed::run(name, program, &scale.killed)?);
    }
    Ok(figures)
}

/// Rounds of one server, in microseconds for a record.
#[derive(Default)]
struct Taken {
    single: Vec<f64>,
    many: Vec<f64>,
    cpu: Vec<f64>,
}

/// A round.
struct Round {
    us: f64,
    /// CPU time of this process, which is the tier's thread and the one that gives it orders.
    cpu_us: f64,
}

/// A tier and the core's end of it.
struct World {
    tier: Tier,
    events: Receiver<Event>,
    free: FreeList,
    checksums: Vec<u32>,
}

impl World {
    /// Connects, and stores the records.
    fn new(servers: &CacheServers, records: u32) -> Result<Self> {
        let (arena, free) = arena()?;
        let (arena, (events_in, events)) = (Arc::new(arena), unbounded());
        let config = TierConfig {
            servers: servers.text().parse()?,
            bytes: None,
            content_id: ContentId(1),
            fields: None,
            record_bytes: RECORD_BYTES,
            // A busy machine is no fault of the server.
            deadline: PATIENCE,
        };
        let tier = Tier::start(config, Arc::clone(&arena), events_in)?;
        let mut world = Self { tier, events, free, checksums: Vec::new() };
        while !matches!(world.events.recv()?, TierEvent::Room { .. }) {}
        for sample in 0..records {
            world.put(&arena, sample)?;
        }
        Ok(world)
    }

    fn put(&mut self, arena: &Arena, sample: u32) -> Result<()> {
        let bytes = shade_tests::noise(u64::from(sample), RECORD_BYTES as usize);
        self.checksums.push(crc32c(&bytes));
        let mut blocks = self.free.take(u64::from(RECORD_BYTES)).ok_or("the arena is too small")?;
        let mut rest = bytes.as_slice();
        for slice in arena.slices_mut(&mut blocks, RECORD_BYTES)? {
            slice.copy_from_slice(rest.split_off(..slice.len()).ok_or("blocks are too long")?);
        }
        let record = FreeList::lend(Arc::new(Record::new(blocks, false)));
        self.tier.order(TierOrder::Put { sample: SampleId(sample), len: RECORD_BYTES, record });
        let mut refused = 0;
        loop {
            match self.events.recv()? {
                TierEvent::Put { record, outcome: TierPut::Stored, .. } => {
                    self.free.release(FreeList::take_back(record));
                    return Ok(());
                }
                // A server on a busy machine may not answer in time. Then it is left alone for a
                // while, in which it would be refused again at once.
                TierEvent::Put { record, .. } if refused < PUTS_MAX => {
                    refused += 1;
                    std::thread::sleep(PUT_PAUSE);
                    self.tier.order(TierOrder::Put { sample: SampleId(sample), len: RECORD_BYTES, record });
                }
                // Each server that is found tells what all of them have room for.
                TierEvent::Room { .. } | TierEvent::Held(_) => {}
                _ => return Err("the server does not store a record".into()),
            }
        }
    }

    /// Fetches `count` records, `in_flight` at once. The checksum of each is compared.
    fn fetch(&mut self, count: u32, in_flight: u32) -> Result<Round> {
        let (cpu, started) = (process_cpu_s(), Instant::now());
        let (mut asked, mut back) = (0, 0);
        while back < count {
            let mut ops = Vec::new();
            while asked < count && asked - back < in_flight {
                ops.push(self.op(asked)?);
                asked += 1;
            }
            self.tier.order(TierOrder::Get(ops));
            for event in std::iter::once(self.events.recv()?).chain(self.events.try_iter()) {
                let TierEvent::Got { op, outcome, .. } = event else { continue };
                outcome.map_err(|miss| format!("void: sample {}: {miss:?}", op.sample))?;
                self.free.give(op.blocks);
                back += 1;
            }
        }
        let count = f64::from(count);
        let us = started.elapsed().as_secs_f64() * 1e6 / count;
        Ok(Round { us, cpu_us: (process_cpu_s() - cpu) * 1e6 / count })
    }

    fn op(&mut self, number: u32) -> Result<ReadOp> {
        let at = number as usize % self.checksums.len().max(1);
        let crc32c = *self.checksums.get(at).ok_or("no records")?;
        op(&mut self.free, SampleId(u32::try_from(at)?), 0, crc32c)
    }
}

/// A simulated store, which reads real bytes.
struct Store {
    reads: Reads,
    completions: Receiver<Completion>,
    free: FreeList,
    index: Arc<Index>,
}

impl Store {
    fn new(folder: &std::path::Path, records: u32) -> Result<Self> {
        let index = Arc::new(write_shard(folder, records, RECORD_BYTES)?);
        let (arena, free) = arena()?;
        let (sender, completions) = unbounded();
        let config = ReadsConfig {
            engine: EngineChoice::Sim,
            io: IoMode::Buffered,
            depth: Depth::Fixed(1),
            store: Some(STORE.parse()?),
            patience: PATIENCE,
        };
        let reads =
            Reads::start(folder, Arc::clone(&index), Arc::new(arena), config, sender, |why| panic!("{why}"))?;
        Ok(Self { reads, completions, free, index })
    }

    /// Microseconds for a record.
    fn one_by_one(&mut self, count: u32) -> Result<f64> {
        let started = Instant::now();
        for number in 0..count {
            let sample = SampleId(number % self.index.len());
            let entry = self.index.entry(sample).ok_or("no such sample")?;
            self.reads.submit(op(&mut self.free, sample, entry.offset, entry.crc32c.unwrap_or(0))?);
            let completion = self.completions.recv()?;
            completion.outcome?;
            self.free.give(completion.op.blocks);
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }
}

fn arena() -> Result<(Arena, FreeList)> {
    let block_bytes = block_bytes_for(std::iter::once(RECORD_BYTES));
    let record_bytes = u64::from(RECORD_BYTES.next_multiple_of(block_bytes));
    Ok(Arena::create(2 * u64::from(IN_FLIGHT) * record_bytes, block_bytes)?)
}

fn op(free: &mut FreeList, sample: SampleId, offset: u64, crc32c: u32) -> Result<ReadOp> {
    let blocks = free.take(u64::from(RECORD_BYTES)).ok_or("the arena is too small")?;
    Ok(ReadOp {
        flight: 0,
        sample,
        shard: ShardId(0),
        offset,
        len: RECORD_BYTES,
        crc32c: Some(crc32c),
        recheck: false,
        blocks,
    })
}

#[cfg(test)]
mod tests {
    use super::{Scale, run};
    use crate::tier_killed;

    #[test]
    fn a_small_run_has_all_rows() {
        let killed = tier_killed::Scale { samples: 240, epochs: 1, rounds: 1 };
        let figures = run(&Scale { records: 20, single: 10, many: 200, rounds: 2, killed }).unwrap();
        // Three of fetches and two of trainings for each server, and the store's.
        assert_eq!(figures.len() % 5, 1);
        let store = figures.iter().find(|figure| figure.name.starts_with("store")).unwrap();
        assert!(store.median >= 2_000.0, "{}", store.median);
        for figure in &figures {
            assert!(figure.min > 0.0 && figure.max.is_finite(), "{figure:?}");
        }
    }
}
