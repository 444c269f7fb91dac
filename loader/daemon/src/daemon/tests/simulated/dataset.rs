//! The dataset of all lives.

use std::sync::{Arc, OnceLock};

use shade_formats::ShardId;
use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};

/// A multiple of many batches of many ranks.
pub(super) const SAMPLES: u32 = 48;
/// Most bytes of a record.
pub(super) const RECORD_BYTES: u32 = 20_000;
/// Enough for samplers that go by classes.
const CLASSES: u32 = 3;

/// Its index. Made once: no life changes it.
pub(super) fn index() -> Arc<Index> {
    static INDEX: OnceLock<Arc<Index>> = OnceLock::new();
    Arc::clone(INDEX.get_or_init(|| Arc::new(Index::open(bytes()).unwrap())))
}

/// The class of a sample. Classes are of different sizes.
pub(super) fn label(id: u32) -> u32 {
    (id % 7) % CLASSES
}

fn bytes() -> Vec<u8> {
    let mut builder = IndexBuilder::new();
    for class in 0..CLASSES {
        builder.push_class(format!("class{class}").as_bytes()).unwrap();
    }
    let mut offset = 512;
    let mut entries = Vec::new();
    for id in 0..SAMPLES {
        let len = 100 + (id * 7919) % RECORD_BYTES;
        entries.push(Entry {
            shard: ShardId(0),
            offset,
            stored_len: len,
            raw_len: len,
            crc32c: Some(0),
            label: label(id),
            width: 8,
            height: 8,
            codec: Codec::None,
            media: Media::Png,
        });
        offset += u64::from(len).next_multiple_of(512) + 512;
    }
    let shard = Shard { name: "shard-000000.tar", bytes: offset + 1024, records: SAMPLES, crc32c: 0 };
    builder.push_shard(shard).unwrap();
    for (id, entry) in entries.iter().enumerate() {
        builder.push_sample(entry, format!("class{}/{id}.png", entry.label).as_bytes()).unwrap();
    }
    builder.finish().unwrap()
}
