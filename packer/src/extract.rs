//! `extract`: gives the ImageFolder back, byte for byte.

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use shade_formats::index::INDEX_FILE;
use shade_formats::{SampleId, ShardId};

use crate::dataset::{Dataset, RecordReader};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::progress::{Progress, Shown};
use crate::publish::Partial;
use crate::report::{human_bytes, megabytes_per_second, path_as_text};
use crate::workers::Workers;

/// What was given back.
#[derive(Clone, Debug, Serialize)]
pub struct Extracted {
    /// The ImageFolder's directory.
    #[serde(serialize_with = "path_as_text")]
    pub folder: PathBuf,
    /// Number of files written.
    pub samples: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
}

/// Writes every sample of the dataset in `dir` to its original path below `out`, one shard per worker.
///
/// The files are not individually synced to disk: the dataset is still there.
///
/// # Errors
/// There is no dataset, it is damaged or names a path outside `out`; `out` exists; the operating system refuses; or
/// [`Error::Interrupted`]. Nothing is left behind then.
pub fn extract(
    dir: &Path,
    out: &Path,
    jobs: NonZeroUsize,
    shown: Shown,
    stop: &Stop,
) -> Result<Extracted, Error> {
    let start = Instant::now();
    let dataset = Dataset::open(dir)?;
    let paths = safe_paths(&dataset)?;
    let workers = Workers::start(jobs)?;
    let partial = Partial::create(out)?;
    let mut folders: Vec<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        let folder = partial.path().join(folder);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    }
    let shards = dataset.samples_by_shard();
    let bytes = shards.iter().flatten().map(|(_, entry)| u64::from(entry.raw_len)).sum();
    let progress = Progress::start(shown, "extracting", dataset.index.len().into(), bytes);
    let numbered: Vec<_> = (0u32..).map(ShardId).zip(&shards).collect();
    workers.each(&numbered, stop, |&(shard, samples)| {
        let shard = dataset.shard_path(shard);
        let mut records = RecordReader::open(&shard).map_err(Error::io("open", &shard))?;
        for (sample, entry) in samples {
            stop.check()?;
            let Some(path) = paths.get(sample.index()) else { continue };
            let record = records.read(&dataset.index, entry).map_err(|fault| Error::Damaged {
                path: shard.clone(),
                fault: format!("sample {sample} ({}) at byte {}: {fault}", path.display(), entry.offset),
            })?;
            let path = partial.path().join(path);
            // A path that two samples share would otherwise lose one of them.
            let mut file = File::create_new(&path).map_err(Error::io("create", &path))?;
            file.write_all(record).map_err(Error::io("write", &path))?;
            progress.add(1, entry.raw_len.into());
        }
        Ok(())
    })?;
    progress.finish();
    partial.publish()?;
    let seconds = start.elapsed().as_secs_f64();
    let mb_per_s = megabytes_per_second(bytes, seconds);
    Ok(Extracted { folder: out.to_owned(), samples: dataset.index.len(), bytes, seconds, mb_per_s })
}

/// Every sample's path, once it is certain that none leads out of the folder they will be joined to.
fn safe_paths(dataset: &Dataset) -> Result<Vec<PathBuf>, Error> {
    let path = |sample| {
        let bytes = dataset.index.path(sample).unwrap_or_default();
        safe_path(bytes).ok_or_else(|| Error::Damaged {
            path: dataset.dir.join(INDEX_FILE),
            fault: format!(
                "sample {sample} has the path {:?}, which may lead elsewhere",
                String::from_utf8_lossy(bytes)
            ),
        })
    };
    (0..dataset.index.len()).map(SampleId).map(path).collect()
}

/// A relative path of plain names: no root, no `.` or `..`, no empty name, no NUL.
fn safe_path(bytes: &[u8]) -> Option<PathBuf> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    let plain = |name: &str| {
        let mut parts = Path::new(name).components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
    };
    text.split('/').all(plain).then(|| PathBuf::from(text))
}

impl std::fmt::Display for Extracted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (folder, samples, bytes) = (self.folder.display(), self.samples, human_bytes(self.bytes));
        write!(f, "{folder}: {samples} files, {bytes} in {:.1} s, {:.1} MB/s", self.seconds, self.mb_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::safe_path;

    #[test]
    fn only_plain_relative_paths_are_safe() {
        for path in ["cat/1.png", "a", ".hidden/x.jpg", "a b/..x/y", "a/...", "ü/ü.png"] {
            assert!(safe_path(path.as_bytes()).is_some(), "{path}");
        }
        for path in ["", "/", "/etc/passwd", "..", "a/../b", "../a", ".", "./a", "a/.", "a//b", "a/", "a\0b"]
        {
            assert!(safe_path(path.as_bytes()).is_none(), "{path:?}");
        }
        assert!(safe_path(b"\xff.png").is_none());
    }
}
