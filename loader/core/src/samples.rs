//! The dataset as the core sees it. The daemon's is the index; a simulation knows lengths only.

use shade_formats::index::{Entry, Index, Shard};
use shade_formats::printable::OneLine;
use shade_formats::{ContentId, SampleId, ShardId};

use crate::plan::{Strata, StrataError};

/// The samples of a dataset, `0..len`.
#[expect(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait Samples {
    /// Number of samples.
    fn len(&self) -> u32;
    /// The sample's entry: where its record lies, and what it is.
    fn entry(&self, sample: SampleId) -> Option<Entry>;
    /// CRC32C of what `entry`, the sample's, says is stored; `None` if it is not known.
    fn checksum(&self, _sample: SampleId, entry: &Entry) -> Option<u32> {
        entry.crc32c
    }
    /// Whether the field of this name is read with its record, where a sample has it.
    fn reads_field(&self, _name: &str) -> bool {
        false
    }
    /// The names of the fields that samples have; `None` if not all are known.
    fn field_names(&self) -> Option<Vec<&str>> {
        None
    }
    /// Room that the wanted fields of a sample take at most, in bytes; 0 unless they are read.
    fn fields_bytes(&self, _sample: SampleId, _is_wanted: &dyn Fn(&str) -> bool) -> u64 {
        0
    }
    /// The path of the file that it was packed from.
    fn path(&self, sample: SampleId) -> Option<&[u8]>;
    /// The shard with this number.
    fn shard(&self, shard: ShardId) -> Option<Shard<'_>>;
    /// Number of classes.
    fn class_count(&self) -> u32;
    /// Identity of the dataset.
    fn content_id(&self) -> ContentId;
    /// `count` strata of the samples.
    ///
    /// # Errors
    /// A stratum would be empty.
    fn strata(&self, count: u32) -> Result<Strata, StrataError> {
        Strata::new(self.len(), count, self.content_id().0)
    }
}

impl Samples for Index {
    fn len(&self) -> u32 {
        Self::len(self)
    }

    fn entry(&self, sample: SampleId) -> Option<Entry> {
        Self::entry(self, sample)
    }

    fn path(&self, sample: SampleId) -> Option<&[u8]> {
        Self::path(self, sample)
    }

    fn shard(&self, shard: ShardId) -> Option<Shard<'_>> {
        Self::shard(self, shard)
    }

    fn class_count(&self) -> u32 {
        Self::class_count(self)
    }

    fn content_id(&self) -> ContentId {
        Self::content_id(self)
    }
}

/// A fault with all that a user needs to find the record.
pub(super) fn name_fault(index: &dyn Samples, sample: SampleId, fault: &dyn std::fmt::Display) -> String {
    let path = index.path(sample).map_or_else(|| "?".into(), String::from_utf8_lossy);
    let path = OneLine(path);
    let Some(entry) = index.entry(sample) else {
        return format!("sample {sample} ({path}): {fault}");
    };
    let shard = OneLine(index.shard(entry.shard).map_or("?", |shard| shard.name));
    format!("sample {sample} ({path}) in shard {shard} at byte {}: {fault}", entry.offset)
}
