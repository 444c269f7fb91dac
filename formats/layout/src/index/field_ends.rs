//! Ends of single fields in shards: who wants some of a sample's fields reads up to the last one.

use std::ops::Range;

use super::extras::FieldsRow;
use super::field_rows::{FieldRows, FieldRowsBuilder};
use super::layout::FIELDS_BYTES;
use crate::error::FormatError;
use crate::shard::field_name_is_valid;

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

    /// The section's rows, if there are any, as long as the samples.
    pub(super) fn finish(mut self, samples: usize) -> Option<FieldRowsBuilder<FIELDS_BYTES>> {
        self.0.end(samples);
        (!self.0.is_empty()).then_some(self.0)
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
            let mut ends: Vec<FieldEnd<'_>> = Vec::new();
            for number in of_sample {
                let (_, end) =
                    end(rows, index, number).ok_or_else(|| format!("field {number} without name"))?;
                let is_again = ends.iter().any(|before| before.name == end.name);
                if !field_name_is_valid(end.name) || is_again {
                    return Err(format!("a field {:?}", end.name));
                }
                let before = ends.last().map_or(0, |before| before.up_to.blocks);
                if end.up_to.blocks <= before {
                    return Err(format!("{} at block {}, behind {before}", end.name, end.up_to.blocks));
                }
                ends.push(end);
            }
            let whole = whole(sample);
            match ends.last() {
                Some(last) if last.up_to != whole => {
                    Err(format!("{} up to {:?}, of {whole:?}", last.name, last.up_to))
                }
                _ => Ok(()),
            }
        };
        FieldRows::check(index, range, samples, ENDS, check).map(Self)
    }

    /// For each name, whether it is wanted.
    pub(super) fn wanted(&self, index: &[u8], is_wanted: impl Fn(&str) -> bool) -> Vec<bool> {
        self.0.wanted(index, is_wanted)
    }

    /// The fields of a sample, each with the position of its name, in their order in the shard.
    /// `None` if nothing is known of the sample.
    pub(super) fn ends<'a>(
        &'a self,
        index: &'a [u8],
        sample: usize,
    ) -> Option<impl DoubleEndedIterator<Item = (u16, FieldEnd<'a>)> + use<'a>> {
        let rows = self.0.of(index, sample).filter(|rows| !rows.is_empty())?;
        Some(rows.filter_map(|row| end(&self.0, index, row)))
    }
}

/// The position of a row's name, and the row.
fn end<'a>(rows: &FieldRows<FIELDS_BYTES>, index: &'a [u8], row: u32) -> Option<(u16, FieldEnd<'a>)> {
    let row = rows.row(index, row).filter(|row| row.flags == 0)?;
    let up_to = FieldsRow::decode(row.bytes)?;
    Some((row.name, FieldEnd { name: rows.name(index, row.name)?, up_to }))
}
