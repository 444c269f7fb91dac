//! A file of runs of samples, and an outline that says what they are.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shade_dataset::regular;
use shade_formats::checksum::crc32c;

use crate::error::Error;
use crate::files::PartialFile;
use crate::options::TOOL;

/// The header is a line of text of this length: what the file is, its version, and the place, the
/// length and the checksum of the outline.
const HEADER_BYTES: usize = 61;
/// Raised with every change of the file's form.
const VERSION: u32 = 2;

/// What a file of runs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plan,
    List,
}

/// A run in the table of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u32, u32)", into = "(u64, u32, u32)")]
pub(super) struct Run {
    bytes: u64,
    crc32c: u32,
    pub(super) samples: u32,
}

#[derive(Serialize, Deserialize)]
struct Contents<O> {
    /// The program and its version.
    tool: String,
    outline: O,
    runs: Vec<Run>,
}

pub(super) struct RunsWriter {
    partial: PartialFile,
    file: BufWriter<File>,
    kind: Kind,
    at: u64,
    runs: Vec<Run>,
}

/// A file that is open, and whose outline was found whole.
#[derive(Debug)]
pub(crate) struct RunsFile {
    pub(super) path: PathBuf,
    file: File,
    /// Where each run begins.
    offsets: Vec<u64>,
    pub(super) runs: Vec<Run>,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::List => "list",
        }
    }

    /// What the header begins with.
    fn magic(self, version: u32) -> String {
        format!("shade-pack {} {version} ", self.name())
    }
}

impl RunsWriter {
    pub(super) fn create(path: &Path, kind: Kind) -> Result<Self, Error> {
        let (partial, file) = PartialFile::create(path.to_owned())?;
        let mut file = BufWriter::new(file);
        file.write_all(&[0; HEADER_BYTES]).map_err(partial.fault("write"))?;
        Ok(Self { partial, file, kind, at: HEADER_BYTES as u64, runs: Vec::new() })
    }

    pub(super) fn run(&mut self, samples: u32, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(self.partial.fault("write"))?;
        self.runs.push(Run { bytes: bytes.len() as u64, crc32c: crc32c(bytes), samples });
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Ends the file and gives it its name.
    pub(super) fn finish(self, outline: &impl Serialize, sync: bool) -> Result<(), Error> {
        let Self { partial, mut file, kind, at, runs } = self;
        let contents = Contents { tool: TOOL.to_owned(), outline, runs };
        let bytes = serde_json::to_vec(&contents).map_err(|fault| partial.fault("write")(fault.into()))?;
        file.write_all(&bytes).map_err(partial.fault("write"))?;
        let file = file.into_inner().map_err(|fault| partial.fault("write")(fault.into_error()))?;
        let (magic, len, crc) = (kind.magic(VERSION), bytes.len(), crc32c(&bytes));
        let header = format!("{magic}{at:016x} {len:016x} {crc:08x}\n");
        file.write_all_at(header.as_bytes(), 0).map_err(partial.fault("write"))?;
        partial.publish(&file, sync)
    }
}

impl RunsFile {
    /// Opens a file and reads its outline.
    ///
    /// # Errors
    /// The file cannot be read or is damaged; or another version of the program wrote it, which
    /// may cut and compress differently: usage.
    pub(super) fn open<O: DeserializeOwned>(path: &Path, kind: Kind) -> Result<(Self, O), Error> {
        let damaged = |fault: String| Error::Damaged { path: path.to_owned(), fault };
        let file = regular::open(path).map_err(Error::io("open", path))?;
        let file_bytes = file.metadata().map_err(Error::io("look at", path))?.len();
        let mut header = [0; HEADER_BYTES];
        if file_bytes < HEADER_BYTES as u64 {
            return Err(damaged(format!("it has {file_bytes} bytes, less than its header")));
        }
        file.read_exact_at(&mut header, 0).map_err(Error::io("read", path))?;
        let header = std::str::from_utf8(&header).unwrap_or_default();
        let Some(rest) = header.strip_prefix(&kind.magic(VERSION)) else {
            let family = format!("shade-pack {} ", kind.name());
            return Err(match header.strip_prefix(&family) {
                Some(_) => other_version(path, "another version"),
                None => damaged(format!("it does not begin with '{}'", family.trim_end())),
            });
        };
        let mut numbers = rest.split_whitespace().map(|number| u64::from_str_radix(number, 16).ok());
        let mut next = || numbers.next().flatten();
        let (Some(at), Some(len), Some(crc)) = (next(), next(), next()) else {
            return Err(damaged("its header has no place of the outline".to_owned()));
        };
        if at.checked_add(len) != Some(file_bytes) || at < HEADER_BYTES as u64 {
            return Err(damaged(format!(
                "its outline of {len} bytes is at byte {at}, but the file has {file_bytes} bytes"
            )));
        }
        let bytes = read(&file, path, at, len)?;
        if u64::from(crc32c(&bytes)) != crc {
            return Err(damaged(format!(
                "its outline at byte {at} has crc32c {:08x}, expected {crc:08x}",
                crc32c(&bytes)
            )));
        }
        let tool: Tool = serde_json::from_slice(&bytes).map_err(|fault| damaged(fault.to_string()))?;
        if tool.tool != TOOL {
            return Err(other_version(path, &tool.tool));
        }
        let contents: Contents<O> =
            serde_json::from_slice(&bytes).map_err(|fault| damaged(format!("its outline: {fault}")))?;
        let mut offsets = Vec::with_capacity(contents.runs.len());
        let mut end = Some(HEADER_BYTES as u64);
        for run in &contents.runs {
            offsets.extend(end);
            end = end.and_then(|end| end.checked_add(run.bytes));
        }
        if end != Some(at) {
            return Err(damaged(format!("its runs do not end at byte {at}, where its outline begins")));
        }
        let path = path.to_owned();
        Ok((Self { path, file, offsets, runs: contents.runs }, contents.outline))
    }

