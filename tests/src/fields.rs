//! Gives the samples of a packed dataset extra fields, as the packer writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Entry, FieldEnd, FieldsRow, INDEX_FILE, Index, IndexBuilder, Shard};
use shade_formats::shard::{END_OF_ARCHIVE, member_header, member_name};

/// The key of sample 0. Keys differ from ids, so that code that confuses them fails.
const KEYS_FROM: u32 = 5000;

/// Writes the dataset at `from` to `to` with extra fields: `fields` returns names and bytes for a
/// sample's id and path. `cls` may be among them; it is not counted when it comes last. Records
/// must not be compressed.
pub fn add_fields(from: &Path, to: &Path, fields: impl Fn(u32, &str) -> Vec<(String, Vec<u8>)>) {
    let old = Index::open(fs::read(from.join(INDEX_FILE)).unwrap()).unwrap();
    let path = |sample| String::from_utf8(old.path(sample).unwrap().to_vec()).unwrap();
    let mut samples: Vec<(SampleId, Entry)> =
        (0..old.len()).map(|id| (SampleId(id), old.entry(SampleId(id)).unwrap())).collect();
    samples.sort_by_key(|(_, entry)| (entry.shard, entry.offset));
    let mut shards: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut new = vec![None; samples.len()];
    for (sample, mut entry) in samples {
        let bytes = fs::read(from.join(old.shard(entry.shard).unwrap().name)).unwrap();
        let start = usize::try_from(entry.offset).unwrap();
        let record = &bytes[start..start + entry.stored_len as usize];
        let shard = shards.entry(entry.shard.0).or_default();
        let (key, source) = (KEYS_FROM + sample.0, path(sample));
        entry.offset = append(shard, key, source.rsplit('.').next().unwrap(), record);
        let fields_at = shard.len();
        let mut ends = Vec::new();
        for (name, bytes) in fields(sample.0, &source) {
            append(shard, key, &name, &bytes);
            let span = &shard[fields_at..];
            let up_to = FieldsRow { blocks: u32::try_from(span.len() / 512).unwrap(), crc32c: crc32c(span) };
            if name != "cls" {
                ends.push((name, up_to));
            }
        }
        new[sample.index()] = Some((entry, ends));
    }
    fs::create_dir_all(to).unwrap();
    let mut index = IndexBuilder::new();
    for (id, mut bytes) in shards {
        bytes.extend(END_OF_ARCHIVE);
        let row = old.shard(shade_formats::ShardId(id)).unwrap();
        fs::write(to.join(row.name), &bytes).unwrap();
        index.push_shard(Shard { bytes: bytes.len() as u64, crc32c: crc32c(&bytes), ..row }).unwrap();
    }
    for label in 0..old.class_count() {
        index.push_class(old.class_name(label).unwrap()).unwrap();
    }
    for (id, row) in (0..).zip(&new) {
        let (entry, ends) = row.as_ref().unwrap();
        index.push_sample(entry, old.path(SampleId(id)).unwrap()).unwrap();
        ends.iter().for_each(|(name, up_to)| index.push_field_end(FieldEnd { name, up_to: *up_to }).unwrap());
    }
    index.set_keys((KEYS_FROM..).take(new.len()).collect());
    let fields = new.iter().map(|row| row.as_ref().unwrap().1.last());
    index.set_fields(fields.map(|last| last.map_or_else(FieldsRow::default, |(_, up_to)| *up_to)).collect());
    index.set_options(old.options());
    fs::write(to.join(INDEX_FILE), index.finish().unwrap()).unwrap();
}

/// Appends a member and returns the place of its bytes.
fn append(shard: &mut Vec<u8>, key: u32, name: &str, bytes: &[u8]) -> u64 {
    shard.extend(member_header(&member_name(key, name), bytes.len() as u64).unwrap());
    let offset = shard.len() as u64;
    shard.extend(bytes);
    shard.resize(shard.len().next_multiple_of(512), 0);
    offset
}
