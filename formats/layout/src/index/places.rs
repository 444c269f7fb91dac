//! Places: an index of files that lie where they are, and not beside it. The shards are tars of
//! others, the images' own files, or those of packed datasets.

use std::ops::Range;

use super::layout::{u32_at, u64_at};
use crate::error::FormatError;
use crate::limits::NAME_BYTES_MAX;

const PLACES: &str = "index places";
/// How the address of a bucket begins.
const SCHEMES: [&str; 5] = ["s3", "gs", "az", "https", "http"];
/// Kind and length of the base, before it.
const HEAD_BYTES: usize = 8;
/// A shard's time of change.
const TIME_BYTES: usize = 8;
/// What the base is padded to.
const BASE_ALIGN_BYTES: usize = 8;

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
