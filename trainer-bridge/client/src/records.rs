//! Records of samples, read in the trainer's process for another data loader.
//!
//! A map-style dataset is asked for any sample at any time, in processes that fork. So there is no
//! daemon, ring or plan, and no cache except the system's.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shade_dataset::{
    Content, Dataset, Decompressor, Dictionaries, IsStopped, Origin, ReadMemory, RecordFault,
};
use shade_formats::SampleId;
use shade_formats::index::{Entry, Index};
use shade_formats::printable::OneLine;

use crate::ClientError;
use crate::dataset::{Shards, read_together};
use crate::error::unknown_sample;
use crate::fields::{Field, Source};
use crate::fork::Owner;

/// A packed dataset, open for reading records in any order. Threads may share it; after a `fork`
/// the child uses [`RecordReader::renewed`].
#[derive(Debug)]
pub struct RecordReader {
    owner: Owner,
    folder: PathBuf,
    buffered: bool,
    /// What it was opened for: the index may have more at its end.
    content: Content,
    /// Never changed, so a forked child may read it.
    index: Arc<Index>,
    dictionaries: Dictionaries,
    shards: Shards,
}

impl RecordReader {
    /// Opens the dataset in `folder`, which must have the content `expected`, if given: a process
    /// that continues another's work needs the same content. What was added since is left out.
    /// `buffered` reads through the page
    /// cache, else past it where the file system allows.
    ///
    /// # Errors
    /// [`ClientError::Index`]: the index cannot be read, is damaged, or belongs to another dataset.
    pub fn open(folder: &Path, expected: Option<Content>, buffered: bool) -> Result<Self, ClientError> {
        let folder = folder.to_owned();
        let Dataset { folder, index } = match expected {
            Some(expected) => Dataset::open_same(folder, expected)?,
            None => Dataset::open_in(folder)?,
        };
        let dictionaries = Dictionaries::prepare(&index);
        let content = expected.unwrap_or_else(|| Content::of(&index));
        Ok(Self::over(index, content, dictionaries, &folder, buffered))
    }

    /// A reader for this process, with its own files. It shares the index, which is the large part,
    /// and takes no lock that another thread may have held during a `fork`.
    #[must_use]
    pub fn renewed(&self) -> Self {
        let (index, dictionaries) = (Arc::clone(&self.index), self.dictionaries.clone());
        Self::over(index, self.content, dictionaries, &self.folder, self.buffered)
    }

    fn over(
        index: Arc<Index>,
        content: Content,
        dictionaries: Dictionaries,
        folder: &Path,
        buffered: bool,
    ) -> Self {
        let (folder, shards) = (folder.to_owned(), Shards::new(folder, &index, !buffered));
        Self { owner: Owner::here(), folder, buffered, content, index, dictionaries, shards }
    }

    /// The dataset's content.
    #[must_use]
    pub fn content(&self) -> Content {
        self.content
    }

    /// The extra fields of each of `samples`, in their order. Reads nothing where the dataset has
    /// none.
    ///
    /// # Errors
    /// A sample is not in the dataset, or fields cannot be read or are damaged.
    pub fn fields(&self, samples: &[i64]) -> Result<Vec<Vec<Field>>, ClientError> {
        self.owner.check()?;
        Source { index: &self.index, shards: &self.shards }.read(samples, self.content.samples)
    }

