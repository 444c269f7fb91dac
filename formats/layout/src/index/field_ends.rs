//! Ends of single fields in shards: who wants some of a sample's fields reads up to the last one.

use std::ops::Range;

use super::extras::FieldsRow;
use super::field_rows::{FieldRows, FieldRowsBuilder};
use super::layout::FIELDS_BYTES;
use crate::error::FormatError;

const ENDS: &str = "index field ends";

/// Where a field of a sample ends, in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldEnd<'a> {
    /// The field's name.
    pub name: &'a str,
    /// Blocks up to the end of its padding, and their checksum: as the sample's row would be if
    /// this were its last field.
    pub up_to: FieldsRow,
}

/// Ends that are being written.
#[derive(Debug)]
pub(super) struct FieldEndsBuilder(FieldRowsBuilder<FIELDS_BYTES>);

/// Where checked ends lie in the index.
#[derive(Clone, Debug)]
pub(super) struct FieldEndsLayout(FieldRows<FIELDS_BYTES>);

impl Default for FieldEndsBuilder {
    fn default() -> Self {
        Self(FieldRowsBuilder::new(ENDS))
    }
}

impl FieldEndsBuilder {
    /// Adds a field of the sample that is the last one of `samples`.
    pub(super) fn push(&mut self, samples: usize, end: FieldEnd<'_>) -> Result<(), FormatError> {
        self.0.push(samples, end.name, end.up_to.encode(), 0)
    }

    /// The section's rows, if there are any.
    pub(super) fn finish(self, samples: usize) -> Option<FieldRowsBuilder<FIELDS_BYTES>> {
        self.0.finish(samples)
    }
}

impl FieldEndsLayout {
    /// Checks the section that fills `index[range]`. `whole` is a sample's row of the section of
    /// fields.
    pub(super) fn check(
        index: &[u8],
        range: Range<usize>,
        samples: u32,
        whole: impl Fn(usize) -> FieldsRow,
    ) -> Result<Self, FormatError> {
        let check = |rows: &FieldRows<FIELDS_BYTES>, sample: usize, of_sample: Range<u32>| {
            if of_sample.is_empty() {
                return Ok(());
            }
            let (whole, mut last) = (whole(sample), FieldsRow::default());
            for number in of_sample {
                let row = rows.row(index, number).filter(|row| row.flags == 0);
                let up_to = row.and_then(|row| FieldsRow::decode(row.bytes));
                let up_to = up_to.ok_or_else(|| format!("field {number} with flags"))?;
                if up_to.blocks <= last.blocks {
                    return Err(format!("a field at block {}, behind {}", up_to.blocks, last.blocks));
                }
                last = up_to;
            }
            if last == whole { Ok(()) } else { Err(format!("fields up to {last:?}, of {whole:?}")) }
        };
        FieldRows::check(index, range, samples, ENDS, check).map(Self)
    }

    /// All names.
    pub(super) fn names<'a>(&self, index: &'a [u8]) -> impl Iterator<Item = &'a str> {
        self.0.names(index)
    }

    /// For each name, whether it is wanted.
    pub(super) fn wanted(&self, index: &[u8], is_wanted: impl Fn(&str) -> bool) -> Vec<bool> {
        self.0.wanted(index, is_wanted)
    }

    /// Whether anything is known of a sample.
    pub(super) fn has(&self, index: &[u8], sample: usize) -> bool {
        self.0.of(index, sample).is_some_and(|rows| !rows.is_empty())
    }

    /// All up to the last field of a sample that is wanted; `None` if it has none of them.
    pub(super) fn up_to(&self, index: &[u8], sample: usize, wanted: &[bool]) -> Option<FieldsRow> {
        let rows = self.0.of(index, sample)?.rev().filter_map(|row| self.0.row(index, row));
        let mut wanted = rows.filter(|row| wanted.get(usize::from(row.name)) == Some(&true));
        FieldsRow::decode(wanted.next()?.bytes)
    }

    /// The fields of a sample, in their order in the shard.
    pub(super) fn ends<'a>(
        &'a self,
        index: &'a [u8],
        sample: usize,
    ) -> impl Iterator<Item = FieldEnd<'a>> + use<'a> {
        let rows = self.0.of(index, sample).unwrap_or_default();
        rows.filter_map(|row| {
            let row = self.0.row(index, row)?;
            let name = self.0.name(index, row.name.into())?;
            Some(FieldEnd { name, up_to: FieldsRow::decode(row.bytes)? })
        })
    }
}
