//! The daemon's reader on a copy of the dataset. Checks every byte that it delivers as good.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_job::{EngineChoice, IoMode};
use shade_reads::blocks::{Arena, Blocks, FreeList};
use shade_reads::{Completion, Depth, ReadFault, ReadOp, Reads, ReadsConfig, verify};

use crate::world::{Place, World};

/// Memory for records: more than the dataset takes.
const ARENA_BYTES: u64 = 4 << 20;
/// Pages for records, scattered over the arena.
const BLOCK_BYTES: u32 = 4096;

/// How long reads are retried. No fault here passes by itself.
const PATIENCE_HERE: Duration = Duration::from_secs(1);

/// How a record's read ended.
pub(crate) type Outcome = (u32, Result<(), ReadFault>);

/// Reads of one dataset in one way.
pub(crate) struct Reader<'a> {
    world: &'a World,
    reads: Reads,
    completions: Receiver<Completion>,
    arena: Arc<Arena>,
    list: FreeList,
}

/// Both engines, past the page cache and through it.
pub(crate) fn every_way(depth: u32) -> Vec<ReadsConfig> {
    let engines = [EngineChoice::Uring, EngineChoice::Threads];
    let ways = engines.map(|engine| [IoMode::Direct, IoMode::Buffered].map(|io| way(engine, io, depth)));
    ways.concat()
}

pub(crate) fn way(engine: EngineChoice, io: IoMode, depth: u32) -> ReadsConfig {
    ReadsConfig { engine, io, depth: Depth::Fixed(depth), store: None, patience: PATIENCE_HERE }
}

/// A way's name, also fit for a folder.
pub(crate) fn name_of(way: &ReadsConfig) -> String {
    format!("{:?}-{:?}", way.engine, way.io).to_lowercase()
}

impl<'a> Reader<'a> {
    pub(crate) fn start(world: &'a World, place: &Place, way: ReadsConfig) -> Self {
        let (arena, mut list) = Arena::create(ARENA_BYTES, BLOCK_BYTES).unwrap();
        scatter(&mut list);
        let arena = Arc::new(arena);
        let (sender, completions) = unbounded();
        let index = Arc::clone(&world.index);
        let reads =
            Reads::start(&place.client, index, Arc::clone(&arena), way, sender, |why| panic!("{why}"))
                .unwrap();
        assert_eq!(reads.warnings(), [], "the server has what the index says");
        Self { world, reads, completions, arena, list }
    }

    pub(crate) fn submit(&mut self, samples: &[u32]) {
        for &sample in samples {
            let op = self.op(sample);
            self.reads.submit(op);
        }
    }

    /// Submits neighbours, in the order of their offsets, as one read.
    pub(crate) fn submit_together(&mut self, samples: &[u32]) {
        let ops = samples.iter().map(|&sample| self.op(sample)).collect();
        self.reads.submit_together(ops);
    }

    fn op(&mut self, sample: u32) -> ReadOp {
        let Entry { shard, offset, stored_len: len, crc32c, .. } = self.world.entry(sample);
        let blocks = self.list.take(u64::from(len)).unwrap();
        ReadOp { flight: 0, sample: SampleId(sample), shard, offset, len, crc32c, recheck: false, blocks }
    }

    /// The next read that ends, or none if none ends soon.
    ///
    /// # Panics
    /// When wrong bytes are delivered as good.
    pub(crate) fn next_within(&mut self, wait: Duration) -> Option<Outcome> {
        let completion = self.completions.recv_timeout(wait).ok()?;
        let outcome = verify(&completion, &self.arena);
        let Completion { op, .. } = completion;
        let mut right = &self.world.packed.sources[op.sample.index()].bytes[..];
        let same = self.arena.slices(&op.blocks, op.len).unwrap().all(|slice| {
            let rest = right.strip_prefix(slice);
            right = rest.unwrap_or(right);
            rest.is_some()
        });
        let good = same && right.is_empty();
        assert!(good || outcome.is_err(), "sample {}: wrong bytes delivered as good", op.sample);
        self.list.give(op.blocks);
        Some((op.sample.0, outcome))
    }

    pub(crate) fn next(&mut self) -> Outcome {
        // A read of a hard mount ends when the server answers. `run.sh` ends a guest that hangs.
        self.next_within(Duration::MAX).unwrap()
    }

    /// Reads these records. Returns their outcomes, in any order.
    pub(crate) fn read(&mut self, samples: &[u32]) -> Vec<Outcome> {
        self.submit(samples);
        samples.iter().map(|_| self.next()).collect()
    }

    /// Reads these records, which must all be good.
    pub(crate) fn read_good(&mut self, samples: &[u32]) {
        for (sample, outcome) in self.read(samples) {
            assert_eq!(outcome, Ok(()), "sample {sample}");
        }
    }
}

/// An order in which neighbours in memory are never taken one after another.
fn scatter(list: &mut FreeList) {
    let mut blocks: Vec<Option<Blocks>> =
        std::iter::from_fn(|| list.take(u64::from(BLOCK_BYTES))).map(Some).collect();
    // Every block comes once, as the count is a power of two and the step is odd.
    let count = blocks.len();
    assert!(count.is_power_of_two());
    (0..count).for_each(|number| list.give(blocks[number * 613 % count].take().unwrap()));
}
