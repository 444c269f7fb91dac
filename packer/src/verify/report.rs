//! What verifying found, for people and for programs.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use shade_formats::SampleId;
use shade_formats::index::Entry;
use shade_formats::printable::OneLine;

use crate::dataset::Dataset;
use crate::report::{Printed, Speed, human_bytes, path_as_text};
use crate::times::TIMES_FILE;

/// What `verify` found.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verified {
    /// The dataset's directory.
    #[serde(serialize_with = "path_as_text")]
    pub(super) dataset: PathBuf,
    /// Its samples.
    pub(super) samples: u32,
    /// Its shards.
    pub(super) shards: u32,
    /// Bytes of all shards as the index has them.
    pub(super) bytes: u64,
    /// Whether images were decoded, too.
    pub(super) decoded: bool,
    #[serde(flatten)]
    pub(super) speed: Speed,
    /// What is wrong with whole shards: missing, cut short, changed somewhere.
    pub(super) damaged_shards: Vec<DamagedShard>,
    /// Every sample that cannot be trusted, by shard and place in it.
    pub(super) damaged: Vec<DamagedSample>,
    /// Shards that the system does not let this user read, or not now. Nothing is known of their
    /// content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unreadable_shards: Vec<DamagedShard>,
    /// Samples in such shards.
    pub(super) unread: u64,
    /// What is wrong with `dataset.times`. Samples do not need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) times_fault: Option<String>,
    /// Samples of a kind without a decoder. They are whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) not_decodable: Vec<DamagedSample>,
    /// Samples whose file is not quite right, and whose pixels are all there, as in Pillow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) noted: Vec<DamagedSample>,
    /// Whether shards are those of another dataset, with samples that this one has not.
    #[serde(skip)]
    pub(super) has_foreign_shards: bool,
    /// Samples whose checksum the index does not know: they were read, and not compared.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) without_checksum: u64,
    /// Whether it is an index of files that lie elsewhere.
    #[serde(skip)]
    pub(super) is_in_place: bool,
    /// Whether it is an index of other datasets' shards.
    #[serde(skip)]
    pub(super) is_merged_in_place: bool,
    /// Whether its shards are objects in a bucket.
    #[serde(skip)]
    pub(super) is_in_bucket: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A shard that is not what the index says, or cannot be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DamagedShard {
    /// Its file.
    #[serde(serialize_with = "path_as_text")]
    pub(super) shard: PathBuf,
    /// What is wrong.
    pub(super) fault: String,
}

/// A sample that is not what was packed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DamagedSample {
    /// Its id.
    pub(super) sample: u32,
    /// The file of its shard.
    #[serde(serialize_with = "path_as_text")]
    pub(super) shard: PathBuf,
    /// Where its record begins in the shard, in bytes.
    offset: u64,
    /// Its path in the ImageFolder it was packed from.
    path: String,
    /// What is wrong.
    fault: String,
}

impl DamagedSample {
    pub(super) fn new(dataset: &Dataset, sample: SampleId, entry: &Entry, fault: String) -> Self {
        let (shard, path) = (dataset.shard_path(entry.shard), dataset.path_text(sample));
        Self { sample: sample.0, shard, offset: entry.offset, path, fault }
    }
}

impl Verified {
    /// Whether some shards could not be read, so that nothing is known of them.
    fn is_unread(&self) -> bool {
        !self.unreadable_shards.is_empty()
    }

    /// Whether nothing is wrong with what was read.
    fn is_whole(&self) -> bool {
        self.damaged.is_empty() && self.damaged_shards.is_empty()
    }

    /// Says how the damaged shards are made again; `first` is one of them.
    fn write_remedy(&self, first: &DamagedShard, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_in_place {
            let first = OneLine(first.shard.display());
            return writeln!(f, "remedy: restore {first}, or make the index again (shade-pack index)");
        }
        if self.is_merged_in_place {
            return self.write_remedies_of_parts(f);
        }
        let is_alone = self.damaged_shards.iter().all(|other| other.shard == first.shard);
        let (first, dataset) = (OneLine(first.shard.display()), self.dataset.display());
        if self.has_foreign_shards {
            return writeln!(
                f,
                "remedy: make {first} again in the dataset that this one is a subset of, then the subset"
            );
        }
        if self.is_in_bucket {
            return writeln!(
                f,
                "remedy: copy {first} there from where the dataset was copied or packed, or pack it again to another \
                 address: `create` makes no lost shards in an object store"
            );
        }
        let (others, made) = match is_alone {
            true => ("", "that shard"),
            false => (" and the other damaged shards", "those shards"),
        };
        writeln!(
            f,
            "remedy: remove {first}{others} and run `shade-pack create SOURCE {dataset}` again, with the options it \
             was made with: it makes just {made}"
        )
    }

