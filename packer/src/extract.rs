//! `extract`: gives the ImageFolder back, byte for byte.
//!
//! What is written where follows from the index's paths alone, never from names in a shard, and only below a fresh
//! folder.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use serde::Serialize;
use shade_dataset::{Decompressor, Dictionaries, Mismatch, ReadFault, ReadMemory};
use shade_formats::checksum::crc32c;
use shade_formats::index::{Entry, INDEX_FILE};
use shade_formats::shard::{MEMBER_HEADER_BYTES, padded_len, parse_fields};
use shade_formats::{SampleId, ShardId};

use crate::dataset::{Dataset, Shards};
use crate::error::Error;
use crate::files;
use crate::interrupt::Stop;
use crate::pack::Gate;
use crate::progress::{Progress, Shown};
use crate::publish::Partial;
use crate::report::{human_bytes, megabytes_per_second, path_as_text};
use crate::spans::{SPANS_MEMORY_BYTES, Span, SpanMemory, cut};
use crate::workers::Workers;

/// Said of datasets whose images were transformed.
const TRANSFORMED: &str = "images were transformed when they were packed: the files keep their names, but hold the transformed images";

/// What was given back.
#[derive(Clone, Debug, Serialize)]
pub struct Extracted {
    /// The ImageFolder's directory.
    #[serde(serialize_with = "path_as_text")]
    pub folder: PathBuf,
    /// Number of images written.
    pub samples: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Number of extra fields written, a file each.
    pub fields: u64,
    /// Something to know about the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
}

/// Writes every sample of the dataset in `dir` to its original path below `out`, and its fields beside it.
///
/// The files are not individually synced to disk: the dataset is still there.
///
/// # Errors
/// There is no dataset, it is damaged, names a path outside `out` or one path twice; a field would take the place of
/// another file; `out` exists; the operating system refuses; or [`Error::Interrupted`]. Nothing is left behind then.
pub fn extract(
    dir: &Path,
    out: &Path,
    jobs: NonZeroUsize,
    shown: Shown,
    stop: &Stop,
) -> Result<Extracted, Error> {
    let start = Instant::now();
    let dataset = Dataset::open(dir)?;
    let folders = check_paths(&dataset)?;
    let workers = Workers::start(jobs)?;
    let mut partial = Partial::create(out)?;
    for folder in &folders {
        // Parents come first in the set's order.
        let folder = partial.path().join(folder);
        fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
    }
    let shards = dataset.samples_by_shard();
    let bytes = shards.iter().flatten().map(|(_, entry)| u64::from(entry.raw_len)).sum();
    let ids = (0u32..).map(ShardId).zip(&shards);
    let spans: Vec<Span> = ids.flat_map(|(shard, samples)| cut(&dataset, shard, samples)).collect();
    let extracting = Extracting {
        dataset: &dataset,
        files: dataset.shards(stop),
        dictionaries: dataset.dictionaries(),
        shards: &shards,
        folder: File::open(partial.path()).map_err(Error::io("open", partial.path()))?,
        memory: Gate::new(SPANS_MEMORY_BYTES),
        spare: SpanMemory::default(),
        progress: Progress::start(shown, "extracting", dataset.index.len().into(), bytes),
        stop,
    };
    let fields = workers.each(&spans, stop, |span| extracting.span(span))?.into_iter().sum();
    extracting.progress.finish();
    partial.publish()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Extracted {
        folder: out.to_owned(),
        samples: dataset.index.len(),
        bytes,
        fields,
        note: dataset.is_transformed().then_some(TRANSFORMED),
        seconds,
        mb_per_s: megabytes_per_second(bytes, seconds),
    })
}

/// What all threads share.
struct Extracting<'a> {
    dataset: &'a Dataset,
    files: Shards<'a>,
    dictionaries: Dictionaries,
    shards: &'a [Vec<(SampleId, Entry)>],
    /// Where everything goes.
    folder: File,
    memory: Gate,
    spare: SpanMemory,
    progress: Progress,
    stop: &'a Stop,
}

