//! A source that is listed and planned, and how it becomes a dataset in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use shade_formats::index::{INDEX_FILE, Index, Kind, Media};

use super::checks::refuse_packed;
use super::report::CreatedPart;
use crate::assemble::{Assembly, Packed};
use crate::bucket::{Bucket, ShardsTo};
use crate::catalogue::Catalogue;
use crate::config::{Accept, Effort, Layout};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::options::PackOptions;
use crate::pack::{NotDecodable, Packing, Recipe, choose_recipe, is_shard_written, sync_file};
use crate::part::Part;
use crate::plan::PackPlan;
use crate::progress::CommandProgress;
use crate::publish::sync_dir;
use crate::times::TIMES_FILE;
use crate::workers::Workers;

/// One dataset of a command: the whole source, or a split of it.
pub(crate) struct Planned {
    pub(crate) split: Option<String>,
    pub(crate) catalogue: Catalogue,
    pub(crate) plan: PackPlan,
    pub(crate) plan_id: String,
    pub(crate) options: PackOptions,
}

/// With all that must be known before the first record is made, on whatever machine.
pub(crate) struct Prepared {
    pub(crate) planned: Planned,
    pub(crate) recipe: Recipe,
    /// What zstd would save of raw pixels that are stored as they are, in percent.
    pub(crate) forgone_percent: Option<u64>,
}

/// What all datasets of one command share.
pub(crate) struct PackJob<'a> {
    /// Identifies the work.
    pub(crate) id: &'a str,
    /// Where shards go; `None` if they stay.
    pub(crate) bucket: Option<&'a Bucket>,
    pub(crate) accept: Accept,
    pub(crate) effort: Effort,
    pub(crate) readers: &'a Workers,
    pub(crate) progress: &'a CommandProgress,
    pub(crate) stop: &'a Stop,
}

impl Planned {
    pub(crate) fn folder(&self, out: &Path) -> PathBuf {
        self.split.as_ref().map_or_else(|| out.to_owned(), |split| out.join(split))
    }

    pub(crate) fn outline(&self) -> CreatedPart {
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
    pub(crate) fn found_in(&self, folder: &Path) -> Option<Dataset> {
        let dataset = Dataset::open(folder).ok()?;
        (PackOptions::plan_id_in(dataset.index.options()).as_ref() == Some(&self.plan_id)).then_some(dataset)
    }

    /// What an earlier run has finished but not published: one split of several, or all except the
    /// last rename. `None` if its shards are not what it wrote.
    pub(super) fn made_before(
        &self,
        folder: &Path,
        job: &PackJob<'_>,
    ) -> Result<Option<(CreatedPart, Packed)>, Error> {
        let Some(dataset) = self.found_in(folder) else { return Ok(None) };
        // With samples left out it is made again, to know which.
        if dataset.index.len() != self.catalogue.len() || !job.is_written(&dataset)? {
            return Ok(None);
        }
        let index = &dataset.index;
        job.progress.skip(self.catalogue.len().into(), self.catalogue.bytes());
        let entries = dataset.ids().filter_map(|id| index.entry(id));
        let packed = Packed {
            bytes: dataset.shard_rows().map(|shard| shard.bytes).sum(),
            source_bytes: self.catalogue.bytes(),
            compressed: entries.filter(|entry| entry.codec.is_compressed()).count() as u64,
            samples: index.len(),
            not_decodable: self.not_decodable_in(&dataset),
            ..Packed::default()
        };
        let mut part = self.outline();
        (part.samples, part.bytes, part.compressed) = (index.len(), packed.bytes, packed.compressed);
        part.not_decodable = packed.not_decodable.clone();
        part.bytes += fs::metadata(folder.join(INDEX_FILE)).map_or(0, |found| found.len());
        part.content_id = Some(index.content_id().to_string());
        Ok(Some((part, packed)))
    }

    /// What an index still knows of records that cannot be decoded: not their exact kinds.
    fn not_decodable_in(&self, dataset: &Dataset) -> NotDecodable {
        let mut found = NotDecodable::default();
        for (id, sample) in dataset.ids().zip(self.catalogue.samples()) {
            let kind = match dataset.index.entry(id).map(|entry| entry.media) {
                None | Some(Media::Other) => Kind::NoImage("of no known kind"),
                Some(Media::Gif) => Kind::OtherImage("GIF"),
                Some(media) => Kind::Image(media),
            };
            found.note(kind, sample.path);
        }
        found
    }

    /// Decides how records are made, which takes a look at some samples.
    pub(crate) fn prepare(self, layout: &Layout, readers: &Workers, stop: &Stop) -> Result<Prepared, Error> {
        let (recipe, forgone_percent) = choose_recipe(&self.catalogue, layout, readers, stop)?;
        Ok(Prepared { planned: self, recipe, forgone_percent })
    }
}

impl Prepared {
    /// The packing of a part into `folder`. `first_position` is the number of shards of the
    /// datasets before this one.
    pub(crate) fn packing<'a>(
        &'a self,
        folder: &'a Path,
        part: Part,
        first_position: usize,
        job: &PackJob<'a>,
    ) -> Packing<'a> {
        Packing {
            catalogue: &self.planned.catalogue,
            plan: &self.planned.plan,
            recipe: &self.recipe,
            id: job.id,
            folder,
            to: job.bucket.map(|bucket| ShardsTo { bucket, split: self.planned.split.as_deref() }),
            first_shard: 0,
            first_key: 0,
            part,
            first_position,
            on_bad: job.accept.on_bad,
            effort: job.effort,
            progress: job.progress,
            stop: job.stop,
        }
    }

    /// Makes a dataset of `folder`, in which all shards are complete: writes its index. Records of
    /// completion stay.
    pub(crate) fn assemble(self, folder: &Path, job: &PackJob<'_>) -> Result<(CreatedPart, Packed), Error> {
        let fault = |source| Error::Index { path: folder.to_owned(), source };
        let planned = &self.planned;
        let classes = planned.catalogue.classes.iter().map(String::as_bytes);
        let mut assembly = Assembly::new(classes).map_err(fault)?;
        let packed = assembly.add_packed(&self.packing(folder, Part::WHOLE, 0, job), job.readers)?;
        refuse_packed(&planned.catalogue, &packed, job.accept)?;
        let options = planned.options.text(Some(&planned.plan_id));
        let mut part = planned.outline();
        part.bytes = packed.bytes;
        part.compressed = packed.compressed;
        part.not_decodable = packed.not_decodable.clone();
        part.zstd_would_save_percent = self.forgone_percent;
        // The index takes as much memory as the catalogue, which is not needed any more.
        drop(self);
        let assembled = assembly.finish(&options).map_err(fault)?;
        part.bytes += assembled.index.len() as u64;
        assembled.write(folder, job.effort.sync)?;
        let index = Index::open(assembled.index).map_err(fault)?;
        part.samples = index.len();
        part.content_id = Some(index.content_id().to_string());
        Ok((part, packed))
    }
}

impl PackJob<'_> {
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
