//! Measures what packing would gain on this very store: some files are opened and read, and then
//! read again without being opened, as records of a shard are.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rayon::prelude::*;
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use shade_dataset::regular;

/// Files that are read: enough for a rate to within some percent, done within a second where a
/// store takes 2 ms an operation.
pub(super) const FILES: usize = 512;

/// What was measured, with as many files at a time as `--in-flight` says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Probe {
    /// Files that were read for it.
    pub(super) files: usize,
    /// Files opened and read, a second.
    pub(super) files_per_s: f64,
    /// The same files read again while they were open, a second: as records of a shard are.
    pub(super) records_per_s: f64,
}

/// Reads these files; `None` if one of them cannot be read, which is told elsewhere.
pub(super) fn probe(paths: &[PathBuf]) -> Option<Probe> {
    let start = Instant::now();
    let open: Vec<(File, usize)> = paths.par_iter().map(|path| opened(path)).collect::<Option<_>>()?;
    let opening = start.elapsed().as_secs_f64();
    // What was read just now would come out of memory, and say nothing of the store.
    open.iter().for_each(|(file, _)| forget(file));
    let start = Instant::now();
    let again = open.par_iter().map(|(file, len)| read(file, *len)).collect::<Option<Vec<usize>>>()?;
    let reading = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = |seconds: f64| again.len() as f64 / seconds.max(1e-9);
    Some(Probe { files: again.len(), files_per_s: rate(opening), records_per_s: rate(reading) })
}

fn opened(path: &Path) -> Option<(File, usize)> {
    let file = regular::open(path).ok()?;
    // Indexing may have read its beginning.
    forget(&file);
    let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
    read(&file, len)?;
    Some((file, len))
}

fn forget(file: &File) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

fn read(file: &File, len: usize) -> Option<usize> {
    file.read_exact_at(&mut vec![0; len], 0).ok()?;
    Some(len)
}
