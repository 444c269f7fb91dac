//! An index without a dataset: for benches that read nothing.

use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};
use shade_formats::limits::SHARD_ALIGN_BYTES;
use shade_formats::{FormatError, ShardId};

/// An index of `samples` uncompressed records of `record_bytes` each, in one class and one shard.
pub(crate) fn index(samples: u32, record_bytes: u32) -> Result<Index, FormatError> {
    let mut builder = IndexBuilder::new();
    builder.push_class(b"class")?;
    let stride = SHARD_ALIGN_BYTES + u64::from(record_bytes).next_multiple_of(SHARD_ALIGN_BYTES);
    builder.push_shard(Shard {
        name: "shard-000000.tar",
        bytes: u64::from(samples) * stride + 2 * SHARD_ALIGN_BYTES,
        records: samples,
        crc32c: 0,
    })?;
    for id in 0..samples {
        let entry = Entry {
            shard: ShardId(0),
            offset: SHARD_ALIGN_BYTES + u64::from(id) * stride,
            stored_len: record_bytes,
            raw_len: record_bytes,
            crc32c: 0,
            label: 0,
            width: 28,
            height: 28,
            codec: Codec::None,
            media: Media::Png,
        };
        builder.push_sample(&entry, format!("class/{id:09}.png").as_bytes())?;
    }
    Index::open(builder.finish()?)
}
