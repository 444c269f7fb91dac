//! `create`: an ImageFolder becomes a dataset.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use shade_formats::index::{Codec, Entry, INDEX_FILE, Index, IndexBuilder, Shard};
use shade_formats::{FormatError, SampleId};

use crate::config::{Compression, CreateConfig};
use crate::error::Error;
use crate::image_folder::{ImageFolder, scan};
use crate::interrupt::Stop;
use crate::pack::{PackedShard, Packing};
use crate::plan::plan;
use crate::progress::{Progress, Shown, note};
use crate::publish::Partial;
use crate::report::{human_bytes, megabytes_per_second, path_as_text};
use crate::workers::Workers;

/// What was made.
#[derive(Clone, Debug, Serialize)]
pub struct Created {
    /// The dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// What identifies its content, in hexadecimal.
    pub content_id: String,
    /// Number of samples.
    pub samples: u32,
    /// Number of classes.
    pub classes: u32,
    /// Number of shards.
    pub shards: u32,
    /// Bytes read from the source.
    pub source_bytes: u64,
    /// Bytes of all shards and the index.
    pub bytes: u64,
    /// Records stored compressed.
    pub compressed: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// Source megabytes (10^6) a second.
    pub mb_per_s: f64,
}

/// The pack options that shape the bytes, as the index records them.
#[derive(Serialize)]
struct Options {
    tool: &'static str,
    shuffle: bool,
    seed: Option<u64>,
    shard_bytes: u64,
    compress: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    zstd: Option<&'static str>,
}

/// Makes the dataset.
///
/// # Errors
/// See [`scan`], [`Packing::pack_shard`] and [`Partial`]. Nothing is left behind then.
pub fn create(config: &CreateConfig, shown: Shown, stop: &Stop) -> Result<Created, Error> {
    let start = Instant::now();
    if !config.source.is_dir() {
        return Err(Error::Usage(format!("{} is not a directory", config.source.display())));
    }
    refuse_inside(&config.out, &config.source)?;
    let partial = Partial::create(&config.out)?;
    note(shown, format_args!("listing {}", config.source.display()));
    let workers = Workers::start(config.jobs)?;
    let folder = workers.install(|| scan(&config.source, stop))?;
    let sizes: Vec<u64> = folder.samples.iter().map(|sample| sample.bytes).collect();
    let source_bytes = sizes.iter().sum();
    let plan = plan(&sizes, config.shuffle, config.shard_bytes);
    let progress = Progress::start(shown, "packing", sizes.len() as u64, source_bytes);
    let packing = Packing {
        source: &config.source,
        samples: &folder.samples,
        out: partial.path(),
        compression: config.compression,
        progress: &progress,
        stop,
    };
    let shards = workers.each_shard(&plan.shards, stop, |shard, order| packing.pack_shard(shard, order))?;
    progress.finish();
    let index = build_index(&folder, &shards, config)
        .map_err(|source| Error::Index { path: config.out.clone(), source })?;
    write_index(partial.path(), &index)?;
    stop.check()?;
    let bytes = shards.iter().map(|shard| shard.bytes).sum::<u64>() + index.len() as u64;
    let compressed = shards.iter().flat_map(|shard| &shard.entries);
    let compressed = compressed.filter(|(_, entry)| entry.codec != Codec::None).count();
    let index = Index::open(index).map_err(|source| Error::Index { path: config.out.clone(), source })?;
    partial.publish()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Created {
        dataset: config.out.clone(),
        content_id: index.content_id().to_string(),
        samples: index.len(),
        classes: index.class_count(),
        shards: index.shard_count(),
        source_bytes,
        bytes,
        compressed: compressed as u64,
        seconds,
        mb_per_s: megabytes_per_second(source_bytes, seconds),
    })
}

/// A dataset inside its source would be a class of it the next time.
fn refuse_inside(out: &Path, source: &Path) -> Result<(), Error> {
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Ok(inside)) = (fs::canonicalize(parent), fs::canonicalize(source)) else {
        return Ok(());
    };
    if parent.starts_with(&inside) {
        let text =
            format!("{} lies inside {}: choose a destination outside", out.display(), source.display());
        return Err(Error::Usage(text));
    }
    Ok(())
}

fn build_index(
    folder: &ImageFolder,
    shards: &[PackedShard],
    config: &CreateConfig,
) -> Result<Vec<u8>, FormatError> {
    let mut index = IndexBuilder::new();
    for shard in shards {
        let records = u32::try_from(shard.entries.len()).unwrap_or(u32::MAX);
        index.push_shard(Shard { name: &shard.name, bytes: shard.bytes, crc32c: shard.crc32c, records })?;
    }
    for class in &folder.classes {
        index.push_class(class.as_bytes())?;
    }
    let mut entries: Vec<&(SampleId, Entry)> = shards.iter().flat_map(|shard| &shard.entries).collect();
    entries.sort_unstable_by_key(|(sample, _)| *sample);
    for ((_, entry), sample) in entries.into_iter().zip(&folder.samples) {
        index.push_sample(entry, sample.path.as_bytes())?;
    }
    let options = Options {
        tool: concat!("shade-pack ", env!("CARGO_PKG_VERSION")),
        shuffle: config.shuffle.is_some(),
        seed: config.shuffle,
        shard_bytes: config.shard_bytes,
        compress: config.compression.to_string(),
        // Another version of zstd may write other bytes for the same record.
        zstd: (config.compression != Compression::None).then(zstd::zstd_safe::version_string),
    };
    // Plain fields with text keys always serialise.
    index.set_options(&serde_json::to_string(&options).unwrap_or_default());
    index.finish()
}

fn write_index(dir: &Path, index: &[u8]) -> Result<(), Error> {
    let path = dir.join(INDEX_FILE);
    let mut file = File::create_new(&path).map_err(Error::io("create", &path))?;
    file.write_all(index).map_err(Error::io("write", &path))?;
    file.sync_all().map_err(Error::io("sync", &path))
}

impl std::fmt::Display for Created {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { samples, classes, shards, compressed, seconds, .. } = self;
        writeln!(f, "{}: {samples} samples of {classes} classes in {shards} shards", self.dataset.display())?;
        let (source, bytes) = (human_bytes(self.source_bytes), human_bytes(self.bytes));
        writeln!(f, "{source} read, {bytes} written, {compressed} records compressed")?;
        writeln!(f, "{seconds:.1} s, {:.1} MB/s", self.mb_per_s)?;
        write!(f, "content id {}", self.content_id)
    }
}
