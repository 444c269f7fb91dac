//! Reads, makes and places all stretches of a plan, or those of a shard that a dataset has lost.

use std::fs;
use std::sync::{Mutex, PoisonError};

use shade_formats::SampleId;
use shade_formats::index::{Entry, Shard};

use super::done::{self, DoneShard, Pack};
use super::gate::Gate;
use super::packing::{Packing, Stretch, StretchQueue, memory_gate};
use super::readers::Readers;
use super::recipe::EncoderPool;
use super::shard_file::{PackedShard, ShardFile};
use super::state::RunTars;
use super::stretch::StretchBuilder;
use crate::config::OnBad;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::lock;
use crate::leftovers::remove_file;
use crate::plan::shard_name;
use crate::workers::Workers;

/// What is done with a shard whose file is written.
type End<'e> = dyn Fn(&ShardFile<'_>, PackedShard) -> Result<(), Error> + Sync + 'e;

impl Packing<'_> {
    /// Writes all shards of its part that are not complete yet, each with its record of completion.
    ///
    /// # Errors
    /// With [`OnBad::Fail`] the first sample that cannot be packed; writing failed; or
    /// [`Error::Interrupted`]. Shards that were complete by then stay.
    pub fn run(&self, workers: &Workers) -> Result<(), Error> {
        let missing = self.missing(workers)?;
        let samples = missing.iter().flat_map(|&number| self.plan.shard(number)).copied();
        let tars = RunTars::of(self.catalogue, samples);
        let pack = Pack {
            id: self.id,
            classes: self.catalogue.classes.len(),
            dictionary: self.recipe.dictionary(),
            part: self.part,
            placed: None,
        };
        self.pack(missing.clone(), workers, &|file, shard| {
            file.publish()?;
            let Some(to) = self.to else { return done::write(self.folder, &pack, shard, self.effort.sync) };
            let name = shard_name(shard.shard.0);
            let path = self.folder.join(&name);
            let placed = to.bucket.place(&path, &to.name(&name), self.stop)?;
            let pack = Pack { placed: Some(&placed), ..pack };
            done::write(self.folder, &pack, shard, self.effort.sync)?;
            remove_file(&path)
        })?;
        self.check(&tars, &missing)
    }

    /// Packs its only shard, which had these `samples` in `dataset`. The file gets its name only if
    /// its bytes are those that the index tells of. Otherwise says which sample has others.
    pub(crate) fn run_again(
        &self,
        dataset: &Dataset,
        samples: &[(SampleId, Entry)],
        workers: &Workers,
    ) -> Result<Option<String>, Error> {
        let fault = Mutex::new(None);
        self.pack(vec![0], workers, &|file, made| {
            let is_free = fs::symlink_metadata(dataset.shard_path(made.shard)).is_err();
            let found = match is_free {
                true => difference(dataset, samples, &made),
                false => Some("a file of this name is there now".to_owned()),
            };
            let is_refused = found.is_some();
            *lock(&fault) = found;
            if is_refused { Ok(()) } else { file.publish() }
        })?;
        Ok(fault.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Packs these shards of the plan. `end` gets each when its file is written, and may publish
    /// it.
    fn pack(&self, shards: Vec<usize>, workers: &Workers, end: &End<'_>) -> Result<(), Error> {
        let memory = memory_gate();
        let queue = StretchQueue::new(self, shards, &memory);
        let readers = Readers::new(self.effort.jobs, self.effort.in_flight);
        let encoders = EncoderPool::new(self.recipe, self.effort.jobs);
        let spare = Mutex::new(Vec::new());
        workers.all(self.stop, || self.work(&queue, &readers, &encoders, &spare, end))
    }

    /// Makes sure that no tar was written to while these shards were packed. Shards with samples of
    /// one that was do not count.
    fn check(&self, tars: &RunTars<'_>, shards: &[usize]) -> Result<(), Error> {
        let changed = tars.changed();
        let Some(first) = changed.first() else { return Ok(()) };
        for &number in shards {
            if self.plan.shard(number).iter().any(|sample| tars.is_in(*sample, &changed)) {
                done::forget(self.folder, self.shard_id(number))?;
            }
        }
        let more = match changed.len() {
            1 => String::new(),
            count => format!(", and so were {} more", count - 1),
        };
        let fault =
            format!("changed while packing: it was written to{more}. What was read of it does not count");
        Err(Error::source(first, fault))
    }

    /// The record of completion of shard `number` of the plan, if it is valid.
    pub(crate) fn done(&self, number: usize) -> Result<Option<DoneShard>, Error> {
        let done = done::read(self.folder, self.shard_id(number), self.id)?;
        // A record of another place is of no use here.
        let is_here = |done: &DoneShard| done.placed.is_some() == self.to.is_some();
        Ok(done.filter(|done| done.has_dictionary(self.recipe.dictionary()) && is_here(done)))
    }

    /// Removes the records of completion of its shards: nobody needs them any more.
    pub(crate) fn forget_done(&self) -> Result<(), Error> {
        self.shards().into_iter().try_for_each(|number| done::forget(self.folder, self.shard_id(number)))
    }

    /// Shards that earlier runs have not completed, by their numbers in the plan. Every byte of the
    /// others is read: somebody may have changed a folder that was left behind, or the disk may
    /// have lost what it never confirmed.
    fn missing(&self, workers: &Workers) -> Result<Vec<usize>, Error> {
        let numbers = self.shards();
        let cpus = Gate::new(self.effort.jobs.get() as u64);
        let done = workers.each(&numbers, self.stop, |&number| {
            let Some(done) = self.done(number)? else { return Ok(false) };
            let _cpu = cpus.pass(1, self.stop)?;
            let is_written = match self.to {
                Some(to) => done.is_placed(to)?,
                None => done.is_written(self.folder, self.effort.sync, self.stop)?,
            };
            if !is_written {
                return Ok(false);
            }
            // An earlier run may have skipped samples; this one may not.
            if let (OnBad::Fail, Some(bad)) = (self.on_bad, done.bad.first()) {
                return Err(Error::Bad { first: bad.clone(), more: done.bad.len() - 1 });
            }
            let samples = self.plan.shard(number);
            let bytes = samples.iter().map(|&id| self.catalogue.bytes_of(id)).sum();
            self.progress.skip(samples.len() as u64, bytes);
            Ok(true)
        })?;
        Ok(numbers.into_iter().zip(done).filter(|(_, is_done)| !is_done).map(|(number, _)| number).collect())
    }

    /// The part of one thread: stretches until none is left.
    fn work(
        &self,
        queue: &StretchQueue<'_>,
        readers: &Readers,
        encoders: &EncoderPool<'_>,
        spare: &Mutex<Vec<Vec<u8>>>,
        end: &End<'_>,
    ) -> Result<(), Error> {
        let mut builder = StretchBuilder::new(self.catalogue, self.recipe, self.first_key, self.stop);
        loop {
            // The seat comes first: a claimed stretch is read at once.
            let mut seat = readers.enter(self.stop)?;
            let claimed = queue.claim(self.stop)?;
            let Some(Stretch { shard, number, samples, pass }) = claimed else { return Ok(()) };
            let memory = lock(spare).pop().unwrap_or_default();
            let built = builder.build(samples, memory, &mut seat.pace, encoders)?;
            if let (OnBad::Fail, Some((_, bad))) = (self.on_bad, built.bad.first()) {
                return Err(Error::Bad { first: bad.clone(), more: 0 });
            }
            let bytes = samples.iter().map(|&id| self.catalogue.bytes_of(id)).sum();
            let recycle = |memory| lock(spare).push(memory);
            if let Some(packed) = shard.place(number, built, pass, recycle)? {
                end(&shard, packed)?;
            }
            self.progress.add(samples.len() as u64, bytes);
        }
    }
}

/// How a shard differs from what the index says of it.
fn difference(dataset: &Dataset, samples: &[(SampleId, Entry)], made: &PackedShard) -> Option<String> {
    let is_same = |row: Shard<'_>| (row.bytes, row.crc32c) == (made.bytes, made.crc32c);
    if dataset.index.shard(made.shard).is_some_and(is_same) {
        return None;
    }
    if let Some((_, bad)) = made.bad.first() {
        return Some(bad.to_string());
    }
    let other = samples.iter().zip(&made.records).find(|((sample, had), has)| {
        let fields = dataset.index.fields(*sample).and_then(|span| span.crc32c).unwrap_or(0);
        let then = (had.offset, had.stored_len, had.crc32c, fields);
        then != (has.entry.offset, has.entry.stored_len, has.entry.crc32c, has.fields().crc32c)
    });
    let path = other.map_or_else(|| "it".to_owned(), |((sample, _), _)| dataset.path_text(*sample));
    Some(format!("{path} has other bytes now, or was packed with other options or by another version"))
}
