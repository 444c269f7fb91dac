//! `dataset.times`: the length and the time of each sample's source file when it was packed. With
//! it `create` and `append` notice that a source file was written to.
//!
//! It lies beside the index and not in it, because the index's bytes follow from the source's
//! content and the options alone: a copy of a source has other times and must give the same index.
//! Only these two commands need it. A row counts only for the record whose CRC32C it names, so the
//! file may be missing, older or newer than the index. Its bytes: `formats/layout/INDEX.md`,
//! "Beside the index".

use std::io;
use std::path::Path;

use shade_dataset::regular;
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Entry, Index};

use crate::bucket::read_small;
use crate::error::Error;
use crate::files;

pub(crate) const TIMES_FILE: &str = "dataset.times";

const MAGIC: [u8; 8] = *b"SHADETM1";
/// Magic, number of rows, CRC32C of the rows.
const HEADER_BYTES: usize = 16;
/// Time (i64), length (u32), CRC32C of the record (u32).
const ROW_BYTES: usize = 16;
/// Longest file that is read from a bucket: one row for each sample that an index can have.
const BYTES_MAX: u64 = HEADER_BYTES as u64 + ROW_BYTES as u64 * u32::MAX as u64;

/// A source file at the time when it was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceFile {
    /// When it was last changed, in nanoseconds since 1970.
    pub(crate) changed_ns: i64,
    /// The image's length in bytes, never 0.
    pub(crate) bytes: u32,
}

/// The source files of a dataset's samples, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Times {
    rows: Vec<u8>,
    /// What is wrong with the file. No source file is known then.
    pub(crate) fault: Option<String>,
}

/// Builds the file, in the order of the samples' ids.
#[derive(Debug)]
pub(crate) struct TimesBuilder {
    bytes: Vec<u8>,
    knows_any: bool,
}

impl Times {
    /// Reads the file beside the index in `dir`, which may be an address. Nothing is known without
    /// one, or with a damaged one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(dir: &Path) -> Result<Self, Error> {
        Ok(Self::bytes_in(dir)?.map(Self::decode).unwrap_or_default())
    }

    /// The bytes of the file beside the index in `dir`, if there is one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn bytes_in(dir: &Path) -> Result<Option<Vec<u8>>, Error> {
        if let Some(there) = read_small(dir, TIMES_FILE, BYTES_MAX)? {
            return Ok(there);
        }
        let path = dir.join(TIMES_FILE);
        match regular::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(fault) => Err(Error::io("read", &path)(fault)),
        }
    }

    fn decode(mut bytes: Vec<u8>) -> Self {
        let head: Option<[u8; HEADER_BYTES]> = bytes.first_chunk().copied();
        let rows = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let number = |at: usize| head.as_ref().and_then(|head| u32_at(head, at));
        let count = number(8).map(|count| u64::from(count).saturating_mul(ROW_BYTES as u64));
        let fault = if !head.is_some_and(|head| head.starts_with(&MAGIC)) {
            Some("it begins with another magic".to_owned())
        } else if count != Some(rows.len() as u64) {
            Some(format!("{} bytes of rows, expected {}", rows.len(), count.unwrap_or(0)))
        } else {
            let (got, expected) = (crc32c(rows), number(12).unwrap_or(0));
            (got != expected).then(|| format!("crc32c {got:08x}, expected {expected:08x}"))
        };
        if fault.is_some() {
            return Self { rows: Vec::new(), fault };
        }
        bytes.drain(..HEADER_BYTES);
        Self { rows: bytes, fault }
    }

    /// The source file of `sample`, whose entry in the index is `entry`; `None` if it is not known.
    pub(crate) fn get(&self, sample: SampleId, entry: &Entry) -> Option<SourceFile> {
        let start = sample.index().checked_mul(ROW_BYTES)?;
        let row = self.rows.get(start..start.checked_add(ROW_BYTES)?)?;
        let (bytes, record) = (u32_at(row, 8)?, u32_at(row, 12)?);
        let changed_ns = i64::from_le_bytes(*row.first_chunk()?);
        (bytes != 0 && Some(record) == entry.crc32c).then_some(SourceFile { changed_ns, bytes })
    }

    pub(crate) fn known(&self, index: &Index) -> u64 {
        let ids = (0..index.len()).map(SampleId);
        ids.filter(|id| index.entry(*id).is_some_and(|entry| self.get(*id, &entry).is_some())).count() as u64
    }
}

