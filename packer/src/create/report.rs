//! What `create` did, for people and for programs.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use shade_formats::printable::OneLine;

use crate::catalogue::Bad;
use crate::changes::Changes;
use crate::pack::NotDecodable;
use crate::report::{Printed, Speed, human_bytes, path_as_text};

/// What `create` did.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Created {
    /// The dataset's directory; with splits, the directory of their datasets.
    #[serde(serialize_with = "path_as_text")]
    pub(crate) dataset: PathBuf,
    /// What was packed.
    #[serde(serialize_with = "path_as_text")]
    pub(crate) source: PathBuf,
    /// Whether nothing was written: `--dry-run`, or the dataset was there already.
    pub(crate) unchanged: bool,
    /// One for the dataset, or one for each split.
    pub(crate) parts: Vec<CreatedPart>,
    /// Bytes of the images that are in it, and of their files of pairs.
    pub(crate) source_bytes: u64,
    /// Bytes of these files that this run has read: fewer when it finished an earlier run's work.
    pub(crate) read_bytes: u64,
    /// What was left out.
    pub(crate) bad: Vec<Bad>,
    /// What people should know of the source, each in one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    #[serde(flatten)]
    pub(crate) speed: Speed,
}

/// A dataset that was made.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CreatedPart {
    /// The split's name; none for a dataset of the whole source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) split: Option<String>,
    /// What identifies its content, in hexadecimal; none before it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_id: Option<String>,
    /// Samples in it.
    pub(crate) samples: u32,
    /// Classes in it.
    pub(crate) classes: usize,
    /// Shards of it.
    pub(crate) shards: usize,
    /// Bytes of all shards and the index; before it is made, of the images in the source.
    pub(crate) bytes: u64,
    /// Records that are compressed.
    pub(crate) compressed: u64,
    /// Shards that were missing in a finished dataset, and that this run has made again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) made_again: Vec<String>,
    /// Records that are no images, or of a kind without a decoder. Trainers cannot decode them.
    pub(crate) not_decodable: NotDecodable,
    /// What zstd would save of raw pixels that are stored as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zstd_would_save_percent: Option<u64>,
    /// How the source differs from what was packed; none if it was packed just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changes: Option<Changes>,
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

impl Created {
    /// Everything except how long it took.
    pub(crate) fn told(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bad in &self.bad {
            writeln!(f, "left out {bad}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {}", OneLine(note))?;
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
            write!(f, "{}", part.not_decodable)?;
            for shard in &part.made_again {
                writeln!(f, "{shard} was missing, and was made again as it was")?;
            }
            if let Some(changes) = &part.changes {
                f.write_str(&changes.told(&source, &name))?;
            }
        }
        if !self.bad.is_empty() {
            writeln!(f, "{} samples were left out", self.bad.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told(f)?;
        if self.unchanged {
            return f.write_str("nothing was written");
        }
        write!(f, "{} read in {}", human_bytes(self.read_bytes), self.speed)
    }
}
