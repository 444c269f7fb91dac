//! A dataset of equal records without an index, so that it may be large.

use shade_core::Samples;
use shade_formats::index::{Codec, Entry, Media, Shard};
use shade_formats::{ContentId, SampleId, ShardId};

/// Bytes of a record.
pub(crate) const BLOCK_BYTES: u32 = 512;

/// A dataset with this number of samples.
pub(crate) struct Equal(pub(crate) u32);

impl Samples for Equal {
    fn len(&self) -> u32 {
        self.0
    }

    fn entry(&self, sample: SampleId) -> Option<Entry> {
        (sample.0 < self.0).then_some(Entry {
            shard: ShardId(0),
            offset: u64::from(sample.0) * u64::from(BLOCK_BYTES),
            stored_len: BLOCK_BYTES,
            raw_len: BLOCK_BYTES,
            crc32c: Some(0),
            label: 0,
            width: 1,
            height: 1,
            codec: Codec::None,
            media: Media::Png,
        })
    }

    fn path(&self, _: SampleId) -> Option<&[u8]> {
        None
    }

    fn shard(&self, _: ShardId) -> Option<Shard<'_>> {
        None
    }

    fn class_count(&self) -> u32 {
        1
    }

    fn content_id(&self) -> ContentId {
        ContentId(7)
    }
}