    /// The shards of each part are made again there: a line for each.
    fn write_remedies_of_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dataset = self.dataset.display();
        let mut told = BTreeSet::new();
        for DamagedShard { shard, .. } in &self.damaged_shards {
            let part = shard.parent().unwrap_or(shard);
            if told.insert(part) {
                let (shard, part) = (OneLine(shard.display()), OneLine(part.display()));
                writeln!(
                    f,
                    "remedy: {shard} is a shard of the dataset in {part}, not of this one: `shade-pack verify {part}` says \
                     how it is made again, and this index stays right. If that dataset was packed anew, remove \
                     {dataset} and merge again"
                )?;
            }
        }
        Ok(())
    }
}

impl Printed for Verified {
    fn exit_code(&self) -> u8 {
        match self.is_whole() {
            false => 3,
            true => u8::from(self.is_unread()),
        }
    }
}

impl fmt::Display for DamagedShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}: {}", OneLine(self.shard.display()), OneLine(&self.fault))
    }
}

impl fmt::Display for DamagedSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sample, shard, offset, path, fault, .. } = self;
        let (path, shard, fault) = (OneLine(path), OneLine(shard.display()), OneLine(fault));
        write!(f, "sample {sample} ({path}) at byte {offset} of {shard}: {fault}")
    }
}

/// Writes a line for each finding.
fn lines<T: fmt::Display>(f: &mut fmt::Formatter<'_>, what: &str, found: &[T]) -> fmt::Result {
    found.iter().try_for_each(|found| writeln!(f, "{what} {found}"))
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lines(f, "cannot read", &self.unreadable_shards)?;
        lines(f, "damaged", &self.damaged_shards)?;
        lines(f, "damaged", &self.damaged)?;
        lines(f, "not decodable:", &self.not_decodable)?;
        lines(f, "note: all pixels are there, but", &self.noted)?;
        if let Some(first) = self.damaged_shards.first() {
            self.write_remedy(first, f)?;
        }
        if let Some(fault) = &self.times_fault {
            let path = self.dataset.join(TIMES_FILE);
            writeln!(
                f,
                "note: {} is damaged ({fault}): create and append cannot say what changed. Remove it",
                path.display()
            )?;
        }
        writeln!(f, "{} in {}", human_bytes(self.bytes), self.speed)?;
        let Self { samples, shards, unread, .. } = self;
        let (bad, bad_shards) = (self.damaged.len(), self.damaged_shards.len());
        write!(f, "{}: ", self.dataset.display())?;
        if !self.is_whole() {
            write!(f, "{bad} of {samples} samples are damaged, {bad_shards} findings about whole shards")?;
            return if *unread > 0 { write!(f, ", {unread} samples could not be read") } else { Ok(()) };
        }
        if self.is_unread() {
            let shards = self.unreadable_shards.len();
            return write!(
                f,
                "{unread} of {samples} samples could not be read, in {shards} shards; that is no damage: see \
                 the reason above, often a permission. The others are whole"
            );
        }
        let what = if self.is_in_place { "files" } else { "shards" };
        write!(f, "all {samples} samples in {shards} {what} are whole")?;
        match self.without_checksum {
            0 => Ok(()),
            count => write!(
                f,
                "; {count} were only read, as the index has no checksum of them (shade-pack index --checksums)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_s_lost_shard_is_no_work_for_create_whatever_the_dataset_is_called() {
        for dataset in ["s3://bucket/train", "/home/me/.cache/shade/objects/1f"] {
            let shard = "s3://bucket/train/shard-000000.tar".into();
            let found = Verified {
                dataset: dataset.into(),
                damaged_shards: vec![DamagedShard { shard, fault: "it is gone".to_owned() }],
                is_in_bucket: true,
                ..Verified::default()
            };
            let text = found.to_string();
            assert!(text.contains("`create` makes no lost shards in an object store"), "{text}");
        }
    }
}