    /// The bytes of a run, once they are found whole.
    pub(super) fn read(&self, number: usize) -> Result<Vec<u8>, Error> {
        let (Some(&at), Some(run)) = (self.offsets.get(number), self.runs.get(number)) else {
            return Err(self.damaged(format!("it has no run {number}")));
        };
        // Inside the file: the runs end where the outline begins.
        let bytes = read(&self.file, &self.path, at, run.bytes)?;
        let found = crc32c(&bytes);
        if found != run.crc32c {
            let expected = run.crc32c;
            return Err(self.damaged(format!(
                "run {number} at byte {at} has crc32c {found:08x}, expected {expected:08x}"
            )));
        }
        Ok(bytes)
    }

    pub(super) fn damaged(&self, fault: String) -> Error {
        Error::Damaged { path: self.path.clone(), fault }
    }
}

/// The part of an outline that all versions have.
#[derive(Deserialize)]
struct Tool {
    tool: String,
}

/// `len` bytes at `at`, which lie inside the file.
fn read(file: &File, path: &Path, at: u64, len: u64) -> Result<Vec<u8>, Error> {
    let len = usize::try_from(len).map_err(|fault| Error::io("read", path)(std::io::Error::other(fault)))?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).map_err(Error::io("read", path))?;
    Ok(bytes)
}

fn other_version(path: &Path, tool: &str) -> Error {
    Error::Usage(format!(
        "{} was written by {tool}, this is {TOOL}: use one version on all machines, or remove it and begin anew",
        path.display()
    ))
}

impl From<(u64, u32, u32)> for Run {
    fn from((bytes, crc32c, samples): (u64, u32, u32)) -> Self {
        Self { bytes, crc32c, samples }
    }
}

impl From<Run> for (u64, u32, u32) {
    fn from(run: Run) -> Self {
        (run.bytes, run.crc32c, run.samples)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(path: &Path) {
        let mut writer = RunsWriter::create(path, Kind::Plan).unwrap();
        for (samples, bytes) in [(1, &b"first\n"[..]), (0, b""), (2, b"two\nlines\n")] {
            writer.run(samples, bytes).unwrap();
        }
        writer.finish(&"what it is", true).unwrap();
    }

    #[test]
    fn runs_come_back() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("runs");
        written(&path);
        let (file, outline): (_, String) = RunsFile::open(&path, Kind::Plan).unwrap();
        assert_eq!(outline, "what it is");
        let runs: Vec<Vec<u8>> = (0..3).map(|number| file.read(number).unwrap()).collect();
        assert_eq!(runs, [&b"first\n"[..], b"", b"two\nlines\n"]);
        assert_eq!(file.runs.iter().map(|run| run.samples).collect::<Vec<_>>(), [1, 0, 2]);
        assert!(file.read(3).is_err());
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn any_damage_is_told_and_nothing_panics() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("runs");
        written(&path);
        let whole = fs::read(&path).unwrap();
        let all = |path: &Path| -> Result<(), Error> {
            let (file, _): (_, String) = RunsFile::open(path, Kind::Plan)?;
            (0..file.runs.len()).try_for_each(|number| file.read(number).map(drop))
        };
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            fs::write(&path, &bent).unwrap();
            let is_blank = [b' ', b'\n'].contains(&whole[at]) && at < HEADER_BYTES;
            assert!(all(&path).is_err() || is_blank, "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(all(&path).is_err(), "cut at {at}");
        }
        fs::write(&path, &whole).unwrap();
        all(&path).unwrap();
        let list: Result<(RunsFile, String), Error> = RunsFile::open(&path, Kind::List);
        assert!(list.is_err(), "a plan is no list");
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("runs");
        written(&path);
        let text = String::from_utf8(fs::read(&path).unwrap()).unwrap();
        fs::write(&path, text.replacen("plan 2", "plan 1", 1)).unwrap();
        let opened: Result<(RunsFile, String), Error> = RunsFile::open(&path, Kind::Plan);
        assert!(matches!(opened, Err(Error::Usage(text)) if text.contains("one version on all machines")));
    }
}
