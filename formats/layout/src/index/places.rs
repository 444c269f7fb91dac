//! Places: an index of files that lie where they are, and not beside it. The shards are tars of
//! others, the images' own files, or those of packed datasets.

use std::collections::HashMap;
use std::ops::Range;

use super::extras::FieldsSpan;
use super::layout::{u16_at, u32_at, u64_at};
use super::names::{Names, NamesBuilder};
use crate::checksum::crc32c;
use crate::error::FormatError;
use crate::limits::{FIELDS_BYTES_MAX, NAME_BYTES_MAX};
use crate::shard::{Field, field_name_is_valid};

const PLACES: &str = "index places";
/// How the address of a bucket begins.
const SCHEMES: [&str; 5] = ["s3", "gs", "az", "https", "http"];
const MEMBERS: &str = "index members";
/// Kind and length of the base, before it.
const HEAD_BYTES: usize = 8;
/// A shard's time of change.
const TIME_BYTES: usize = 8;
/// What the base is padded to.
const BASE_ALIGN_BYTES: usize = 8;
/// Members and names, before the tables.
const MEMBERS_HEAD_BYTES: usize = 8;
/// A sample's end in the members.
const END_BYTES: usize = 4;
const MEMBER_BYTES: usize = 20;
/// The member's checksum is not known.
const FLAG_NO_CHECKSUM: u16 = 1;

/// What the shards of an index of places are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PlacesKind {
    /// Tars, with samples at offsets.
    Tars = 1,
    /// The images' own files: sample N is shard N, whose name is the sample's path.
    Files = 2,
    /// Shards of packed datasets, in all but their place as those of a dataset of its own.
    Shards = 3,
}

/// Where the shards of an index lie, if not beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places<'a> {
    /// What they are.
    pub kind: PlacesKind,
    /// What shards' names are relative to: the absolute path of a folder, or the address of a
    /// prefix in a bucket.
    pub base: &'a [u8],
}

/// Places that are being written.
#[derive(Debug)]
pub(super) struct PlacesBuilder {
    pub(super) kind: PlacesKind,
    pub(super) base: Vec<u8>,
    pub(super) changed_ns: Vec<i64>,
}

/// Where checked places lie in the index.
#[derive(Clone, Debug)]
pub(super) struct PlacesLayout {
    pub(super) kind: PlacesKind,
    pub(super) base: Range<usize>,
    /// The shards' times of change.
    pub(super) times: Range<usize>,
}

/// A field of a sample in an index of places: a member of its tar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPlace<'a> {
    /// The field's name.
    pub name: &'a str,
    /// Bytes from the tar's start to the field's first byte.
    pub offset: u64,
    /// Bytes of it.
    pub bytes: u32,
    /// CRC32C of them, if it is known.
    pub crc32c: Option<u32>,
}

/// Members that are being written: those of one sample after the other.
#[derive(Debug, Default)]
pub(super) struct MembersBuilder {
    /// Members up to and including each sample; shorter than the samples when the last ones have
    /// none.
    ends: Vec<u32>,
    rows: Vec<u8>,
    names: NamesBuilder,
    numbers: HashMap<String, u16>,
}

/// Where checked members lie in the index.
#[derive(Clone, Debug)]
pub(super) struct MembersLayout {
    ends: usize,
    rows: usize,
    names: Names,
}

/// A member's row.
struct Row {
    offset: u64,
    bytes: u32,
    crc32c: Option<u32>,
    name: u16,
}

impl PlacesKind {
    fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Tars),
            2 => Some(Self::Files),
            3 => Some(Self::Shards),
            _ => None,
        }
    }

    /// Whether the files are of others: shade has not written them, and their length and time of
    /// change tell whether they are as they were.
    #[must_use]
    pub fn is_foreign(self) -> bool {
        self != Self::Shards
    }

    /// How many shards have a time, of these.
    fn timed(self, shards: u32) -> usize {
        if self.is_foreign() { shards as usize } else { 0 }
    }
}