impl Extracting<'_> {
    /// Writes the samples of a span; gives the number of their fields.
    fn span(&self, span: &Span) -> Result<u64, Error> {
        let samples = self.shards.get(span.shard.index()).and_then(|shard| shard.get(span.samples.clone()));
        let samples = samples.unwrap_or_default();
        if samples.is_empty() {
            return Ok(0);
        }
        let room = self.memory.pass(span.len(), self.stop)?;
        let mut memory = self.spare.take();
        let (bytes, fault) = self.files.read(span.shard, span.bytes.clone(), &mut memory)?;
        if let Some(fault) = fault.filter(ReadFault::is_not_the_record_s) {
            return Err(fault.into());
        }
        let shard = self.dataset.shard_path(span.shard);
        let mut zstd = (Decompressor::new(self.dictionaries.clone()), Vec::new());
        let mut again = ReadMemory::default();
        let mut fields = 0;
        for (sample, entry) in samples {
            self.stop.check()?;
            let extent = self.dataset.extent(*sample, entry);
            let place = |at: u64| usize::try_from(at.saturating_sub(span.bytes.start)).unwrap_or(usize::MAX);
            let got = match bytes.get(place(extent.start)..place(extent.end)) {
                Some(bytes) => Ok(bytes),
                // Behind a byte that cannot be read all may be in order; and a damaged index may have samples overlap.
                None => match self.files.read(span.shard, extent, &mut again)? {
                    (bytes, None) => Ok(&*bytes),
                    (_, Some(fault)) => Err(fault),
                },
            };
            let damaged = |fault: &dyn Display| Error::Damaged {
                path: shard.clone(),
                fault: format!(
                    "sample {sample} ({}) at byte {}: {fault}",
                    self.dataset.path_text(*sample),
                    entry.offset
                ),
            };
            let got = got.map_err(|fault| damaged(&format_args!("cannot be read: {fault}")))?;
            fields += self.sample(*sample, entry, got, &mut zstd, &damaged)?;
            self.progress.add(1, entry.raw_len.into());
        }
        self.spare.give_back(memory);
        drop(room);
        Ok(fields)
    }

    /// Writes a sample and its fields; gives their number. `bytes` are those of its extent.
    fn sample(
        &self,
        sample: SampleId,
        entry: &Entry,
        bytes: &[u8],
        (zstd, raw): &mut (Decompressor, Vec<u8>),
        damaged: &dyn Fn(&dyn Display) -> Error,
    ) -> Result<u64, Error> {
        let index = &self.dataset.index;
        let path = self.dataset.path_text(sample);
        let data = bytes.get(MEMBER_HEADER_BYTES..).unwrap_or_default();
        let stored = data.get(..entry.stored_len as usize).unwrap_or_default();
        let record = zstd.unpack(stored, entry, raw).map_err(|fault| damaged(&fault))?;
        self.write(&path, record, &|| "another sample's field has this very name".to_owned())?;
        let Some(span) = index.fields(sample) else { return Ok(0) };
        let padded = usize::try_from(padded_len(entry.stored_len.into())).unwrap_or(usize::MAX);
        let fields = data.get(padded..).unwrap_or_default();
        Mismatch::compare(crc32c(fields), span.crc32c)
            .map_err(|fault| damaged(&format_args!("its fields: {fault}")))?;
        let fields = parse_fields(fields, index.key(sample), span.offset).map_err(|fault| damaged(&fault))?;
        for field in &fields {
            let name = field_path(&path, field.name);
            let taken =
                || format!("it is there already, and the field '{}' of {path} would be, too", field.name);
            self.write(&name, field.bytes, &taken)?;
        }
        Ok(fields.len() as u64)
    }

    /// Makes a file that is not there. `taken` says why it may be.
    fn write(&self, path: &str, bytes: &[u8], taken: &dyn Fn() -> String) -> Result<(), Error> {
        match create_below(&self.folder, path) {
            // Not synced, so an error that the store tells when the file is closed is told nowhere else.
            Ok(mut file) => file
                .write_all(bytes)
                .and_then(|()| files::close(file))
                .map_err(Error::io("write", Path::new(path))),
            Err(Errno::EXIST) => Err(Error::Source { path: path.into(), fault: taken() }),
            Err(fault) => Err(Error::io("create", Path::new(path))(fault.into())),
        }
    }
}

