//! The tags of a TIFF's first page, and the faults of a TIFF.
//!
//! ```text
//! "II" or "MM"  42 u16  directory's offset u32              43, 8, 0 u16, u64 in BigTIFF
//! directory: count u16, then for each tag:                  u64
//!   tag u16, type u16, count u32, values or their offset    u64, 8 bytes
//! ```

use std::fmt::Display;

use shade_formats::index::Media;

use crate::ImageFault;

/// The tags that are read.
pub(super) mod tag {
    pub(crate) const WIDTH: u16 = 256;
    pub(crate) const HEIGHT: u16 = 257;
    pub(crate) const BITS: u16 = 258;
    pub(crate) const COMPRESSION: u16 = 259;
    pub(crate) const PHOTOMETRIC: u16 = 262;
    pub(crate) const FILL_ORDER: u16 = 266;
    pub(crate) const STRIP_OFFSETS: u16 = 273;
    pub(crate) const ORIENTATION: u16 = 274;
    pub(crate) const SAMPLES: u16 = 277;
    pub(crate) const ROWS_PER_STRIP: u16 = 278;
    pub(crate) const STRIP_BYTES: u16 = 279;
    pub(crate) const PLANES: u16 = 284;
    pub(crate) const PREDICTOR: u16 = 317;
    pub(crate) const TILE_WIDTH: u16 = 322;
    pub(crate) const TILE_HEIGHT: u16 = 323;
    pub(crate) const TILE_OFFSETS: u16 = 324;
    pub(crate) const TILE_BYTES: u16 = 325;
    pub(crate) const EXTRA_SAMPLES: u16 = 338;
    pub(crate) const SAMPLE_FORMAT: u16 = 339;
}

/// Types of numbers.
const SHORT: u64 = 3;
const LONG: u64 = 4;
const LONG8: u64 = 16;

/// Numbers as the file stores them.
#[derive(Clone, Copy)]
struct Numbers<'a> {
    bytes: &'a [u8],
    pub(super) is_big_endian: bool,
}

/// The tags of a page.
pub(super) struct Directory<'a> {
    numbers: Numbers<'a>,
    is_big_tiff: bool,
    /// Offsets of the entries.
    entries: std::iter::StepBy<std::ops::Range<usize>>,
}

impl Numbers<'_> {
    /// The number of `N` bytes at `at`.
    fn number<const N: usize>(self, at: usize) -> Option<u64> {
        let bytes: [u8; N] = self.bytes.get(at..)?.first_chunk().copied()?;
        let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.is_big_endian {
            bytes.iter().fold(0, append)
        } else {
            bytes.iter().rev().fold(0, append)
        })
    }

    /// The offset at `at`, of 4 bytes or 8.
    fn offset(self, at: usize, is_big_tiff: bool) -> Option<usize> {
        let offset = if is_big_tiff { self.number::<8>(at) } else { self.number::<4>(at) };
        usize::try_from(offset?).ok()
    }
}

impl<'a> Directory<'a> {
    /// The first page's tags.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, ImageFault> {
        let is_big_endian = match bytes {
            [b'I', b'I', ..] => false,
            [b'M', b'M', ..] => true,
            _ => return Err(corrupt("neither II nor MM at its start")),
        };
        let numbers = Numbers { bytes, is_big_endian };
        let is_big_tiff = match numbers.number::<2>(2) {
            Some(42) => false,
            Some(43) if numbers.number::<4>(4) == Some(if is_big_endian { 8 << 16 } else { 8 }) => true,
            _ => return Err(corrupt("no TIFF by its header")),
        };
        Self::parse(numbers, is_big_tiff).ok_or_else(|| corrupt("its first directory is cut off"))
    }

    fn parse(numbers: Numbers<'a>, is_big_tiff: bool) -> Option<Self> {
        let at = numbers.offset(if is_big_tiff { 8 } else { 4 }, is_big_tiff)?;
        let (count, count_bytes, entry_bytes) =
            if is_big_tiff { (numbers.number::<8>(at)?, 8, 20) } else { (numbers.number::<2>(at)?, 2, 12) };
        let first = at.checked_add(count_bytes)?;
        let end = first.checked_add(usize::try_from(count).ok()?.checked_mul(entry_bytes)?)?;
        numbers.bytes.get(first..end)?;
        Some(Self { numbers, is_big_tiff, entries: (first..end).step_by(entry_bytes) })
    }

    /// Whether words have their high byte first.
    pub(super) fn is_big_endian(&self) -> bool {
        self.numbers.is_big_endian
    }

    /// The numbers of a tag; `None` without the tag.
    ///
    /// # Errors
    /// The tag is there twice, is of a type that Pillow takes for no number, or is cut off.
    pub(super) fn all(&self, tag: u16) -> Result<Option<Vec<u64>>, ImageFault> {
        let mut found = self.entries.clone().filter(|&at| self.numbers.number::<2>(at) == Some(tag.into()));
        let Some(at) = found.next() else { return Ok(None) };
        if found.next().is_some() {
            return Err(corrupt(format_args!("tag {tag} stands in it twice")));
        }
        let Some(bytes) = self.type_bytes(at) else {
            return Err(unsupported(format_args!("tag {tag} of an unusual type")));
        };
        self.values(at, bytes).map(Some).ok_or_else(|| corrupt(format_args!("tag {tag} is cut off")))
    }

    /// The first number of a tag.
    pub(super) fn one(&self, tag: u16) -> Result<Option<u64>, ImageFault> {
        Ok(self.all(tag)?.and_then(|values| values.first().copied()))
    }

    /// Bytes of a number of the entry at `at`; `None` for types that are no whole numbers.
    fn type_bytes(&self, at: usize) -> Option<usize> {
        match self.numbers.number::<2>(at + 2)? {
            SHORT => Some(2),
            LONG => Some(4),
            LONG8 => Some(8),
            _ => None,
        }
    }

    fn values(&self, at: usize, number_bytes: usize) -> Option<Vec<u64>> {
        let (count, place, room) = if self.is_big_tiff {
            (self.numbers.number::<8>(at + 4)?, at + 12, 8)
        } else {
            (self.numbers.number::<4>(at + 4)?, at + 8, 4)
        };
        let bytes = usize::try_from(count).ok()?.checked_mul(number_bytes)?;
        let start = if bytes <= room { place } else { self.numbers.offset(place, self.is_big_tiff)? };
        let end = start.checked_add(bytes)?;
        self.numbers.bytes.get(start..end)?;
        let number = |at| match number_bytes {
            2 => self.numbers.number::<2>(at),
            4 => self.numbers.number::<4>(at),
            _ => self.numbers.number::<8>(at),
        };
        (start..end).step_by(number_bytes).map(number).collect()
    }
}

pub(super) fn corrupt(text: impl Display) -> ImageFault {
    ImageFault::corrupt(Media::Tiff, text)
}

pub(super) fn unsupported(detail: impl Display) -> ImageFault {
    ImageFault::unsupported(Media::Tiff, detail)
}