impl Default for TimesBuilder {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], knows_any: false }
    }
}

impl TimesBuilder {
    /// Adds the next sample's source file, if it is known; `record_crc32c` is that of the stored
    /// record. Without it the row could not be told from another record's.
    pub(crate) fn push(&mut self, file: Option<SourceFile>, record_crc32c: Option<u32>) {
        let file = file.filter(|_| record_crc32c.is_some());
        self.knows_any |= file.is_some();
        let SourceFile { changed_ns, bytes } = file.unwrap_or(SourceFile { changed_ns: 0, bytes: 0 });
        self.bytes.extend(changed_ns.to_le_bytes());
        self.bytes.extend(bytes.to_le_bytes());
        self.bytes.extend(record_crc32c.unwrap_or(0).to_le_bytes());
    }

    /// The file's bytes; `None` if nothing is known.
    pub(crate) fn finish(mut self) -> Option<Vec<u8>> {
        let rows = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        let count = u32::try_from(rows.len() / ROW_BYTES).ok()?;
        let crc = crc32c(rows);
        let head = MAGIC.into_iter().chain(count.to_le_bytes()).chain(crc.to_le_bytes());
        self.bytes.iter_mut().zip(head).for_each(|(byte, value)| *byte = value);
        self.knows_any.then_some(self.bytes)
    }
}

/// Writes the file beside the index in `dir`, if anything is known.
pub(crate) fn write_times(dir: &Path, times: Option<&[u8]>, sync: bool) -> Result<(), Error> {
    times.map_or(Ok(()), |bytes| files::put(&dir.join(TIMES_FILE), bytes, sync))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use shade_formats::ShardId;
    use shade_formats::index::{Codec, Media};

    use super::*;

    fn entry(crc32c: u32) -> Entry {
        Entry {
            shard: ShardId(0),
            offset: 512,
            stored_len: 1,
            raw_len: 1,
            crc32c: Some(crc32c),
            label: 0,
            width: 0,
            height: 0,
            codec: Codec::None,
            media: Media::Other,
        }
    }

    #[test]
    fn rows_come_back_for_their_own_records_only() {
        let file = SourceFile { changed_ns: -5, bytes: 9 };
        let mut builder = TimesBuilder::default();
        builder.push(Some(file), Some(77));
        builder.push(None, Some(78));
        let times = Times::decode(builder.finish().unwrap());
        assert_eq!((times.get(SampleId(0), &entry(77)), &times.fault), (Some(file), &None));
        assert_eq!(times.get(SampleId(0), &entry(76)), None);
        assert_eq!(times.get(SampleId(1), &entry(78)), None);
        assert_eq!(times.get(SampleId(2), &entry(78)), None);
    }

    #[test]
    fn nothing_known_is_no_file_and_any_damage_is_told() {
        let mut nothing = TimesBuilder::default();
        nothing.push(None, Some(1));
        assert_eq!(nothing.finish(), None);
        let mut builder = TimesBuilder::default();
        builder.push(Some(SourceFile { changed_ns: 1, bytes: 2 }), Some(3));
        let whole = builder.finish().unwrap();
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            let times = Times::decode(bent);
            assert!(times.fault.is_some() && times.get(SampleId(0), &entry(3)).is_none(), "byte {at}");
            assert!(Times::decode(whole[..at].to_vec()).fault.is_some(), "cut at {at}");
        }
    }
}
