//! What is packed, where to, and which shards of it.

use std::path::Path;

use shade_formats::ShardId;

use super::recipe::Recipe;
use crate::catalogue::Catalogue;
use crate::config::{Effort, OnBad};
use crate::interrupt::Stop;
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