/// Whether these are the bytes of an absolute path, or of a bucket's address.
fn is_base(base: &[u8]) -> bool {
    let address = std::str::from_utf8(base).ok().and_then(|text| text.split_once("://"));
    let is_address = address.is_some_and(|(scheme, rest)| SCHEMES.contains(&scheme) && !rest.is_empty());
    (base.starts_with(b"/") || is_address) && !base.contains(&0)
}

impl PlacesBuilder {
    /// Bytes that [`write`](Self::write) will append.
    pub(super) fn bytes(&self) -> usize {
        let base = self.base.len().next_multiple_of(BASE_ALIGN_BYTES);
        HEAD_BYTES.saturating_add(base).saturating_add(self.changed_ns.len().saturating_mul(TIME_BYTES))
    }

    /// Appends the section's bytes to `out`.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend((self.kind as u32).to_le_bytes());
        out.extend(u32::try_from(self.base.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&self.base);
        out.resize(out.len() + self.base.len().next_multiple_of(BASE_ALIGN_BYTES) - self.base.len(), 0);
        out.extend(self.changed_ns.into_iter().flat_map(i64::to_le_bytes));
    }
}

impl PlacesLayout {
    /// Checks the section that fills `index[range]`.
    pub(super) fn check(index: &[u8], range: Range<usize>, shards: u32) -> Result<Self, FormatError> {
        let wrong = |at: usize, got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(PLACES, at as u64, got, expected)
        };
        let section = index.get(range.clone()).unwrap_or_default();
        let (Some(number), Some(len)) = (u32_at(section, 0), u32_at(section, 4)) else {
            return Err(wrong(range.start, &format_args!("{} bytes", section.len()), &"a kind and a length"));
        };
        let kind = PlacesKind::of(number).ok_or_else(|| {
            let expected = "1 (tars), 2 (files) or 3 (shards): use a newer shade";
            wrong(range.start, &format_args!("places of kind {number}"), &expected)
        })?;
        let len = len as usize;
        let start = range.start.saturating_add(HEAD_BYTES);
        let base = start..start.saturating_add(len);
        let times = start.saturating_add(len.next_multiple_of(BASE_ALIGN_BYTES))..range.end;
        let path = index.get(base.clone()).filter(|_| times.start <= range.end).unwrap_or_default();
        if len > NAME_BYTES_MAX || !is_base(path) {
            let expected = format_args!("an absolute path or an address of at most {NAME_BYTES_MAX} bytes");
            return Err(wrong(start, &format_args!("{:?}", String::from_utf8_lossy(path)), &expected));
        }
        if index.get(base.end..times.start).is_none_or(|padding| padding.iter().any(|&byte| byte != 0)) {
            return Err(wrong(base.end, &"padding with other bytes", &"zeros"));
        }
        let expected = kind.timed(shards).saturating_mul(TIME_BYTES);
        if times.len() != expected {
            let (got, expected) = (format_args!("{} bytes of times", times.len()), expected);
            return Err(wrong(
                times.start,
                &got,
                &format_args!("{expected}, {TIME_BYTES} for each shard of others"),
            ));
        }
        Ok(Self { kind, base, times })
    }

    pub(super) fn places<'a>(&self, index: &'a [u8]) -> Places<'a> {
        Places { kind: self.kind, base: index.get(self.base.clone()).unwrap_or_default() }
    }

    /// When the file of a shard was last changed, in nanoseconds since 1970; the version of an
    /// object.
    pub(super) fn changed_ns(&self, index: &[u8], shard: usize) -> Option<i64> {
        let times = index.get(self.times.clone())?;
        u64_at(times, shard.checked_mul(TIME_BYTES)?).map(u64::cast_signed)
    }
}

/// Whether a shard's name leads to a file below the base.
pub(super) fn is_path_below(name: &[u8]) -> bool {
    let plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    !name.contains(&0) && std::str::from_utf8(name).is_ok() && name.split(|&byte| byte == b'/').all(plain)
}

