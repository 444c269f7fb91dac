//! What `create` did, for people and for programs.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::catalogue::Bad;
use crate::changes::Changes;
use crate::report::{Printed, Speed, human_bytes, path_as_text};

#[derive(Debug, Default, Serialize)]
pub(crate) struct Created {
    /// The dataset's directory; with splits, the directory of their datasets.
    #[serde(serialize_with = "path_as_text")]
    pub(super) dataset: PathBuf,
    #[serde(serialize_with = "path_as_text")]
    pub(super) source: PathBuf,
    /// Whether nothing was written: `--dry-run`, or the dataset was there already.
    pub(super) unchanged: bool,
    /// One for the dataset, or one for each split.
    pub(super) parts: Vec<CreatedPart>,
    /// Bytes of the images that are in it.
    pub(super) source_bytes: u64,
    /// Bytes of the images that this run has read: fewer when it finished an earlier run's work.
    pub(super) read_bytes: u64,
    pub(super) bad: Vec<Bad>,
    #[serde(flatten)]
    pub(super) speed: Speed,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct CreatedPart {
    /// The split's name; none for a dataset of the whole source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) split: Option<String>,
    /// What identifies its content, in hexadecimal; none before it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_id: Option<String>,
    pub(super) samples: u32,
    pub(super) classes: usize,
    pub(super) shards: usize,
    /// Bytes of all shards and the index; before it is made, of the images in the source.
    pub(super) bytes: u64,
    pub(super) compressed: u64,
    /// What zstd would save of raw pixels that are stored as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zstd_would_save_percent: Option<u64>,
    /// How the source differs from what was packed; none if it was packed just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<Changes>,
}

impl Printed for Created {
    fn exit_code(&self) -> u8 {
        let mut changes = self.parts.iter().filter_map(|part| part.changes.as_ref());
        match changes.any(|changes| changes.touched.count > 0) {
            true => 5,
            false if !self.bad.is_empty() => 4,
            false => 0,
        }
    }
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        write!(f, "{} read in {}", human_bytes(self.read_bytes), self.speed)
    }
}
