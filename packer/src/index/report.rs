//! What `index` did, for people and for programs.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use shade_formats::printable::OneLine;

use super::probe::Probe;
use crate::catalogue::Bad;
use crate::pack::NotDecodable;
use crate::report::{Printed, Speed, human_bytes, path_as_text};

/// What `index` did.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Indexed {
    /// The index's directory.
    #[serde(serialize_with = "path_as_text")]
    pub(super) dataset: PathBuf,
    /// What was indexed.
    #[serde(serialize_with = "path_as_text")]
    pub(super) source: PathBuf,
    /// Whether nothing was written: the index was there and is still right.
    pub(super) unchanged: bool,
    /// Why an index that was there was made again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<String>,
    /// What identifies its content, in hexadecimal.
    pub(super) content_id: String,
    /// Samples in it.
    pub(super) samples: u32,
    /// Classes in it.
    pub(super) classes: usize,
    /// Files that samples lie in: tars, or one for each.
    pub(super) files: u32,
    /// Bytes of the images.
    pub(super) source_bytes: u64,
    /// Bytes of the index.
    pub(super) index_bytes: u64,
    /// Whether it has the checksum of each record.
    pub(super) checksums: bool,
    /// What packing would gain, where samples have files of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) probe: Option<Probe>,
    /// What was left out.
    pub(super) bad: Vec<Bad>,
    /// What people should know of the source, each in one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// Records that are no images, or of a kind without a decoder. Trainers cannot decode them.
    pub(super) not_decodable: NotDecodable,
    #[serde(flatten)]
    pub(super) speed: Speed,
}

impl Printed for Indexed {
    fn exit_code(&self) -> u8 {
        if self.bad.is_empty() { 0 } else { 4 }
    }
}

impl fmt::Display for Indexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bad in &self.bad {
            writeln!(f, "left out {bad}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {}", OneLine(note))?;
        }
        let Self { samples, classes, files, .. } = self;
        writeln!(f, "{}: {samples} samples of {classes} classes in {files} files", self.dataset.display())?;
        write!(f, "{}", self.not_decodable)?;
        if !self.bad.is_empty() {
            writeln!(f, "{} samples were left out", self.bad.len())?;
        }
        if self.unchanged {
            return write!(f, "{} is as it was, nothing was written", self.source.display());
        }
        if let Some(why) = &self.changed {
            writeln!(f, "made again: {}", OneLine(why))?;
        }
        if !self.checksums {
            writeln!(
                f,
                "no checksums: only the beginnings of images were read (--checksums reads them whole)"
            )?;
        }
        if let Some(probe) = &self.probe {
            writeln!(f, "{}", probe.told(&self.source.display()))?;
        }
        let (bytes, index) = (human_bytes(self.source_bytes), human_bytes(self.index_bytes));
        let seconds = self.speed.seconds();
        let rate = f64::from(*samples) / seconds.max(1e-9);
        write!(f, "{bytes} stay where they are, {index} of index in {seconds:.1} s, {rate:.0} samples/s")
    }
}

impl Probe {
    /// What packing would gain, and the command.
    fn told(&self, source: &dyn fmt::Display) -> String {
        let Self { files, files_per_s, records_per_s } = self;
        format!(
            "measured here with {files} files: {files_per_s:.0} files/s opened and read, up to {records_per_s:.0} records/s \
             packed; `shade-pack create {source} OUT.shade` packs them"
        )
    }
}
