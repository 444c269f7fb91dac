//! A dataset that exists: its directory, its checked index, and the way to one record.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, INDEX_FILE, Index, Media};
use shade_formats::limits::{INDEX_BYTES_MAX, SHARD_ALIGN_BYTES};
use shade_formats::shard::{member_name, padded_len};
use shade_formats::{SampleId, ShardId};
use zstd::bulk::Decompressor;
use zstd::zstd_safe::get_dict_id_from_frame;

use crate::error::Error;
use crate::options::Options;

/// A dataset whose index was read and found whole.
#[derive(Debug)]
pub struct Dataset {
    /// Where it lies.
    pub dir: PathBuf,
    /// Its index.
    pub index: Index,
}

impl Dataset {
    /// Reads the index of the dataset in `dir`.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is damaged.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(INDEX_FILE);
        let found = fs::metadata(&path);
        if found.as_ref().is_err_and(|fault| fault.kind() == io::ErrorKind::NotFound) {
            let fault = format!("is no dataset: it has no {INDEX_FILE}");
            return Err(Error::Source { path: dir.to_owned(), fault });
        }
        let bytes = found.map_err(Error::io("look at", &path))?.len();
        if bytes > INDEX_BYTES_MAX {
            let fault = format!("{bytes} bytes; an index has at most {INDEX_BYTES_MAX}");
            return Err(Error::Damaged { path, fault });
        }
        // Read, not mapped: on a network file system a mapping can end the process when the file changes.
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let index = Index::open(bytes).map_err(|fault| Error::Damaged { path, fault: fault.to_string() })?;
        Ok(Self { dir: dir.to_owned(), index })
    }

    /// The samples of each shard, in their order on disk.
    #[must_use]
    pub fn samples_by_shard(&self) -> Vec<Vec<(SampleId, Entry)>> {
        let mut shards = vec![Vec::new(); self.index.shard_count() as usize];
        for sample in (0..self.index.len()).map(SampleId) {
            if let Some(entry) = self.index.entry(sample)
                && let Some(shard) = shards.get_mut(entry.shard.index())
            {
                shard.push((sample, entry));
            }
        }
        for shard in &mut shards {
            shard.sort_unstable_by_key(|(_, entry)| entry.offset);
        }
        shards
    }

    /// The file of a shard.
    #[must_use]
    pub fn shard_path(&self, shard: ShardId) -> PathBuf {
        self.dir.join(self.index.shard(shard).map_or("", |shard| shard.name))
    }

    /// The bytes of its shard that the index vouches for: the record's header, the record, its fields.
    #[must_use]
    pub fn extent(&self, sample: SampleId, entry: &Entry) -> Range<u64> {
        let record_end = entry.offset.saturating_add(padded_len(entry.stored_len.into()));
        let fields = self.index.fields(sample).map_or(0, |fields| fields.len);
        entry.offset.saturating_sub(SHARD_ALIGN_BYTES)..record_end.saturating_add(fields)
    }

    /// The class of a sample, for people; empty for a label that there is not.
    #[must_use]
    pub fn class_text(&self, label: u32) -> String {
        String::from_utf8_lossy(self.index.class_name(label).unwrap_or_default()).into_owned()
    }

    /// Whether images were transformed on their way into the dataset, or into one that was merged or appended to it.
    #[must_use]
    pub fn is_transformed(&self) -> bool {
        Options::all(self.index.options()).iter().any(|options| options.transform.is_some())
    }

    /// The original path of a sample, for people.
    #[must_use]
    pub fn path_text(&self, sample: SampleId) -> String {
        String::from_utf8_lossy(self.index.path(sample).unwrap_or_default()).into_owned()
    }
}

/// The extension of a record's member: its source file's in lower case; once it was transformed, that of what it has
/// become. `.zst` follows when it is compressed.
#[must_use]
pub fn record_extension(path: &str, entry: &Entry, transformed: bool) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    let extension = match (transformed, entry.media, file.rsplit_once('.')) {
        (true, Media::Jpeg, _) => "jpg".to_owned(),
        (true, Media::Ppm, _) => "ppm".to_owned(),
        (_, _, Some((_, extension))) => extension.to_ascii_lowercase(),
        _ => "bin".to_owned(),
    };
    if entry.codec.is_compressed() { format!("{extension}.zst") } else { extension }
}

/// Whether a member may have this name: the record's key, and the extension of its source or of what it was made into.
#[must_use]
pub fn is_record_name(name: &str, key: u32, path: &[u8], entry: &Entry) -> bool {
    let path = String::from_utf8_lossy(path);
    let named = |transformed| name == member_name(key, &record_extension(&path, entry, transformed));
    named(false) || named(true)
}

/// Gives records back as they were before compression, reusing its memory.
#[derive(Default)]
pub(crate) struct Unpacker {
    raw: Vec<u8>,
    /// By the id of the dictionary, 0 for none: loading one costs more than a small record does.
    zstd: HashMap<u32, Decompressor<'static>>,
}

impl Unpacker {
    /// What the record of `entry` holds: `stored`, checked by its CRC32C, and decompressed if it is compressed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn unpack<'u>(
        &'u mut self,
        index: &Index,
        entry: &Entry,
        stored: &'u [u8],
    ) -> Result<&'u [u8], String> {
        let got = crc32c(stored);
        if got != entry.crc32c {
            return Err(format!("the record's crc32c is {got:08x}, expected {:08x}", entry.crc32c));
        }
        if !entry.codec.is_compressed() {
            return Ok(stored);
        }
        // Without the dictionary that the frame names, zstd says that it is missing.
        let named = get_dict_id_from_frame(stored).filter(|_| entry.codec == Codec::ZstdDictionary);
        let id = named.map_or(0, |id| id.get());
        let refused = |fault: io::Error| format!("zstd refuses the record: {fault}");
        let zstd = match self.zstd.entry(id) {
            Occupied(known) => known.into_mut(),
            Vacant(unknown) => {
                let dictionary = index.dictionary(id).unwrap_or_default();
                unknown.insert(Decompressor::with_dictionary(dictionary).map_err(refused)?)
            }
        };
        self.raw.clear();
        self.raw.reserve(entry.raw_len as usize);
        let len = zstd.decompress_to_buffer(stored, &mut self.raw).map_err(refused)?;
        if len != entry.raw_len as usize {
            return Err(format!("decompressed to {len} bytes, expected {}", entry.raw_len));
        }
        Ok(&self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_named_after_their_source_or_what_became_of_it() {
        let entry = Entry {
            shard: ShardId(0),
            offset: 512,
            stored_len: 1,
            raw_len: 1,
            crc32c: 0,
            label: 0,
            width: 0,
            height: 0,
            codec: Codec::None,
            media: Media::Jpeg,
        };
        let cases = [("a/x.JPG", "jpg"), ("a/.png", "png"), ("a.b/c", "bin"), ("a/x.tar.tiff", "tiff")];
        for (path, extension) in cases {
            assert_eq!(record_extension(path, &entry, false), extension);
            assert_eq!(record_extension(path, &entry, true), "jpg");
        }
        let zstd = Entry { codec: Codec::Zstd, media: Media::Ppm, ..entry };
        assert!(is_record_name("000000000007.bmp.zst", 7, b"a/x.bmp", &zstd));
        assert!(is_record_name("000000000007.ppm.zst", 7, b"a/x.bmp", &zstd));
        assert!(!is_record_name("000000000008.bmp.zst", 7, b"a/x.bmp", &zstd));
        assert!(!is_record_name("000000000007.bmp", 7, b"a/x.bmp", &zstd));
    }
}