impl MembersBuilder {
    /// Adds a field of the sample that is the last one of `samples`.
    pub(super) fn push(&mut self, samples: usize, field: FieldPlace<'_>) -> Result<(), FormatError> {
        let too_many = |what: &str| FormatError::new(MEMBERS, 0, format_args!("one {what} more"), "fewer");
        let next = u16::try_from(self.numbers.len()).map_err(|_| too_many("name"))?;
        let number = match self.numbers.get(field.name) {
            Some(number) => *number,
            None => {
                self.names.push(field.name.as_bytes());
                self.numbers.insert(field.name.to_owned(), next);
                next
            }
        };
        self.rows.extend(field.offset.to_le_bytes());
        self.rows.extend(field.bytes.to_le_bytes());
        self.rows.extend(field.crc32c.unwrap_or(0).to_le_bytes());
        self.rows.extend(number.to_le_bytes());
        let flags = if field.crc32c.is_none() { FLAG_NO_CHECKSUM } else { 0 };
        self.rows.extend(flags.to_le_bytes());
        let before = self.ends.last().copied().unwrap_or(0);
        let end = u32::try_from(self.rows.len() / MEMBER_BYTES).map_err(|_| too_many("field"))?;
        self.ends.resize(samples, before);
        self.ends.last_mut().into_iter().for_each(|last| *last = end);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Makes it as long as the samples.
    pub(super) fn end(&mut self, samples: usize) {
        let last = self.ends.last().copied().unwrap_or(0);
        self.ends.resize(samples, last);
    }

    /// Bytes that [`write`](Self::write) will append.
    pub(super) fn bytes(&self) -> usize {
        let ends = self.ends.len().saturating_mul(END_BYTES);
        let tables = ends.saturating_add(self.rows.len()).saturating_add(self.names.bytes());
        tables.saturating_add(MEMBERS_HEAD_BYTES)
    }

    /// Appends the section's bytes to `out`.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        out.extend(count(self.rows.len() / MEMBER_BYTES));
        out.extend(count(self.names.len()));
        out.extend(self.ends.into_iter().flat_map(u32::to_le_bytes));
        out.extend_from_slice(&self.rows);
        self.names.write(out);
    }
}

