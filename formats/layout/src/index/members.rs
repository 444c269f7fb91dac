//! Members: where each field of a sample lies in a tar of others.

use std::ops::Range;

use super::extras::FieldsSpan;
use super::field_rows::{FieldRow, FieldRows, FieldRowsBuilder};
use super::layout::{u32_at, u64_at};
use crate::checksum::crc32c;
use crate::error::FormatError;
use crate::limits::FIELDS_BYTES_MAX;
use crate::shard::Field;

const MEMBERS: &str = "index members";
/// A row without its name: offset, bytes and CRC32C.
pub(super) const MEMBER_BYTES: usize = 16;
/// The member's checksum is not known.
const FLAG_NO_CHECKSUM: u16 = 1;

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

/// Members that are being written.
#[derive(Debug)]
pub(super) struct MembersBuilder(FieldRowsBuilder<MEMBER_BYTES>);

/// Where checked members lie in the index.
#[derive(Clone, Debug)]
pub(super) struct MembersLayout(FieldRows<MEMBER_BYTES>);

impl Default for MembersBuilder {
    fn default() -> Self {
        Self(FieldRowsBuilder::new(MEMBERS))
    }
}

impl MembersBuilder {
    /// Adds a field of the sample that is the last one of `samples`.
    pub(super) fn push(&mut self, samples: usize, field: FieldPlace<'_>) -> Result<(), FormatError> {
        let mut row = [0; MEMBER_BYTES];
        let [bytes, crc] = [field.bytes, field.crc32c.unwrap_or(0)].map(u32::to_le_bytes);
        let values = field.offset.to_le_bytes().into_iter().chain(bytes).chain(crc);
        row.iter_mut().zip(values).for_each(|(byte, value)| *byte = value);
        let flags = if field.crc32c.is_none() { FLAG_NO_CHECKSUM } else { 0 };
        self.0.push(samples, field.name, row, flags)
    }

    /// The section's rows, if there are any.
    pub(super) fn finish(self, samples: usize) -> Option<FieldRowsBuilder<MEMBER_BYTES>> {
        self.0.finish(samples)
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
        let check = |rows: &FieldRows<MEMBER_BYTES>, sample: usize, of_sample: Range<u32>| {
            check_sample(rows, index, of_sample, shard_bytes(sample))
        };
        FieldRows::check(index, range, samples, MEMBERS, check).map(Self)
    }

    /// All names.
    pub(super) fn names<'a>(&self, index: &'a [u8]) -> impl Iterator<Item = &'a str> {
        self.0.names(index)
    }

    /// For each name, whether it is wanted.
    pub(super) fn wanted(&self, index: &[u8], is_wanted: impl Fn(&str) -> bool) -> Vec<bool> {
        self.0.wanted(index, is_wanted)
    }

    /// The bytes from the first of a sample's fields to the end of the last one: of all of them, or
    /// of the `wanted` ones.
    pub(super) fn span(&self, index: &[u8], sample: usize, wanted: Option<&[bool]>) -> Option<FieldsSpan> {
        span_of(self.places(index, sample, wanted))
    }

    /// The fields of a sample, in their order in the tar: all of them, or the `wanted` ones.
    pub(super) fn places<'a>(
        &'a self,
        index: &'a [u8],
        sample: usize,
        wanted: Option<&'a [bool]>,
    ) -> impl Iterator<Item = FieldPlace<'a>> + use<'a> {
        let rows = self.0.of(index, sample).unwrap_or_default();
        let rows = rows.filter_map(move |row| self.0.row(index, row));
        let is_wanted = move |row: &FieldRow<'_, MEMBER_BYTES>| {
            wanted.is_none_or(|wanted| wanted.get(usize::from(row.name)) == Some(&true))
        };
        rows.filter(is_wanted).filter_map(move |row| place(&self.0, index, &row))
    }

    /// These fields in `bytes`, which begin at the first of them.
    pub(super) fn fields<'a>(
        &'a self,
        index: &'a [u8],
        sample: usize,
        wanted: Option<&'a [bool]>,
        bytes: &'a [u8],
    ) -> Result<Vec<Field<'a>>, FormatError> {
        let start = self.span(index, sample, wanted).map_or(0, |span| span.offset);
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
        self.places(index, sample, wanted).map(field).collect()
    }
}

/// Checks one sample's fields. An error is what it has.
fn check_sample(
    rows: &FieldRows<MEMBER_BYTES>,
    index: &[u8],
    of_sample: Range<u32>,
    shard_bytes: u64,
) -> Result<(), String> {
    let place = |number| place(rows, index, &rows.row(index, number)?);
    for number in of_sample.clone() {
        let place = place(number).ok_or_else(|| format!("member {number} without name"))?;
        if place.offset.checked_add(place.bytes.into()).is_none_or(|end| end > shard_bytes) {
            return Err(format!("{} bytes at {} of {shard_bytes}", place.bytes, place.offset));
        }
    }
    let places = of_sample.filter_map(place);
    match span_of(places) {
        Some(span) if span.len > FIELDS_BYTES_MAX => Err(format!("fields over {} bytes", span.len)),
        _ => Ok(()),
    }
}

fn span_of<'a>(places: impl Iterator<Item = FieldPlace<'a>>) -> Option<FieldsSpan> {
    let span = places.fold(None, |span: Option<Range<u64>>, place| {
        let end = place.offset.saturating_add(place.bytes.into());
        let span = span.unwrap_or(place.offset..end);
        Some(span.start.min(place.offset)..span.end.max(end))
    })?;
    Some(FieldsSpan { offset: span.start, len: span.end - span.start, crc32c: None })
}

/// The member that a row says.
fn place<'a>(
    rows: &FieldRows<MEMBER_BYTES>,
    index: &'a [u8],
    row: &FieldRow<'_, MEMBER_BYTES>,
) -> Option<FieldPlace<'a>> {
    let crc32c = match (row.flags, u32_at(row.bytes, 12)?) {
        (0, crc32c) => Some(crc32c),
        (FLAG_NO_CHECKSUM, 0) => None,
        _ => return None,
    };
    let name = rows.name(index, row.name.into())?;
    Some(FieldPlace { name, offset: u64_at(row.bytes, 0)?, bytes: u32_at(row.bytes, 8)?, crc32c })
}
