//! Makes shards again that a finished dataset has lost, such as damaged ones that the user has
//! removed.
//!
//! The index tells which samples a shard had, in which order, with which keys and labels. Their
//! images come from the source. The shard gets its name only if its length and its checksum are
//! those of the index, so the source may have changed elsewhere, and no other file is touched.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::time::Instant;

use shade_formats::index::{Codec, Entry, Media};
use shade_formats::{SampleId, ShardId};

use super::args::NewArgs;
use super::planned::Planned;
use super::planning::unchanged;
use super::report::Created;
use crate::bucket::is_address;
use crate::catalogue::{Bad, Catalogue};
use crate::changes::Changes;
use crate::claim::Claim;
use crate::config::{Compression, Effort, Layout, OnBad, ZSTD_LEVEL};
use crate::dataset::{Dataset, Matched};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::clean_unfinished;
use crate::options::PackOptions;
use crate::pack::{Packing, Recipe, Zstd};
use crate::part::Part;
use crate::plan::{PackPlan, shard_name};
use crate::progress::CommandProgress;
use crate::publish::sync_dir;
use crate::report::Speed;
use crate::times::Times;
use crate::workers::Workers;

/// A shard that is not there.
struct Missing {
    shard: ShardId,
    /// The shard's samples, in their order on disk.
    samples: Vec<(SampleId, Entry)>,
    /// These samples in the source; or which one is not there.
    source: Result<Catalogue, String>,
}

/// Makes what is missing in the datasets at OUT. `None` if nothing is.
///
/// # Errors
/// Another command changes a dataset; a file cannot be written; a shard would become another one
/// than it was. It stays missing then, and the others are made.
pub(super) fn make_missing(
    new: &NewArgs,
    planned: &[Planned],
    layout: &Layout,
    readers: &Workers,
    stop: &Stop,
) -> Result<Option<Created>, Error> {
    let start = Instant::now();
    let effort = new.pack.effort();
    let mut created = Created { unchanged: false, ..unchanged(new, planned, None) };
    let (mut made, mut refused) = (0, Vec::new());
    for (planned, part) in planned.iter().zip(&mut created.parts) {
        // A bucket loses none, and asking for each would take a request.
        if is_address(&new.out) {
            break;
        }
        let Ok(dataset) = Dataset::open(&planned.folder(&new.out)) else { continue };
        dataset.refuse_copy()?;
        if missing_in(&dataset).is_empty() {
            continue;
        }
        if PackOptions::has_foreign_shards(dataset.index.options()) {
            let dir = dataset.name.display();
            let text = format!(
                "{dir} has lost shards, and they are those of the dataset that it is a subset of: make them again \
                 there, then the subset"
            );
            return Err(Error::Usage(text));
        }
        let _claim = Claim::take(&dataset.dir)?;
        clean_unfinished(&dataset.dir)?;
        let all = look_up(&dataset, &planned.catalogue);
        let found = || all.iter().filter_map(|missing| missing.source.as_ref().ok());
        let records = found().map(|found| u64::from(found.len())).sum();
        let bytes = found().map(Catalogue::bytes).sum();
        let progress = &CommandProgress::start(new.pack.output.shown(), "packing", records, bytes);
        for missing in &all {
            let path = dataset.shard_path(missing.shard).display().to_string();
            match missing.make(&dataset, layout, effort, readers, progress, stop)? {
                None => part.made_again.push(path),
                Some(fault) => refused.push(Bad { path, fault }),
            }
        }
        progress.finish();
        if effort.sync {
            sync_dir(&dataset.dir)?;
        }
        made += part.made_again.len();
        (part.samples, part.shards) = (dataset.index.len(), dataset.index.shard_count() as usize);
        part.classes = dataset.index.class_count() as usize;
        part.changes = Some(Changes::of(&dataset, &Times::read(&dataset.dir)?, &planned.catalogue));
        created.read_bytes += progress.bytes_of_this_run();
    }
    created.speed = Speed::since(start, created.read_bytes);
    match refused.is_empty() {
        true => Ok((made > 0).then_some(created)),
        false => Err(Error::NotMadeAgain { shards: refused, made }),
    }
}