impl MembersLayout {
    /// Checks the section that fills `index[range]`. `shard_bytes` is the length of each sample's
    /// shard.
    pub(super) fn check(
        index: &[u8],
        range: Range<usize>,
        samples: u32,
        shard_bytes: impl Fn(usize) -> u64,
    ) -> Result<Self, FormatError> {
        let wrong = |got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(MEMBERS, range.start as u64, got, expected)
        };
        let section = index.get(range.clone()).unwrap_or_default();
        let (Some(count), Some(names)) = (u32_at(section, 0), u32_at(section, 4)) else {
            return Err(wrong(&format_args!("{} bytes", section.len()), &"two counts"));
        };
        let ends = range.start.saturating_add(MEMBERS_HEAD_BYTES);
        let rows = ends.saturating_add((samples as usize).saturating_mul(END_BYTES));
        let table = rows.saturating_add((count as usize).saturating_mul(MEMBER_BYTES));
        if table > range.end {
            let expected = format_args!("{samples} samples and {count} members");
            return Err(wrong(&format_args!("{} bytes", section.len()), &expected));
        }
        let names = Names::check(index, table..range.end, names.into(), NAME_BYTES_MAX, MEMBERS)?;
        let layout = Self { ends, rows, names };
        let mut last = 0;
        for sample in 0..samples as usize {
            let end = layout.end_of(index, sample).unwrap_or(0);
            let fault = if end < last || end > count {
                Err(format!("an end at {end}, after {last} of {count}"))
            } else {
                layout.check_sample(index, last..end, shard_bytes(sample))
            };
            fault.map_err(|got| wrong(&format_args!("sample {sample} with {got}"), &"fields in its tar"))?;
            last = end;
        }
        if last != count {
            return Err(wrong(&format_args!("{count} members"), &format_args!("{last}, the samples' own")));
        }
        Ok(layout)
    }

    /// Checks one sample's fields. An error is what it has.
    fn check_sample(&self, index: &[u8], rows: Range<u32>, shard_bytes: u64) -> Result<(), String> {
        let mut seen = Vec::new();
        for number in rows.clone() {
            let place = self.place(index, number).ok_or_else(|| format!("member {number} without name"))?;
            if !field_name_is_valid(place.name) || seen.contains(&place.name) {
                return Err(format!("a field {:?}", place.name));
            }
            if place.offset.checked_add(place.bytes.into()).is_none_or(|end| end > shard_bytes) {
                return Err(format!("{} bytes at {} of {shard_bytes}", place.bytes, place.offset));
            }
            seen.push(place.name);
        }
        match self.span_of(index, rows) {
            Some(span) if span.len > FIELDS_BYTES_MAX => Err(format!("fields over {} bytes", span.len)),
            _ => Ok(()),
        }
    }

    /// The bytes from the first of a sample's fields to the end of the last one.
    pub(super) fn span(&self, index: &[u8], sample: usize) -> Option<FieldsSpan> {
        self.span_of(index, self.rows_of(index, sample)?)
    }

    fn span_of(&self, index: &[u8], rows: Range<u32>) -> Option<FieldsSpan> {
        let places = rows.filter_map(|row| self.place(index, row));
        let span = places.fold(None, |span: Option<Range<u64>>, place| {
            let end = place.offset.saturating_add(place.bytes.into());
            let span = span.unwrap_or(place.offset..end);
            Some(span.start.min(place.offset)..span.end.max(end))
        })?;
        Some(FieldsSpan { offset: span.start, len: span.end - span.start, crc32c: None })
    }

    /// The fields of a sample, in their order in the tar.
    pub(super) fn places<'a>(
        &'a self,
        index: &'a [u8],
        sample: usize,
    ) -> impl Iterator<Item = FieldPlace<'a>> + use<'a> {
        self.rows_of(index, sample).unwrap_or_default().filter_map(|row| self.place(index, row))
    }

    /// The fields in `bytes`, which begin at `start` of the tar.
    pub(super) fn fields<'a>(
        &'a self,
        index: &'a [u8],
        sample: usize,
        bytes: &'a [u8],
        start: u64,
    ) -> Result<Vec<Field<'a>>, FormatError> {
        let field = |place: FieldPlace<'a>| {
            let from = usize::try_from(place.offset.saturating_sub(start)).unwrap_or(usize::MAX);
            let found = bytes.get(from..from.saturating_add(place.bytes as usize)).ok_or_else(|| {
                let expected = format_args!("{} of {} bytes", place.name, place.bytes);
                FormatError::new("field", place.offset, format_args!("{} bytes", bytes.len()), expected)
            })?;
            if let Some(expected) = place.crc32c
                && crc32c(found) != expected
            {
                let got = format_args!("{} of CRC32C {:08x}", place.name, crc32c(found));
                return Err(FormatError::new("field", place.offset, got, format_args!("{expected:08x}")));
            }
            Ok(Field { name: place.name, bytes: found })
        };
        self.places(index, sample).map(field).collect()
    }

    fn rows_of(&self, index: &[u8], sample: usize) -> Option<Range<u32>> {
        let start = match sample.checked_sub(1) {
            Some(before) => self.end_of(index, before)?,
            None => 0,
        };
        Some(start..self.end_of(index, sample)?)
    }

    fn end_of(&self, index: &[u8], sample: usize) -> Option<u32> {
        let ends = index.get(self.ends..self.rows)?;
        u32_at(ends, sample.checked_mul(END_BYTES)?)
    }

    fn place<'a>(&'a self, index: &'a [u8], row: u32) -> Option<FieldPlace<'a>> {
        let at = self.rows.checked_add((row as usize).checked_mul(MEMBER_BYTES)?)?;
        let Row { offset, bytes, crc32c, name } = Row::decode(index.get(at..)?)?;
        let name = std::str::from_utf8(self.names.get(index, name.into())?).ok()?;
        Some(FieldPlace { name, offset, bytes, crc32c })
    }
}

impl Row {
    fn decode(row: &[u8]) -> Option<Self> {
        let crc32c = match (u16_at(row, 18)?, u32_at(row, 12)?) {
            (0, crc32c) => Some(crc32c),
            (FLAG_NO_CHECKSUM, 0) => None,
            _ => return None,
        };
        Some(Self { offset: u64_at(row, 0)?, bytes: u32_at(row, 8)?, crc32c, name: u16_at(row, 16)? })
    }
}
