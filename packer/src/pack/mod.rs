//! Writes the shards of a plan: many threads read, so that a distant store has tens of files to fetch at a time, and
//! what they make is put together in the plan's order.
//!
//! `queue` hands out stretches, `read` and `stretch` turn one into bytes (`recipe`, `transform` and `compress` say how),
//! `shard_file` places them, `done` remembers complete shards. `gate` bounds memory and computing threads. `again` makes
//! single samples once more.

mod again;
mod compress;
mod done;
mod gate;
mod queue;
mod read;
mod readers;
mod recipe;
mod shard_file;
mod stretch;
mod transform;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use shade_formats::ShardId;

pub(crate) use again::Again;
pub use compress::{Choice, choose_zstd};
pub(crate) use done::fields_row;
pub use done::{
    DoneRecord, DoneShard, clean, clean_unfinished, is_shard_written, read as read_done, sync_file,
};
pub(crate) use gate::Gate;
pub(crate) use read::SourceReader;
pub(crate) use recipe::Kits;
pub use recipe::{Recipe, Zstd};
pub use transform::{Format, Interpolation, Transform};

use crate::catalogue::Catalogue;
use crate::config::{Effort, OnBad};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::workers::Workers;
use done::Pack;
use queue::{Queue, Stretch, memory_gate};
use readers::Readers;
use stretch::StretchBuilder;

/// What all shards of one run share.
#[derive(Debug)]
pub struct Packing<'a> {
    /// What is packed.
    pub catalogue: &'a Catalogue,
    /// Where it goes.
    pub plan: &'a Plan,
    /// How records are made.
    pub recipe: &'a Recipe,
    /// Identifies the pack in records of completion.
    pub id: &'a str,
    /// Where shards are written.
    pub folder: &'a Path,
    /// The number of the plan's first shard in the dataset.
    pub first_shard: u32,
    /// The key of the catalogue's first sample.
    pub first_key: u32,
    /// What happens at a sample that cannot be packed.
    pub on_bad: OnBad,
    /// How much of the machine may be used.
    pub effort: Effort,
    /// Told of every stretch.
    pub progress: &'a Progress,
    /// Looked at before every stretch.
    pub stop: &'a Stop,
}

impl Packing<'_> {
    /// Writes all shards that are not complete yet, each with its record of completion.
    ///
    /// # Errors
    /// With [`OnBad::Fail`] the first sample that cannot be packed; writing failed; or [`Error::Interrupted`].
    /// Shards that were complete by then stay.
    pub fn run(&self, workers: &Workers) -> Result<(), Error> {
        let missing = self.missing(workers)?;
        let memory = memory_gate();
        let queue = Queue::new(self, missing, &memory);
        let readers = Readers::new(self.effort.jobs, self.effort.in_flight);
        let kits = Kits::new(self.recipe, self.effort.jobs);
        let spare = Mutex::new(Vec::new());
        workers.all(self.stop, || self.work(&queue, (&readers, &kits), &spare))
    }

    /// Shards that earlier runs have not completed, by their numbers in the plan. Of the others every byte is read: a folder
    /// that was left behind may have been changed, or its disk may have lost what nobody had it confirm.
    fn missing(&self, workers: &Workers) -> Result<Vec<usize>, Error> {
        let numbers: Vec<usize> = (0..self.plan.shard_count()).collect();
        let cpus = Gate::new(self.effort.jobs.get() as u64);
        let done = workers.each(&numbers, self.stop, |&number| {
            let Some(done) = read_done(self.folder, self.shard_id(number), self.id)? else {
                return Ok(false);
            };
            let _cpu = cpus.pass(1, self.stop)?;
            if !done.is_written(self.folder, self.effort.sync, self.stop)? {
                return Ok(false);
            }
            // An earlier run may have been told to skip what this one is not.
            if let (OnBad::Fail, Some(bad)) = (self.on_bad, done.bad.first()) {
                return Err(Error::Bad { first: bad.clone(), more: done.bad.len() - 1 });
            }
            let samples = self.plan.shard(number);
            let found = samples.iter().filter_map(|&id| self.catalogue.sample(id));
            self.progress.skip(samples.len() as u64, found.map(|sample| u64::from(sample.bytes)).sum());
            Ok(true)
        })?;
        Ok(numbers.into_iter().zip(done).filter(|(_, is_done)| !is_done).map(|(number, _)| number).collect())
    }

    fn shard_id(&self, number: usize) -> ShardId {
        ShardId(self.first_shard.saturating_add(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    /// One thread's part: stretches until there are no more.
    fn work(
        &self,
        queue: &Queue<'_>,
        (readers, kits): (&Readers, &Kits<'_>),
        spare: &Mutex<Vec<Vec<u8>>>,
    ) -> Result<(), Error> {
        let mut builder = StretchBuilder::new(self.catalogue, self.recipe, self.first_key);
        let pack = Pack {
            id: self.id,
            classes: self.catalogue.classes.len(),
            dictionary: self.recipe.zstd.as_ref().map_or(&[], |zstd| zstd.dictionary.as_slice()),
        };
        loop {
            // The seat is taken before the claim: what is claimed is read at once.
            let mut seat = readers.enter(self.stop)?;
            let claimed = queue.claim(self.stop)?;
            let Some(Stretch { shard, number, samples, pass }) = claimed else { return Ok(()) };
            let memory = spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
            let built = builder.build(samples, memory, (&mut seat.pace, kits), self.stop)?;
            if let (OnBad::Fail, Some((_, bad))) = (self.on_bad, built.bad.first()) {
                return Err(Error::Bad { first: bad.clone(), more: 0 });
            }
            let found = samples.iter().filter_map(|&id| self.catalogue.sample(id));
            let bytes = found.map(|sample| u64::from(sample.bytes)).sum();
            let recycle = |memory| spare.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
            if let Some(shard) = shard.place(number, built, pass, recycle)? {
                done::write(self.folder, &pack, shard, self.effort.sync)?;
            }
            self.progress.add(samples.len() as u64, bytes);
        }
    }
}
