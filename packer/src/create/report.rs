//! What creating did, for people and for programs.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::catalogue::Bad;
use crate::changes::Changes;
use crate::report::{human_bytes, path_as_text};

/// What was made, or would be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Created {
    /// The dataset's directory; with splits, the directory of their datasets.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// What it was made from.
    #[serde(serialize_with = "path_as_text")]
    pub source: PathBuf,
    /// Whether nothing was written: `--dry-run`, or the dataset was there already.
    pub unchanged: bool,
    /// One for the dataset, or one for each split.
    pub parts: Vec<CreatedPart>,
    /// Bytes of the images that are in it.
    pub source_bytes: u64,
    /// Bytes of those that this run has read: fewer when it went on where an earlier one was interrupted.
    pub read_bytes: u64,
    /// What was left out.
    pub bad: Vec<Bad>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) read a second.
    pub mb_per_s: f64,
}

/// One dataset of those that were made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CreatedPart {
    /// The split's name; none for a dataset of the whole source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// What identifies its content, in hexadecimal; none before it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// Number of samples.
    pub samples: u32,
    /// Number of classes.
    pub classes: usize,
    /// Number of shards.
    pub shards: usize,
    /// Bytes of all shards and the index; before it is made, of the images in the source.
    pub bytes: u64,
    /// Records stored compressed.
    pub compressed: u64,
    /// What zstd would save of raw pixels that are stored as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zstd_would_save_percent: Option<u64>,
    /// How the source differs from what was packed; none if it was packed just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

impl Created {
    /// Whether files of the source were written to since they were packed, and are as long as they were.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        self.parts.iter().filter_map(|part| part.changes.as_ref()).any(|changes| changes.touched.count > 0)
    }
}

impl std::fmt::Display for Created {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for bad in &self.bad {
            writeln!(f, "left out {bad}")?;
        }
        for part in &self.parts {
            let of_part = |path: &Path| part.split.as_ref().map_or_else(|| path.to_owned(), |s| path.join(s));
            let (name, source) = (of_part(&self.dataset), of_part(&self.source));
            let CreatedPart { samples, classes, shards, compressed, .. } = part;
            let bytes = human_bytes(part.bytes);
            writeln!(f, "{}: {samples} samples of {classes} classes in {shards} shards", name.display())?;
            match &part.content_id {
                Some(id) => writeln!(f, "{bytes} written, {compressed} records compressed, content id {id}")?,
                None => writeln!(f, "{bytes} in the source")?,
            }
            if let Some(percent) = part.zstd_would_save_percent {
                writeln!(
                    f,
                    "note: raw pixels are stored as they are, which trains fastest; zstd would save {percent} % \
                     (--compress zstd)"
                )?;
            }
            if let Some(changes) = &part.changes {
                f.write_str(&changes.told(&source, &name))?;
            }
        }
        if !self.bad.is_empty() {
            writeln!(f, "{} samples were left out", self.bad.len())?;
        }
        if self.unchanged {
            return f.write_str("nothing was written");
        }
        let (read, rate) = (human_bytes(self.read_bytes), self.mb_per_s);
        write!(f, "{read} read in {:.1} s, {rate:.1} MB/s", self.seconds)
    }
}