/// The shards whose files are not there. An index of files elsewhere has none of its own.
fn missing_in(dataset: &Dataset) -> Vec<ShardId> {
    let is_missing = |shard: &ShardId| {
        let found = fs::symlink_metadata(dataset.shard_path(*shard));
        // Another program's index may have other names.
        let is_ours = dataset.index.shard(*shard).is_some_and(|row| row.name == shard_name(shard.0));
        is_ours
            && dataset.index.places().is_none()
            && found.is_err_and(|fault| fault.kind() == ErrorKind::NotFound)
    };
    dataset.shard_ids().filter(is_missing).collect()
}

/// Looks in the source for the samples of missing shards.
fn look_up(dataset: &Dataset, listed: &Catalogue) -> Vec<Missing> {
    let both = Matched::new(listed, dataset).both;
    let ids: HashMap<SampleId, SampleId> = both.into_iter().map(|(id, sample)| (sample, id)).collect();
    let mut shards = dataset.samples_by_shard();
    let look_up = |shard: ShardId| {
        let samples = shards.get_mut(shard.index()).map(std::mem::take).unwrap_or_default();
        let source = in_source(dataset, listed, &ids, &samples);
        Missing { shard, samples, source }
    };
    missing_in(dataset).into_iter().map(look_up).collect()
}

/// The samples as they are in the source, with their labels and keys of the dataset.
fn in_source(
    dataset: &Dataset,
    listed: &Catalogue,
    ids: &HashMap<SampleId, SampleId>,
    samples: &[(SampleId, Entry)],
) -> Result<Catalogue, String> {
    let mut found = Catalogue::over(listed);
    for (sample, entry) in samples {
        let id = ids.get(sample);
        let id = id.ok_or_else(|| format!("{} is not in the source", dataset.path_text(*sample)))?;
        found.push_from(listed, *id, entry.label).map_err(|fault| fault.to_string())?;
    }
    found.set_whole_ids(samples.iter().map(|(sample, _)| SampleId(dataset.index.key(*sample))).collect());
    Ok(found)
}

impl Missing {
    /// Makes the shard. Says why it does not become what it was.
    fn make(
        &self,
        dataset: &Dataset,
        layout: &Layout,
        effort: Effort,
        readers: &Workers,
        progress: &CommandProgress,
        stop: &Stop,
    ) -> Result<Option<String>, Error> {
        let catalogue = match &self.source {
            Ok(catalogue) => catalogue,
            Err(fault) => return Ok(Some(fault.clone())),
        };
        let order: Vec<SampleId> = (0..catalogue.len()).map(SampleId).collect();
        let mut fault = Some("the index has no dictionary".to_owned());
        for recipe in &self.recipes(dataset, layout) {
            let packing = Packing {
                catalogue,
                plan: &PackPlan::of_shards([order.as_slice()]),
                recipe,
                id: "",
                folder: &dataset.dir,
                to: None,
                first_shard: self.shard.0,
                first_key: 0,
                part: Part::WHOLE,
                first_position: 0,
                // What is bad now is told as a difference.
                on_bad: OnBad::Skip,
                effort,
                progress,
                stop,
            };
            fault = packing.run_again(dataset, &self.samples, readers)?;
            if fault.is_none() {
                break;
            }
        }
        Ok(fault)
    }

    /// The recipes by which its records may have been made: one for each dictionary. The index
    /// tells which kinds of images were compressed.
    fn recipes(&self, dataset: &Dataset, layout: &Layout) -> Vec<Recipe> {
        // The first datasets have neither the ends of fields nor their order.
        let index = &dataset.index;
        let is_old = |sample| index.fields(sample).is_some() && index.field_ends(sample).next().is_none();
        let fields_as_listed = self.samples.iter().any(|(sample, _)| is_old(*sample));
        let recipe = |zstd| Recipe { transform: layout.transform, zstd, cls: layout.cls, fields_as_listed };
        let level = match layout.compression {
            Compression::None | Compression::Auto => ZSTD_LEVEL,
            Compression::Zstd { level } => level,
        };
        let compressed = self.samples.iter().filter(|(_, entry)| entry.codec.is_compressed());
        let media: BTreeSet<Media> = compressed.clone().map(|(_, entry)| entry.media).collect();
        if media.is_empty() {
            return vec![recipe(None)];
        }
        let zstd = |dictionary: &[u8]| {
            let media = media.iter().copied().collect();
            recipe(Some(Zstd { level, media, dictionary: dictionary.to_owned() }))
        };
        match compressed.clone().any(|(_, entry)| entry.codec == Codec::ZstdDictionary) {
            true => dataset.index.dictionaries().map(zstd).collect(),
            false => vec![zstd(&[])],
        }
    }
}
