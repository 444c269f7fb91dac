//! A source that is listed and planned, and how it becomes a dataset in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::{SampleId, ShardId};

use super::report::CreatedPart;
use crate::assemble::{Assembly, Packed};
use crate::catalogue::Catalogue;
use crate::config::CreateConfig;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::{Options, Work};
use crate::pack::{Packing, Recipe, choose_zstd, clean, clean_unfinished, is_shard_written, sync_file};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::publish::sync_dir;
use crate::times::TIMES_FILE;
use crate::workers::Workers;

/// A source that is listed and planned.
pub(super) struct Planned {
    pub(super) split: Option<String>,
    pub(super) catalogue: Catalogue,
    pub(super) plan: Plan,
    pub(super) plan_id: String,
    pub(super) options: Options,
}

impl Planned {
    pub(super) fn folder(&self, out: &Path) -> PathBuf {
        self.split.as_ref().map_or_else(|| out.to_owned(), |split| out.join(split))
    }

    pub(super) fn outline(&self) -> CreatedPart {
        CreatedPart {
            split: self.split.clone(),
            samples: self.catalogue.len(),
            classes: self.catalogue.classes.len(),
            shards: self.plan.shard_count(),
            bytes: self.catalogue.bytes(),
            ..CreatedPart::default()
        }
    }

    /// The dataset in `folder`, if it is the one that is planned.
    pub(super) fn found_in(&self, folder: &Path) -> Option<Dataset> {
        let dataset = Dataset::open(folder).ok()?;
        (Options::plan_id_in(dataset.index.options()).as_ref() == Some(&self.plan_id)).then_some(dataset)
    }

    /// What an earlier run has finished but not published: one split of several, or all but the last rename. `None` if
    /// its shards are not what it wrote.
    fn made_before(
        &self,
        folder: &Path,
        sync: bool,
        (readers, progress, stop): (&Workers, &Progress, &Stop),
    ) -> Result<Option<(CreatedPart, Packed)>, Error> {
        let Some(dataset) = self.found_in(folder) else { return Ok(None) };
        // With samples left out it is made again, to know which.
        if dataset.index.len() != self.catalogue.len() || !is_written(&dataset, sync, readers, stop)? {
            return Ok(None);
        }
        clean(folder)?;
        let index = &dataset.index;
        progress.skip(self.catalogue.len().into(), self.catalogue.bytes());
        let entries = (0..index.len()).filter_map(|id| index.entry(SampleId(id)));
        let packed = Packed {
            bytes: (0..index.shard_count()).filter_map(|n| Some(index.shard(ShardId(n))?.bytes)).sum(),
            source_bytes: self.catalogue.bytes(),
            compressed: entries.filter(|entry| entry.codec.is_compressed()).count() as u64,
            bad: Vec::new(),
        };
        let mut part = self.outline();
        (part.samples, part.bytes, part.compressed) = (index.len(), packed.bytes, packed.compressed);
        part.bytes += fs::metadata(folder.join(INDEX_FILE)).map_or(0, |found| found.len());
        part.content_id = Some(index.content_id().to_string());
        Ok(Some((part, packed)))
    }

    /// Packs it into `folder`, which then holds shards and index and nothing else.
    pub(super) fn make(
        self,
        folder: &Path,
        config: &CreateConfig,
        work: &Work,
        readers: &Workers,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<(CreatedPart, Packed), Error> {
        if !folder.is_dir() {
            fs::create_dir(folder).map_err(Error::io("create", folder))?;
        }
        if let Some(made) = self.made_before(folder, config.effort.sync, (readers, progress, stop))? {
            return Ok(made);
        }
        clean_unfinished(folder)?;
        let layout = &config.layout;
        let mut recipe = Recipe { transform: layout.transform, zstd: None, cls: layout.cls };
        let choice = readers.install(|| choose_zstd(&self.catalogue, &recipe, layout.compression, stop))?;
        recipe.zstd = choice.zstd;
        let packing = Packing {
            catalogue: &self.catalogue,
            plan: &self.plan,
            recipe: &recipe,
            id: &work.id,
            folder,
            first_shard: 0,
            first_key: 0,
            on_bad: config.on_bad,
            effort: config.effort,
            progress,
            stop,
        };
        packing.run(readers)?;
        let fault = |source| Error::Index { path: folder.to_owned(), source };
        let classes = self.catalogue.classes.iter().map(String::as_bytes);
        let mut assembly = Assembly::new(classes).map_err(fault)?;
        let packed = assembly.add_packed(&packing)?;
        let options = self.options.text(Some(&self.plan_id));
        let mut part = self.outline();
        part.bytes = packed.bytes;
        part.compressed = packed.compressed;
        part.zstd_would_save_percent = choice.forgone_percent;
        // The catalogue is not needed any more, and its memory may be: the index is as large.
        drop(self);
        let assembled = assembly.finish(&options).map_err(fault)?;
        part.bytes += assembled.index.len() as u64;
        assembled.write(folder, config.effort.sync)?;
        clean(folder)?;
        if config.effort.sync {
            sync_dir(folder)?;
        }
        let index = Index::open(assembled.index).map_err(fault)?;
        part.samples = index.len();
        part.content_id = Some(index.content_id().to_string());
        Ok((part, packed))
    }
}

/// Whether all shards of a dataset that an earlier run has written are what its index says, and on disk if `sync`.
fn is_written(dataset: &Dataset, sync: bool, workers: &Workers, stop: &Stop) -> Result<bool, Error> {
    let shards: Vec<ShardId> = (0..dataset.index.shard_count()).map(ShardId).collect();
    let files = dataset.shards(stop);
    let whole = workers.each(&shards, stop, |&shard| {
        let row = dataset.index.shard(shard);
        row.map_or(Ok(false), |row| is_shard_written(&files, shard, row, sync))
    })?;
    if sync {
        for name in [INDEX_FILE, TIMES_FILE] {
            sync_file(&dataset.dir.join(name))?;
        }
        sync_dir(&dataset.dir)?;
    }
    Ok(whole.into_iter().all(|is_whole| is_whole))
}
