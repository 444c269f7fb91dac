//! A source that is listed and planned, and how it becomes a dataset in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use shade_formats::index::{INDEX_FILE, Index};

use super::report::CreatedPart;
use crate::assemble::{Assembly, Packed};
use crate::catalogue::Catalogue;
use crate::config::{Effort, Layout, OnBad};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::{PackOptions, Work};
use crate::pack::{Packing, choose_recipe, clean, clean_unfinished, is_shard_written, sync_file};
use crate::plan::PackPlan;
use crate::progress::CommandProgress;
use crate::publish::sync_dir;
use crate::times::TIMES_FILE;
use crate::workers::Workers;

pub(super) struct Planned {
    pub(super) split: Option<String>,
    pub(super) catalogue: Catalogue,
    pub(super) plan: PackPlan,
    pub(super) plan_id: String,
    pub(super) options: PackOptions,
}

/// What all datasets of one command share.
pub(super) struct CreateJob<'a> {
    pub(super) layout: &'a Layout,
    pub(super) work: &'a Work,
    pub(super) on_bad: OnBad,
    pub(super) effort: Effort,
    pub(super) readers: &'a Workers,
    pub(super) progress: &'a CommandProgress,
    pub(super) stop: &'a Stop,
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
        (PackOptions::plan_id_in(dataset.index.options()).as_ref() == Some(&self.plan_id)).then_some(dataset)
    }

    /// What an earlier run has finished but not published: one split of several, or all except the
    /// last rename. `None` if its shards are not what it wrote.
    fn made_before(
        &self,
        folder: &Path,
        job: &CreateJob<'_>,
    ) -> Result<Option<(CreatedPart, Packed)>, Error> {
        let Some(dataset) = self.found_in(folder) else { return Ok(None) };
        // With samples left out it is made again, to know which.
        if dataset.index.len() != self.catalogue.len() || !job.is_written(&dataset)? {
            return Ok(None);
        }
        clean(folder)?;
        let index = &dataset.index;
        job.progress.skip(self.catalogue.len().into(), self.catalogue.bytes());
        let entries = dataset.ids().filter_map(|id| index.entry(id));
        let packed = Packed {
            bytes: dataset.shard_rows().map(|shard| shard.bytes).sum(),
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

    /// Packs it into its folder below `out`, which then holds shards and index and nothing else.
    pub(super) fn make(self, out: &Path, job: &CreateJob<'_>) -> Result<(CreatedPart, Packed), Error> {
        let folder = &self.folder(out);
        if !folder.is_dir() {
            fs::create_dir(folder).map_err(Error::io("create", folder))?;
        }
        if let Some(made) = self.made_before(folder, job)? {
            return Ok(made);
        }
        clean_unfinished(folder)?;
        let (recipe, forgone_percent) = choose_recipe(&self.catalogue, job.layout, job.readers, job.stop)?;
        let packing = Packing {
            catalogue: &self.catalogue,
            plan: &self.plan,
            recipe: &recipe,
            id: &job.work.id,
            folder,
            first_shard: 0,
            first_key: 0,
            on_bad: job.on_bad,
            effort: job.effort,
            progress: job.progress,
            stop: job.stop,
        };
        packing.run(job.readers)?;
        let fault = |source| Error::Index { path: folder.clone(), source };
        let classes = self.catalogue.classes.iter().map(String::as_bytes);
        let mut assembly = Assembly::new(classes).map_err(fault)?;
        let packed = assembly.add_packed(&packing)?;
        let options = self.options.text(Some(&self.plan_id));
        let mut part = self.outline();
        part.bytes = packed.bytes;
        part.compressed = packed.compressed;
        part.zstd_would_save_percent = forgone_percent;
        // The index takes as much memory as the catalogue, which is not needed any more.
        drop(self);
        let assembled = assembly.finish(&options).map_err(fault)?;
        part.bytes += assembled.index.len() as u64;
        assembled.write(folder, job.effort.sync)?;
        clean(folder)?;
        if job.effort.sync {
            sync_dir(folder)?;
        }
        let index = Index::open(assembled.index).map_err(fault)?;
        part.samples = index.len();
        part.content_id = Some(index.content_id().to_string());
        Ok((part, packed))
    }
}

impl CreateJob<'_> {
    /// Whether all shards of a dataset that an earlier run has written are what its index says. If
    /// the command syncs, the disk has confirmed them then.
    fn is_written(&self, dataset: &Dataset) -> Result<bool, Error> {
        let shards: Vec<_> = dataset.shard_ids().collect();
        let files = dataset.shards(self.stop);
        let whole = self.readers.each(&shards, self.stop, |&shard| {
            let row = dataset.index.shard(shard);
            row.map_or(Ok(false), |row| is_shard_written(&files, shard, row, self.effort.sync))
        })?;
        if self.effort.sync {
            for name in [INDEX_FILE, TIMES_FILE] {
                sync_file(&dataset.dir.join(name))?;
            }
            sync_dir(&dataset.dir)?;
        }
        Ok(whole.into_iter().all(|is_whole| is_whole))
    }
}
