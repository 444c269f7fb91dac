//! What `append` did, for people and for programs.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use shade_formats::printable::OneLine;

use crate::catalogue::Bad;
use crate::changes::Changes;
use crate::classes::Relabelled;
use crate::pack::NotDecodable;
use crate::report::{Printed, Speed, human_bytes, path_as_text};

/// What `append` did.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Appended {
    /// The dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    pub(super) dataset: PathBuf,
    /// What was appended.
    #[serde(serialize_with = "path_as_text")]
    pub(super) source: PathBuf,
    /// Whether nothing was written.
    pub(super) unchanged: bool,
    /// What identifies its content now, in hexadecimal.
    pub(super) content_id: String,
    /// Samples it has now.
    pub(super) samples: u32,
    /// Samples that are new in it.
    pub(super) appended: u32,
    /// Samples of the source that it had already.
    pub(super) skipped: u32,
    /// How the skipped samples differ from what was packed.
    pub(super) changes: Changes,
    /// Classes that it did not have.
    pub(super) new_classes: Vec<String>,
    /// Shards that were written.
    pub(super) shards: usize,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Bytes of the images that were appended, as in the source.
    pub(super) source_bytes: u64,
    /// What was left out.
    pub(super) bad: Vec<Bad>,
    /// What people should know of the source, each in one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// Numbers of the source that are other labels in the dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) relabelled: Option<Relabelled>,
    /// Records that were appended and that trainers cannot decode.
    pub(super) not_decodable: NotDecodable,
    #[serde(flatten)]
    pub(super) speed: Speed,
}

impl Printed for Appended {
    fn exit_code(&self) -> u8 {
        match self.changes.touched.count {
            0 if self.bad.is_empty() => 0,
            0 => 4,
            _ => 5,
        }
    }
}

impl fmt::Display for Appended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bad in &self.bad {
            writeln!(f, "left out {bad}")?;
        }
        if !self.bad.is_empty() {
            writeln!(f, "{} samples were left out", self.bad.len())?;
        }
        for note in &self.notes {
            writeln!(f, "note: {}", OneLine(note))?;
        }
        if let Some(relabelled) = &self.relabelled {
            writeln!(f, "note: {relabelled}")?;
        }
        write!(f, "{}", self.not_decodable)?;
        f.write_str(&self.changes.told(&self.source, &self.dataset))?;
        let (dataset, bytes) = (self.dataset.display(), human_bytes(self.bytes));
        let Self { appended, skipped, shards, samples, speed, content_id, .. } = self;
        if self.unchanged {
            let other = if self.bad.is_empty() { "" } else { "other " };
            let has = format_args!("it has a sample for each of the source's {skipped} {other}paths");
            return write!(f, "{dataset}: nothing new, {has}");
        }
        if !self.new_classes.is_empty() {
            let names = OneLine(self.new_classes.join(", "));
            writeln!(f, "note: new classes, labelled after those that were there: {names}")?;
        }
        writeln!(
            f,
            "{dataset}: {appended} samples in {shards} shards appended, {skipped} were there already"
        )?;
        write!(f, "{samples} samples now, {bytes} written in {speed}, content id {content_id}")
    }
}
