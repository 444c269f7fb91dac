//! What verifying found, for people and for programs.

use std::path::PathBuf;

use serde::Serialize;

use crate::report::{human_bytes, path_as_text};
use crate::times::TIMES_FILE;

/// What re-reading a dataset found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verified {
    /// Its directory.
    #[serde(serialize_with = "path_as_text")]
    pub dataset: PathBuf,
    /// Number of samples looked at.
    pub samples: u32,
    /// Number of shards looked at.
    pub shards: u32,
    /// Bytes of all shards as the index has them.
    pub bytes: u64,
    /// Whether images were decoded, too.
    pub decoded: bool,
    /// Wall-clock time.
    pub seconds: f64,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
    /// What is wrong with whole shards: missing, cut short, changed somewhere.
    pub damaged_shards: Vec<DamagedShard>,
    /// Every sample that cannot be trusted, by shard and place in it.
    pub damaged: Vec<DamagedSample>,
    /// Shards that the system does not let this user read, or not now. Nothing is known of what is in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable_shards: Vec<DamagedShard>,
    /// Samples that were not looked at for that.
    pub unread: u64,
    /// What is wrong with `dataset.times`, without which no sample is any worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_fault: Option<String>,
    /// Samples of a kind that no decoder is there for. They are whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_decodable: Vec<DamagedSample>,
    /// What was repaired, if that was asked for and something was damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<Repaired>,
}

/// A shard that is not what the index says, or cannot be read.
#[derive(Clone, Debug, Serialize)]
pub struct DamagedShard {
    /// Its file.
    #[serde(serialize_with = "path_as_text")]
    pub shard: PathBuf,
    /// What is wrong.
    pub fault: String,
}

/// A sample that is not what was packed.
#[derive(Clone, Debug, Serialize)]
pub struct DamagedSample {
    /// Its id.
    pub sample: u32,
    /// The shard's file.
    #[serde(serialize_with = "path_as_text")]
    pub shard: PathBuf,
    /// Where its record begins in the shard, in bytes.
    pub offset: u64,
    /// Its path in the ImageFolder it was packed from.
    pub path: String,
    /// What is wrong.
    pub fault: String,
    /// Whether its bytes are what was packed, and were no image then.
    #[serde(skip)]
    pub(super) is_whole: bool,
}

/// What became of damaged shards.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Repaired {
    /// Files that were written again and are whole now.
    pub shards: Vec<String>,
    /// Samples in them that were made again from the source.
    pub samples: u32,
    /// Samples that cannot be made again; their shards were left as they are.
    pub failed: Vec<DamagedSample>,
    /// Shards that were left as they are although no sample of them is to blame.
    pub failed_shards: Vec<DamagedShard>,
}

impl Verified {
    /// Whether some shards could not be read, so that nothing is known of them.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        !self.unreadable_shards.is_empty()
    }

    /// Whether nothing is wrong with what was read, or nothing is wrong any more.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_repaired = |shard: &PathBuf| {
            let shard = shard.display().to_string();
            self.repaired.as_ref().is_some_and(|repaired| repaired.shards.contains(&shard))
        };
        self.damaged.iter().all(|damaged| !damaged.is_whole && is_repaired(&damaged.shard))
            && self.damaged_shards.iter().all(|damaged| is_repaired(&damaged.shard))
    }
}

impl std::fmt::Display for DamagedSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sample, shard, offset, path, fault, .. } = self;
        write!(f, "sample {sample} ({path}) at byte {offset} of {}: {fault}", shard.display())
    }
}

impl std::fmt::Display for Repaired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for DamagedShard { shard, fault } in &self.failed_shards {
            writeln!(f, "not repaired: shard {}: {fault}", shard.display())?;
        }
        for failed in &self.failed {
            writeln!(f, "not repaired: {failed}")?;
        }
        for shard in &self.shards {
            writeln!(f, "repaired shard {shard}")?;
        }
        let (shards, samples) = (self.shards.len(), self.samples);
        writeln!(f, "{shards} shards repaired, {samples} samples made again from the source")
    }
}

impl std::fmt::Display for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for DamagedShard { shard, fault } in &self.unreadable_shards {
            writeln!(f, "cannot read shard {}: {fault}", shard.display())?;
        }
        for DamagedShard { shard, fault } in &self.damaged_shards {
            writeln!(f, "damaged shard {}: {fault}", shard.display())?;
        }
        for damaged in &self.damaged {
            writeln!(f, "damaged {damaged}")?;
        }
        for other in &self.not_decodable {
            writeln!(f, "not decodable: {other}")?;
        }
        if let Some(repaired) = &self.repaired {
            repaired.fmt(f)?;
        }
        if let Some(fault) = &self.times_fault {
            let path = self.dataset.join(TIMES_FILE);
            let path = path.display();
            writeln!(
                f,
                "note: {path} is damaged ({fault}): create and append cannot say what changed. Remove it"
            )?;
        }
        let bytes = human_bytes(self.bytes);
        let (seconds, rate) = (self.seconds, self.mb_per_s);
        writeln!(f, "{bytes} in {seconds:.1} s, {rate:.1} MB/s")?;
        let (dataset, samples, shards) = (self.dataset.display(), self.samples, self.shards);
        let (bad, bad_shards) = (self.damaged.len(), self.damaged_shards.len());
        let unread = self.unread;
        match (self.is_whole(), &self.repaired) {
            (true, _) if self.is_unread() => {
                let shards = self.unreadable_shards.len();
                write!(
                    f,
                    "{dataset}: {unread} of {samples} samples could not be read, in {shards} shards; "
                )?;
                f.write_str(
                    "that is no damage: see the reason above, often a permission. The others are whole",
                )
            }
            (true, None) => write!(f, "{dataset}: all {samples} samples in {shards} shards are whole"),
            (true, Some(_)) => write!(f, "{dataset}: all {samples} samples in {shards} shards are whole now"),
            (false, _) => {
                write!(
                    f,
                    "{dataset}: {bad} of {samples} samples are damaged, {bad_shards} findings about whole shards"
                )?;
                if unread > 0 { write!(f, ", {unread} samples could not be read") } else { Ok(()) }
            }
        }
    }
}