    /// Number of samples; ids are below it.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.content.samples
    }

    /// The classes' names, by label.
    pub fn class_names(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.content.classes).filter_map(|label| self.index.class_name(label))
    }

    fn entry(&self, sample: u32) -> Option<Entry> {
        self.index.entry(SampleId(sample)).filter(|_| sample < self.samples())
    }

    /// A sample's class; `None` from [`samples`](Self::samples) on.
    #[must_use]
    pub fn label(&self, sample: u32) -> Option<u32> {
        Some(self.entry(sample)?.label)
    }

    /// A sample's source, relative to the root of what was packed; `None` from
    /// [`samples`](Self::samples) on.
    #[must_use]
    pub fn path(&self, sample: u32) -> Option<&[u8]> {
        self.index.path(SampleId(sample)).filter(|_| sample < self.samples())
    }

    /// The error of a sample's record, with all that is needed to find it.
    #[must_use]
    pub fn fault(&self, sample: u32, text: &dyn Display) -> ClientError {
        let path = OneLine(String::from_utf8_lossy(self.path(sample).unwrap_or_default()));
        let place = self.entry(sample).map(|entry| {
            let shard = OneLine(self.index.shard(entry.shard).map_or("?", |shard| shard.name));
            format!(" in shard {shard} at byte {}", entry.offset)
        });
        let place = place.unwrap_or_default();
        // Where that is a bucket, the folder is one of the user's cache and has its index alone.
        let origin = Origin::of_folder(&self.folder).ok().flatten();
        let dataset =
            origin.map_or_else(|| self.folder.display().to_string(), |origin| origin.url.to_string());
        ClientError::Record {
            text: format!(
                "sample {sample} ({path}){place}: {text}; `shade-pack verify {dataset}` checks the whole dataset and \
                 says how its damaged shards are made again"
            ),
        }
    }

    /// The records of `samples`, in their order, decompressed. Up to 16 are read at a time.
    ///
    /// # Errors
    /// A sample is unknown; a record cannot be read or is damaged; the dataset was replaced
    /// meanwhile; or this reader belongs to the process that forked this one. Then no records are
    /// returned.
    pub fn read(&self, samples: &[u32]) -> Result<Vec<Vec<u8>>, ClientError> {
        self.read_unless(samples, &|| false)
    }

    /// As [`read`](Self::read), but a read that waits for a store to recover ends once
    /// `is_stopped`.
    ///
    /// # Errors
    /// As [`read`](Self::read), or it was stopped.
    pub fn read_unless(
        &self,
        samples: &[u32],
        is_stopped: IsStopped<'_>,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        // Before any lock: another thread may have held it during the fork.
        self.owner.check()?;
        let wanted: Result<Vec<_>, _> = samples.iter().map(|&sample| self.wanted(sample)).collect();
        let state = || (ReadMemory::default(), Decompressor::new(self.dictionaries.clone()));
        let read = read_together(&wanted?, state, |(sample, entry), (memory, zstd)| {
            self.read_one(entry, memory, zstd, is_stopped).map_err(|fault| self.fault(*sample, &fault))
        });
        // If the dataset was replaced, that is the reason to report.
        read.map_err(|error| match Content::check(&self.folder, self.content) {
            Err(replaced) => replaced.into(),
            Ok(()) => error,
        })
    }

    fn wanted(&self, sample: u32) -> Result<(u32, Entry), ClientError> {
        let entry = self.entry(sample).ok_or_else(|| unknown_sample(sample.into(), self.samples()))?;
        Ok((sample, entry))
    }

    fn read_one(
        &self,
        entry: &Entry,
        memory: &mut ReadMemory,
        zstd: &mut Decompressor,
        is_stopped: IsStopped<'_>,
    ) -> Result<Vec<u8>, RecordFault> {
        let range = entry.offset..entry.offset.saturating_add(entry.stored_len.into());
        let stored = self.shards.read(entry.shard, range, memory, is_stopped)?;
        let mut raw = Vec::new();
        let record = zstd.unpack(stored, entry, &mut raw)?;
        if !entry.codec.is_compressed() {
            return Ok(record.to_vec());
        }
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use shade_formats::ShardId;
    use shade_formats::checksum::crc32c;
    use shade_formats::index::{Codec, INDEX_FILE, IndexBuilder, Media, Shard};
    use zstd::bulk::Compressor;

    use super::*;

    const SHARD: &str = "shard-000000.tar";
    /// Where the test's records begin: a header's room before each.
    const FIRST_AT: usize = 512;

    /// A dataset of one shard, in a temporary folder.
    struct Packed {
        folder: tempfile::TempDir,
        offsets: Vec<usize>,
    }

    /// A sample's stored bytes, their length once decompressed, and their codec.
    struct Stored {
        bytes: Vec<u8>,
        raw_len: usize,
        codec: Codec,
    }

    impl Stored {
        fn plain(bytes: &[u8]) -> Self {
            Self { bytes: bytes.to_vec(), raw_len: bytes.len(), codec: Codec::None }
        }

        fn zstd(raw: &[u8], dictionary: Option<&[u8]>) -> Self {
            let mut compressor = dictionary.map_or_else(
                || Compressor::new(3).unwrap(),
                |dictionary| Compressor::with_dictionary(3, dictionary).unwrap(),
            );
            let codec = if dictionary.is_some() { Codec::ZstdDictionary } else { Codec::Zstd };
            Self { bytes: compressor.compress(raw).unwrap(), raw_len: raw.len(), codec }
        }
    }

    fn pack(stored: &[Stored], dictionary: Option<&[u8]>) -> Packed {
        let packed = Packed { folder: tempfile::tempdir().unwrap(), offsets: Vec::new() };
        pack_into(packed, stored, dictionary)
    }

    fn pack_into(mut packed: Packed, stored: &[Stored], dictionary: Option<&[u8]>) -> Packed {
        let mut shard = vec![0; FIRST_AT];
        packed.offsets.clear();
        for stored in stored {
            packed.offsets.push(shard.len());
            shard.extend(&stored.bytes);
            shard.resize(shard.len().next_multiple_of(512) + FIRST_AT, 0);
        }
        shard.resize(shard.len() + 1024, 0);
        let mut index = IndexBuilder::new();
        for class in ["ant", "bee"] {
            index.push_class(class.as_bytes()).unwrap();
        }
        let (bytes, records) = (shard.len() as u64, u32::try_from(stored.len()).unwrap());
        index.push_shard(Shard { name: SHARD, bytes, crc32c: crc32c(&shard), records }).unwrap();
        for (number, (stored, offset)) in stored.iter().zip(&packed.offsets).enumerate() {
            let entry = Entry {
                shard: ShardId(0),
                offset: *offset as u64,
                stored_len: u32::try_from(stored.bytes.len()).unwrap(),
                raw_len: u32::try_from(stored.raw_len).unwrap(),
                crc32c: Some(crc32c(&stored.bytes)),
                label: u32::try_from(number % 2).unwrap(),
                width: 0,
                height: 0,
                codec: stored.codec,
                media: Media::Other,
            };
            index
                .push_sample(&entry, format!("{}/{number}.png", ["ant", "bee"][number % 2]).as_bytes())
                .unwrap();
        }
        if let Some(dictionary) = dictionary {
            index.push_dictionary(dictionary).unwrap();
        }
        std::fs::write(packed.folder.path().join(SHARD), shard).unwrap();
        std::fs::write(packed.folder.path().join(INDEX_FILE), index.finish().unwrap()).unwrap();
        packed
    }

    impl Packed {
        fn open(&self) -> RecordReader {
            RecordReader::open(self.folder.path(), None, true).unwrap()
        }

        /// Flips a bit of a sample's first stored byte.
        fn damage(&self, sample: usize) {
            let path = self.folder.path().join(SHARD);
            let mut shard = std::fs::read(&path).unwrap();
            shard[self.offsets[sample]] ^= 1;
            std::fs::write(path, shard).unwrap();
        }
    }

    fn text_of(number: usize) -> Vec<u8> {
        (0..200).flat_map(|word| format!("{} pixels of row {word}; ", number + word).into_bytes()).collect()
    }

    fn dictionary() -> Vec<u8> {
        zstd::dict::from_samples(&(0..100).map(text_of).collect::<Vec<_>>(), 4096).unwrap()
    }

    #[test]
    fn records_come_back_in_the_order_asked_whatever_their_codec() {
        let dictionary = dictionary();
        let raws: Vec<Vec<u8>> = (0..40).map(text_of).collect();
        let stored = raws.iter().enumerate().map(|(number, raw)| match number % 3 {
            0 => Stored::plain(raw),
            1 => Stored::zstd(raw, None),
            _ => Stored::zstd(raw, Some(&dictionary)),
        });
        let packed = pack(&stored.collect::<Vec<_>>(), Some(&dictionary));
        for buffered in [true, false] {
            let reader = RecordReader::open(packed.folder.path(), None, buffered).unwrap();
            let asked: Vec<u32> = (0..40).rev().chain([7, 7, 7]).collect();
            let read = reader.read(&asked).unwrap();
            for (sample, record) in asked.iter().zip(read) {
                assert_eq!(record, raws[*sample as usize], "sample {sample}");
            }
            assert_eq!(reader.read(&[]).unwrap(), Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn the_index_says_what_each_sample_is() {
        let packed = pack(&[Stored::plain(b"a"), Stored::plain(b"bc"), Stored::plain(b"")], None);
        let reader = packed.open();
        assert_eq!(reader.samples(), 3);
        assert_eq!(reader.class_names().collect::<Vec<_>>(), [b"ant", b"bee"]);
        assert_eq!((reader.label(1), reader.path(1)), (Some(1), Some(&b"bee/1.png"[..])));
        assert_eq!((reader.label(3), reader.path(3)), (None, None));
        assert_eq!(reader.read(&[2, 1]).unwrap(), [&b""[..], b"bc"]);
        let strange = reader.read(&[0, 3]).unwrap_err();
        assert!(matches!(strange, ClientError::Argument { what: "sample", .. }), "{strange}");
    }

    #[test]
    fn a_damaged_record_is_named_and_others_are_not_touched() {
        let packed = pack(&[Stored::plain(b"one"), Stored::plain(b"two"), Stored::plain(b"three")], None);
        packed.damage(1);
        let reader = packed.open();
        assert_eq!(reader.read(&[0, 2]).unwrap(), [&b"one"[..], b"three"]);
        let text = reader.read(&[0, 1, 2]).unwrap_err().to_string();
        let place = format!("sample 1 (bee/1.png) in shard {SHARD} at byte {}", packed.offsets[1]);
        assert!(
            text.starts_with(&place) && text.contains("checksum") && text.contains("shade-pack verify"),
            "{text}"
        );
        let place = packed.folder.path();
        assert!(text.contains(&format!("`shade-pack verify {}`", place.display())), "{text}");
        std::fs::write(place.join("origin"), "shade-origin 1\ns3://bucket/train\n").unwrap();
        let text = reader.fault(1, &"damaged").to_string();
        assert!(text.contains("`shade-pack verify s3://bucket/train`"), "where users know it: {text}");
    }

    #[test]
    fn a_shard_cut_short_or_gone_is_named() {
        let packed = pack(&[Stored::plain(b"one"), Stored::plain(&[7; 2000])], None);
        let path = packed.folder.path().join(SHARD);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..packed.offsets[1] + 1000]).unwrap();
        let reader = packed.open();
        let text = reader.read(&[1]).unwrap_err().to_string();
        assert!(
            text.contains("bee/1.png") && text.contains("ends early: got 1000 bytes, expected 2000"),
            "{text}"
        );
        std::fs::remove_file(&path).unwrap();
        let text = packed.open().read(&[0]).unwrap_err().to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
    }

    #[test]
    fn another_content_is_refused_when_opened_and_told_where_a_record_does_not_fit() {
        let packed = pack(&[Stored::plain(b"one")], None);
        let reader = packed.open();
        let content = reader.content();
        RecordReader::open(packed.folder.path(), Some(content), true).unwrap();
        let packed = pack_into(packed, &[Stored::plain(b"two")], None);
        let told = |error: ClientError| {
            let text = error.to_string();
            assert!(text.contains(&content.id.to_string()) && text.contains("was replaced"), "{text}");
        };
        told(RecordReader::open(packed.folder.path(), Some(content), true).unwrap_err());
        told(reader.read(&[0]).unwrap_err());
    }

    #[test]
    fn a_renewed_reader_reads_where_an_inherited_one_refuses() {
        let packed = pack(&[Stored::plain(b"one")], None);
        let mut reader = packed.open();
        reader.owner = Owner::elsewhere();
        assert!(matches!(reader.read(&[0]), Err(ClientError::Forked { .. })));
        assert_eq!(reader.renewed().read(&[0]).unwrap(), [b"one"]);
        assert_eq!(
            (reader.samples(), reader.label(0)),
            (1, Some(0)),
            "what the index says needs no renewing"
        );
    }
}
