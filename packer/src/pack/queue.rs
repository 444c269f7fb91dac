//! Hands out stretches of shards in order, as long as memory lasts.

use std::sync::{Arc, Mutex};

use shade_formats::SampleId;

use super::gate::{Gate, Pass};
use super::packing::Packing;
use super::shard_file::ShardFile;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::locks::lock;

/// Most samples in a stretch. Longer ones are no faster.
const STRETCH_SAMPLES_MAX: usize = 64;

/// Least number of stretches for each thread, so that a small dataset of small files keeps all
/// threads busy at a slow store.
const STRETCHES_PER_THREAD: usize = 4;

/// A stretch ends with the sample that takes it over this many source bytes: it stays in a core's
/// cache, and a write is still large.
const STRETCH_BYTES: u64 = 256 * 1024;

/// Source bytes being read, made and written at a time; a single larger record passes alone.
const MEMORY_BYTES: u64 = 64 << 20;

/// Some neighbouring samples, claimed by a thread.
pub(super) struct Stretch<'a> {
    pub shard: Arc<ShardFile<'a>>,
    pub number: u32,
    pub samples: &'a [SampleId],
    pub pass: Pass<'a>,
}

pub(super) struct StretchQueue<'a> {
    packing: &'a Packing<'a>,
    memory: &'a Gate,
    samples_max: usize,
    cursor: Mutex<Cursor<'a>>,
}

struct Cursor<'a> {
    /// Shards of the plan that are not begun, in reverse order.
    shards: Vec<usize>,
    open: Option<Open<'a>>,
}

struct Open<'a> {
    shard: Arc<ShardFile<'a>>,
    rest: &'a [SampleId],
    stretches: u32,
}

/// Limits what is read and not written yet.
pub(super) fn memory_gate() -> Gate {
    Gate::new(MEMORY_BYTES)
}

impl<'a> StretchQueue<'a> {
    /// Hands out the plan's shards `shards`, given in their order.
    pub(super) fn new(packing: &'a Packing<'a>, mut shards: Vec<usize>, memory: &'a Gate) -> Self {
        let threads = packing.effort.in_flight.get();
        let fair = packing.catalogue.len() as usize / threads.saturating_mul(STRETCHES_PER_THREAD);
        shards.reverse();
        let cursor = Mutex::new(Cursor { shards, open: None });
        Self { packing, memory, samples_max: fair.clamp(1, STRETCH_SAMPLES_MAX), cursor }
    }

    /// The next stretch; `None` when all are handed out. Memory is claimed in the order of the
    /// stretches, so the oldest, for which others may wait, always has its own.
    pub(super) fn claim(&self, stop: &Stop) -> Result<Option<Stretch<'a>>, Error> {
        let mut cursor = lock(&self.cursor);
        stop.check()?;
        if cursor.open.is_none() {
            let Some(number) = cursor.shards.pop() else { return Ok(None) };
            let Packing { folder, plan, effort, .. } = self.packing;
            let shard = ShardFile::create(folder, self.packing.shard_id(number), effort.sync)?;
            cursor.open = Some(Open { shard: Arc::new(shard), rest: plan.shard(number), stretches: 0 });
        }
        let Some(open) = &mut cursor.open else { return Ok(None) };
        let (samples, bytes) = self.cut(open.rest);
        let weight = self.packing.recipe.weight();
        let pass = self.memory.pass(bytes.saturating_mul(weight), stop)?;
        open.rest = open.rest.get(samples.len()..).unwrap_or_default();
        let number = open.stretches;
        open.stretches += 1;
        let shard = Arc::clone(&open.shard);
        if open.rest.is_empty() {
            shard.set_stretches(open.stretches);
            cursor.open = None;
        }
        Ok(Some(Stretch { shard, number, samples, pass }))
    }

    /// The first stretch of `rest` and its bytes in the source.
    fn cut(&self, rest: &'a [SampleId]) -> (&'a [SampleId], u64) {
        let mut bytes = 0u64;
        let mut samples = 0;
        for &id in rest.iter().take(self.samples_max) {
            bytes += self.packing.catalogue.sample(id).map_or(0, |sample| u64::from(sample.bytes));
            samples += 1;
            if bytes >= STRETCH_BYTES {
                break;
            }
        }
        (rest.get(..samples).unwrap_or(rest), bytes)
    }
}
