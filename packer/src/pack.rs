//! Writes one shard: reads each source file, stores it as a record, and notes where it lies.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use shade_formats::checksum::{crc32c, crc32c_append};
use shade_formats::index::{Codec, Entry, Media, sniff};
use shade_formats::limits::RECORD_BYTES_MAX;
use shade_formats::shard::{END_OF_ARCHIVE, member_header, padded_len};
use shade_formats::{SampleId, ShardId};
use zstd::bulk::Compressor;

use crate::config::{Compression, SAVING_MIN_PERCENT};
use crate::dataset::record_name;
use crate::error::Error;
use crate::image_folder::Sample;
use crate::interrupt::Stop;
use crate::plan::shard_name;
use crate::progress::Progress;

/// What became of a shard.
#[derive(Debug)]
pub struct PackedShard {
    /// Its file name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of the whole file.
    pub crc32c: u32,
    /// Its records in their order on disk.
    pub entries: Vec<(SampleId, Entry)>,
}

/// What all shards of one run share.
#[derive(Debug)]
pub struct Packing<'a> {
    /// The ImageFolder.
    pub source: &'a Path,
    /// Its samples; ids are positions.
    pub samples: &'a [Sample],
    /// Where shards are written.
    pub out: &'a Path,
    /// How records are stored.
    pub compression: Compression,
    /// Told of every record.
    pub progress: &'a Progress,
    /// Looked at before every record.
    pub stop: &'a Stop,
}

impl Packing<'_> {
    /// Writes the shard and has the disk confirm it.
    ///
    /// # Errors
    /// A source file vanished or changed its size since it was listed, reading or writing failed, or
    /// [`Error::Interrupted`].
    pub fn pack_shard(&self, shard: ShardId, order: &[SampleId]) -> Result<PackedShard, Error> {
        let name = shard_name(shard.0);
        let mut writer = ShardWriter::create(self.out.join(&name))?;
        let mut records = Records::new(self.compression)?;
        let mut entries = Vec::with_capacity(order.len());
        for &sample in order {
            self.stop.check()?;
            let Some(source) = self.samples.get(sample.index()) else { continue };
            let record = records.load(&self.source.join(&source.path), source.bytes)?;
            let member = record_name(sample, source.path.as_bytes(), record.codec);
            let offset = writer.member(&member, record.stored)?;
            let entry = Entry {
                shard,
                offset,
                stored_len: length(record.stored),
                raw_len: length(record.raw),
                crc32c: crc32c(record.stored),
                label: source.label,
                width: record.width,
                height: record.height,
                codec: record.codec,
                media: record.media,
            };
            entries.push((sample, entry));
            self.progress.add(1, source.bytes);
        }
        let (bytes, crc32c) = writer.finish()?;
        Ok(PackedShard { name, bytes, crc32c, entries })
    }
}

/// A record's length. Scanning refused whatever is longer than [`RECORD_BYTES_MAX`], which fits.
fn length(bytes: &[u8]) -> u32 {
    const { assert!(RECORD_BYTES_MAX <= u32::MAX as u64) };
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Turns source files into records, one at a time, reusing its memory.
struct Records {
    raw: Vec<u8>,
    compressed: Vec<u8>,
    compressor: Option<Compressor<'static>>,
}

struct Record<'a> {
    raw: &'a [u8],
    stored: &'a [u8],
    codec: Codec,
    media: Media,
    width: u16,
    height: u16,
}

impl Records {
    fn new(compression: Compression) -> Result<Self, Error> {
        let compressor = match compression {
            Compression::None => None,
            Compression::Zstd { level } => {
                Some(Compressor::new(level).map_err(Error::io("prepare zstd for", Path::new("records")))?)
            }
        };
        Ok(Self { raw: Vec::new(), compressed: Vec::new(), compressor })
    }

    fn load(&mut self, path: &Path, listed_bytes: u64) -> Result<Record<'_>, Error> {
        self.raw.clear();
        let file = File::open(path).map_err(Error::io("open", path))?;
        // One byte more than listed, to notice a file that grew.
        let limit = listed_bytes.saturating_add(1);
        let got = file.take(limit).read_to_end(&mut self.raw).map_err(Error::io("read", path))?;
        if got as u64 != listed_bytes {
            let now = if got as u64 > listed_bytes { "more".to_owned() } else { format!("{got}") };
            let fault =
                format!("changed while packing: it had {listed_bytes} bytes when listed, {now} when read");
            return Err(Error::Source { path: path.to_owned(), fault });
        }
        let (media, width, height) = sniff(&self.raw);
        let codec = self.compress(media, path)?;
        let stored = if codec == Codec::Zstd { &self.compressed } else { &self.raw };
        Ok(Record { raw: &self.raw, stored, codec, media, width, height })
    }

    /// Compresses `raw` if that pays.
    fn compress(&mut self, media: Media, path: &Path) -> Result<Codec, Error> {
        let Some(compressor) = &mut self.compressor else { return Ok(Codec::None) };
        if matches!(media, Media::Jpeg | Media::Webp) {
            return Ok(Codec::None);
        }
        self.compressed = compressor.compress(&self.raw).map_err(Error::io("compress", path))?;
        let kept = self.compressed.len() as u64 * 100;
        let allowed = self.raw.len() as u64 * (100 - SAVING_MIN_PERCENT);
        Ok(if kept <= allowed && !self.raw.is_empty() { Codec::Zstd } else { Codec::None })
    }
}

/// A tar being written, with its length and checksum so far.
struct ShardWriter {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    crc32c: u32,
}

impl ShardWriter {
    /// Large enough that network file systems see few writes.
    const BUFFER_BYTES: usize = 1 << 20;

    fn create(path: PathBuf) -> Result<Self, Error> {
        let file = File::create_new(&path).map_err(Error::io("create", &path))?;
        Ok(Self { path, file: BufWriter::with_capacity(Self::BUFFER_BYTES, file), bytes: 0, crc32c: 0 })
    }

    /// Appends a member and tells where its data begins.
    fn member(&mut self, name: &str, data: &[u8]) -> Result<u64, Error> {
        let header = member_header(name, data.len() as u64)
            .map_err(|source| Error::Index { path: self.path.clone(), source })?;
        self.write(&header)?;
        let offset = self.bytes;
        self.write(data)?;
        let padding = padded_len(self.bytes).saturating_sub(self.bytes);
        // Padding is at most 511 bytes of the archive's end, which is zeros.
        let zeros = usize::try_from(padding).ok().and_then(|padding| END_OF_ARCHIVE.get(..padding));
        self.write(zeros.unwrap_or_default())?;
        Ok(offset)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))?;
        self.crc32c = crc32c_append(self.crc32c, bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self) -> Result<(u64, u32), Error> {
        self.write(&END_OF_ARCHIVE)?;
        let file =
            self.file.into_inner().map_err(|fault| Error::io("write", &self.path)(fault.into_error()))?;
        file.sync_all().map_err(Error::io("sync", &self.path))?;
        Ok((self.bytes, self.crc32c))
    }
}
