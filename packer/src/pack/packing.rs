//! What is packed, where to, and which shards of it. Hands out their stretches in order, as long as
//! memory lasts.

use std::path::Path;
use std::sync::{Arc, Mutex};

use shade_formats::{SampleId, ShardId};

use super::gate::{Gate, Pass};
use super::recipe::Recipe;
use super::shard_file::ShardFile;
use crate::bucket::ShardsTo;
use crate::catalogue::Catalogue;
use crate::config::{Effort, OnBad};
use crate::error::Error;
use crate::interrupt::{Stop, lock};
use crate::part::Part;
use crate::plan::PackPlan;
use crate::progress::CommandProgress;

/// What all shards of one run share.
#[derive(Debug)]
pub struct Packing<'a> {
    /// What is packed.
    pub catalogue: &'a Catalogue,
    /// The order of its samples, and the shard cuts.
    pub plan: &'a PackPlan,
    /// How records are made.
    pub recipe: &'a Recipe,
    /// Identifies the pack in records of completion.
    pub id: &'a str,
    /// Where shards are written.
    pub folder: &'a Path,
    /// Where they go from there as soon as they are complete; `None` if they stay.
    pub to: Option<ShardsTo<'a>>,
    /// The number of the plan's first shard in the dataset.
    pub first_shard: u32,
    /// The key of the whole catalogue's first sample.
    pub first_key: u32,
    /// Which shards this run packs.
    pub part: Part,
    /// The position of the plan's first shard among those of all datasets of the command.
    pub first_position: usize,
    /// What happens at a sample that cannot be packed.
    pub on_bad: OnBad,
    /// How much of the machine may be used.
    pub effort: Effort,
    /// Counts every stretch.
    pub progress: &'a CommandProgress,
    /// Ends the run before the next stretch.
    pub stop: &'a Stop,
}

impl Packing<'_> {
    /// The shards of the plan that this run packs, by their numbers.
    pub(crate) fn shards(&self) -> Vec<usize> {
        let numbers = 0..self.plan.shard_count();
        numbers.filter(|number| self.part.has(self.first_position.saturating_add(*number))).collect()
    }

    /// The shard of the dataset that shard `number` of the plan becomes.
    pub(crate) fn shard_id(&self, number: usize) -> ShardId {
        ShardId(self.first_shard.saturating_add(u32::try_from(number).unwrap_or(u32::MAX)))
    }
}

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
            let Packing { folder, plan, effort, to, .. } = self.packing;
            let room = to.map(|to| to.bucket.room(stop)).transpose()?;
            let shard = ShardFile::create(folder, self.packing.shard_id(number), effort.sync, room)?;
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
            bytes += self.packing.catalogue.bytes_of(id);
            samples += 1;
            if bytes >= STRETCH_BYTES {
                break;
            }
        }
        (rest.get(..samples).unwrap_or(rest), bytes)
    }
}
