//! A dataset that knows lengths only, for the tests of rooms.

use shade_core::Samples;
use shade_formats::index::{Codec, Entry, Media, Shard};
use shade_formats::{ContentId, SampleId, ShardId};

pub(crate) const SAMPLES: u32 = 40;
pub(crate) const BLOCK_BYTES: u32 = 512;

/// Samples of 1 to 4 blocks, one behind the other.
pub(crate) struct Lens;

impl Samples for Lens {
    fn len(&self) -> u32 {
        SAMPLES
    }

    fn entry(&self, sample: SampleId) -> Option<Entry> {
        let stored_len = BLOCK_BYTES * (1 + sample.0 % 4);
        let entry = Entry {
            shard: ShardId(0),
            offset: 4096 * u64::from(sample.0),
            stored_len,
            raw_len: stored_len,
            crc32c: Some(0),
            label: 0,
            width: 1,
            height: 1,
            codec: Codec::None,
            media: Media::Other,
        };
        (sample.0 < SAMPLES).then_some(entry)
    }

    fn path(&self, _sample: SampleId) -> Option<&[u8]> {
        None
    }

    fn shard(&self, _shard: ShardId) -> Option<Shard<'_>> {
        None
    }

    fn class_count(&self) -> u32 {
        1
    }

    fn content_id(&self) -> ContentId {
        ContentId(0)
    }
}