/// Creates the file `path` below `folder`; whoever plants a link there meanwhile does not lead it elsewhere.
fn create_below(folder: &File, path: &str) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    match openat2(folder, path, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
        // Kernels before 5.6 and some containers do not have it.
        Err(Errno::NOSYS | Errno::PERM) => openat(folder, path, flags, mode).map(File::from),
        other => other.map(File::from),
    }
}

/// Where a field of the sample at `path` goes.
fn field_path(path: &str, name: &str) -> String {
    let file = path.rfind('/').map_or(0, |slash| slash + 1);
    let stem = match path.rfind('.') {
        Some(dot) if dot > file => path.get(..dot).unwrap_or(path),
        _ => path,
    };
    format!("{stem}.{name}")
}

/// Makes certain that no sample's path leads out of the folder they will be joined to, and that each has its own; gives the
/// folders they need, parents before what is in them.
fn check_paths(dataset: &Dataset) -> Result<BTreeSet<&str>, Error> {
    let refuse = |fault| Error::Damaged { path: dataset.dir.join(INDEX_FILE), fault };
    let mut paths = Vec::with_capacity(dataset.index.len() as usize);
    let mut folders = BTreeSet::new();
    for sample in (0..dataset.index.len()).map(SampleId) {
        let bytes = dataset.index.path(sample).unwrap_or_default();
        let path = std::str::from_utf8(bytes).ok().filter(|path| is_safe_path(path)).ok_or_else(|| {
            let text = String::from_utf8_lossy(bytes);
            refuse(format!("sample {sample} has the path {text:?}, which may lead elsewhere"))
        })?;
        paths.push((path, sample));
        let mut folder = path;
        while let Some((parent, _)) = folder.rsplit_once('/') {
            if !folders.insert(parent) {
                break;
            }
            folder = parent;
        }
    }
    paths.sort_unstable();
    for pair in paths.windows(2) {
        if let [(path, first), (again, second)] = pair
            && path == again
        {
            return Err(refuse(format!("samples {first} and {second} have the same path '{path}'")));
        }
    }
    match paths.iter().find(|(path, _)| folders.contains(path)) {
        Some((path, sample)) => {
            Err(refuse(format!("sample {sample} has the path '{path}', which is another's folder")))
        }
        None => Ok(folders),
    }
}

/// Whether this is a relative path of plain names: no root, no `.` or `..`, no empty name, no NUL.
pub(crate) fn is_safe_path(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

impl std::fmt::Display for Extracted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(note) = self.note {
            writeln!(f, "note: {note}")?;
        }
        let (folder, samples, bytes) = (self.folder.display(), self.samples, human_bytes(self.bytes));
        let fields = if self.fields == 0 { String::new() } else { format!(", {} fields", self.fields) };
        write!(
            f,
            "{folder}: {samples} files, {bytes}{fields} in {:.1} s, {:.1} MB/s",
            self.seconds, self.mb_per_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{field_path, is_safe_path};

    #[test]
    fn only_plain_relative_paths_are_safe() {
        for path in ["cat/1.png", "a", ".hidden/x.jpg", "a b/..x/y", "a/...", "ü/ü.png"] {
            assert!(is_safe_path(path), "{path}");
        }
        for path in ["", "/", "/etc/passwd", "..", "a/../b", "../a", ".", "./a", "a/.", "a//b", "a/", "a\0b"]
        {
            assert!(!is_safe_path(path), "{path:?}");
        }
    }

    #[test]
    fn fields_lie_beside_their_image() {
        for (path, name, expected) in [
            ("cat/1.png", "json", "cat/1.json"),
            ("a.b/1", "mask.png", "a.b/1.mask.png"),
            ("cat/.png", "txt", "cat/.png.txt"),
            ("x.tar.jpg", "txt", "x.tar.txt"),
        ] {
            assert_eq!(field_path(path, name), expected);
        }
    }
}
