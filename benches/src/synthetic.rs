//! An index without a dataset, for benches that read nothing.

use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};
use shade_formats::limits::SHARD_ALIGN_BYTES;
use shade_formats::{FormatError, ShardId};

/// The one shard of these indexes.
pub(crate) const SHARD_FILE: &str = "shard-000000.tar";

/// An index of `samples` uncompressed records of `record_bytes` each, in one class and one shard.
pub(crate) fn index(samples: u32, record_bytes: u32) -> Result<Index, FormatError> {
    index_of(&vec![0; samples as usize], record_bytes)
}

/// An index of records of `record_bytes` with these CRC32Cs, each after a header of 512 bytes.
pub(crate) fn index_of(checksums: &[u32], record_bytes: u32) -> Result<Index, FormatError> {
    Index::open(entries(checksums, record_bytes)?.0)
}

/// The bytes of such an index, and the length of its shard.
pub(crate) fn entries(checksums: &[u32], record_bytes: u32) -> Result<(Vec<u8>, u64), FormatError> {
    let samples = u32::try_from(checksums.len()).unwrap_or(u32::MAX);
    let mut builder = IndexBuilder::new();
    builder.push_class(b"class")?;
    let stride = SHARD_ALIGN_BYTES + u64::from(record_bytes).next_multiple_of(SHARD_ALIGN_BYTES);
    let shard_bytes = u64::from(samples) * stride + 2 * SHARD_ALIGN_BYTES;
    builder.push_shard(Shard { name: SHARD_FILE, bytes: shard_bytes, records: samples, crc32c: 0 })?;
    for (id, &crc32c) in (0..samples).zip(checksums) {
        let entry = Entry {
            shard: ShardId(0),
            offset: SHARD_ALIGN_BYTES + u64::from(id) * stride,
            stored_len: record_bytes,
            raw_len: record_bytes,
            crc32c: Some(crc32c),
            label: 0,
            width: 28,
            height: 28,
            codec: Codec::None,
            media: Media::Png,
        };
        builder.push_sample(&entry, format!("class/{id:09}.png").as_bytes())?;
    }
    Ok((builder.finish()?, shard_bytes))
}
