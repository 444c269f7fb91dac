//! What appending did, for people and for programs.

use std::path::PathBuf;

use serde::Serialize;

use crate::catalogue::Bad;
use crate::changes::Changes;
use crate::report::{human_bytes, path_as_text};

/// What was appended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Appended {
    /// The dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// Where the new samples came from.
    #[serde(serialize_with = "path_as_text")]
    pub source: PathBuf,
    /// Whether there was nothing new.
    pub unchanged: bool,
    /// What identifies its content now, in hexadecimal.
    pub content_id: String,
    /// Samples it has now.
    pub samples: u32,
    /// Samples that were appended.
    pub appended: u32,
    /// Samples of the source that it had already.
    pub skipped: u32,
    /// How these differ from what was packed.
    pub changes: Changes,
    /// Classes that it did not have.
    pub new_classes: Vec<String>,
    /// Shards that were appended.
    pub shards: usize,
    /// Bytes of these shards.
    pub bytes: u64,
    /// Bytes of the images that were appended, as in the source.
    pub source_bytes: u64,
    /// What was left out.
    pub bad: Vec<Bad>,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) read a second.
    pub mb_per_s: f64,
}

impl std::fmt::Display for Appended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for bad in &self.bad {
            writeln!(f, "left out {bad}")?;
        }
        if !self.bad.is_empty() {
            writeln!(f, "{} samples were left out", self.bad.len())?;
        }
        f.write_str(&self.changes.told(&self.source, &self.dataset))?;
        let (dataset, skipped) = (self.dataset.display(), self.skipped);
        if self.unchanged {
            return write!(
                f,
                "{dataset}: nothing new, it has a sample for each of the source's {skipped} paths"
            );
        }
        if !self.new_classes.is_empty() {
            let names = self.new_classes.join(", ");
            writeln!(f, "note: new classes, labelled after those that were there: {names}")?;
        }
        let Self { appended, shards, samples, seconds, .. } = self;
        writeln!(
            f,
            "{dataset}: {appended} samples in {shards} shards appended, {skipped} were there already"
        )?;
        let (bytes, rate) = (human_bytes(self.bytes), self.mb_per_s);
        write!(
            f,
            "{samples} samples now, {bytes} written in {seconds:.1} s, {rate:.1} MB/s, content id {}",
            self.content_id
        )
    }
}
