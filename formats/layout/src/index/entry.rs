//! One sample's row in the index: 32 bytes, so that two share a cache line and none crosses one.

use super::layout::{ENTRY_BYTES, u16_at, u32_at};
use crate::error::FormatError;
use crate::ids::ShardId;
use crate::limits::SHARD_ALIGN_BYTES;

const ENTRY: &str = "index entry";

/// The entry's checksum is not known.
const FLAG_NO_CHECKSUM: u16 = 1;

/// Where a sample's record lies, what it is, and what it is labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The shard that holds the record.
    pub shard: ShardId,
    /// Bytes from the shard's start to the record's first byte: a multiple of 512, never 0, as a
    /// tar header precedes it. 0 where the shard is the image's own file.
    pub offset: u64,
    /// Bytes of the record as stored.
    pub stored_len: u32,
    /// Bytes of the record once decompressed; `stored_len` when it is not compressed.
    pub raw_len: u32,
    /// CRC32C of the stored bytes. `None` where nobody has read them: only in an index of
    /// [places](super::Places).
    pub crc32c: Option<u32>,
    /// The class, a position in the class table.
    pub label: u32,
    /// Pixels across, as in the image's own header (before EXIF orientation); 0 where unknown.
    pub width: u16,
    /// Pixels down, as in the image's own header; 0 where unknown.
    pub height: u16,
    /// How the record's bytes are stored.
    pub codec: Codec,
    /// What the record is, once decompressed.
    pub media: Media,
}

/// How a record's bytes are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As they were in the source file.
    #[default]
    None = 0,
    /// One zstd frame.
    Zstd = 1,
    /// One zstd frame that needs one of the index's dictionaries; the frame's header says which.
    ZstdDictionary = 2,
}

/// What a record is, judged by its first bytes, not by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Media {
    /// Something else: also what an older reader sees in place of a kind it does not know.
    #[default]
    Other = 0,
    /// JPEG.
    Jpeg = 1,
    /// PNG.
    Png = 2,
    /// WebP.
    Webp = 3,
    /// The netpbm family: PBM, PGM and PPM, plain or raw.
    Ppm = 4,
    /// Windows bitmap.
    Bmp = 5,
    /// GIF.
    Gif = 6,
    /// TIFF.
    Tiff = 7,
}

impl Codec {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Zstd),
            2 => Some(Self::ZstdDictionary),
            _ => None,
        }
    }

    /// Whether the stored bytes are a zstd frame, of either kind.
    #[must_use]
    pub fn is_compressed(self) -> bool {
        self != Self::None
    }
}

impl Media {
    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Jpeg,
            2 => Self::Png,
            3 => Self::Webp,
            4 => Self::Ppm,
            5 => Self::Bmp,
            6 => Self::Gif,
            7 => Self::Tiff,
            _ => Self::Other,
        }
    }

    /// The kind's name in reports: `jpeg`, `png`, ..., `other`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Webp => "webp",
            Self::Ppm => "ppm",
            Self::Bmp => "bmp",
            Self::Gif => "gif",
            Self::Tiff => "tiff",
        }
    }
}

impl Entry {
    /// Appends the entry's 32 bytes to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let wrong = || {
            let expected = "a multiple of 512 that 32 bits hold in 512-byte units";
            FormatError::new(ENTRY, out.len() as u64, format_args!("offset {}", self.offset), expected)
        };
        if !self.offset.is_multiple_of(SHARD_ALIGN_BYTES) {
            return Err(wrong());
        }
        let units = u32::try_from(self.offset / SHARD_ALIGN_BYTES).map_err(|_| wrong())?;
        out.extend(self.shard.0.to_le_bytes());
        out.extend(units.to_le_bytes());
        out.extend(self.stored_len.to_le_bytes());
        out.extend(self.raw_len.to_le_bytes());
        out.extend(self.crc32c.unwrap_or(0).to_le_bytes());
        out.extend(self.label.to_le_bytes());
        out.extend(self.width.to_le_bytes());
        out.extend(self.height.to_le_bytes());
        out.extend([self.codec as u8, self.media as u8]);
        let flags = if self.crc32c.is_none() { FLAG_NO_CHECKSUM } else { 0 };
        out.extend(flags.to_le_bytes());
        Ok(())
    }

    /// Reads 32 bytes; `None` for fewer, for a codec or flag this version does not know.
    pub(super) fn decode(row: &[u8]) -> Option<Self> {
        let row: &[u8; ENTRY_BYTES] = row.first_chunk()?;
        // There is one way to say that a checksum is not known, as the content id covers these
        // bytes.
        let crc32c = match (u16_at(row, 30)?, u32_at(row, 16)?) {
            (0, crc32c) => Some(crc32c),
            (FLAG_NO_CHECKSUM, 0) => None,
            _ => return None,
        };
        Some(Self {
            shard: ShardId(u32_at(row, 0)?),
            offset: u64::from(u32_at(row, 4)?) * SHARD_ALIGN_BYTES,
            stored_len: u32_at(row, 8)?,
            raw_len: u32_at(row, 12)?,
            crc32c,
            label: u32_at(row, 20)?,
            width: u16_at(row, 24)?,
            height: u16_at(row, 26)?,
            codec: Codec::from_byte(row[28])?,
            media: Media::from_byte(row[29]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_32_bytes_and_comes_back() {
        let entry = Entry {
            shard: ShardId(3),
            offset: u64::from(u32::MAX) * 512,
            stored_len: 4,
            raw_len: 5,
            crc32c: Some(6),
            label: 7,
            width: 8,
            height: 9,
            codec: Codec::Zstd,
            media: Media::Tiff,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), ENTRY_BYTES);
        assert_eq!(Entry::decode(&bytes), Some(entry));
        assert!(Entry { offset: 513, ..entry }.encode(&mut Vec::new()).is_err());
        assert!(Entry { offset: 1 << 41, ..entry }.encode(&mut Vec::new()).is_err());
        bytes[28] = 3;
        assert_eq!(Entry::decode(&bytes), None);
    }
}
