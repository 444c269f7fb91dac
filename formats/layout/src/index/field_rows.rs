//! Rows of single fields: those of one sample after the other, each with its field's name.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::layout::{u16_at, u32_at};
use super::names::{Names, NamesBuilder};
use crate::error::FormatError;
use crate::limits::NAME_BYTES_MAX;
use crate::shard::field_name_is_valid;

/// Numbers of rows and names, before the tables.
const HEAD_BYTES: usize = 8;
/// The number of rows up to and including a sample's.
const END_BYTES: usize = 4;
/// Name and flags, behind what a row holds.
const NAME_BYTES: usize = 4;

/// Rows that are being written, each of `N` bytes and its name.
#[derive(Debug)]
pub(super) struct FieldRowsBuilder<const N: usize> {
    structure: &'static str,
    /// Rows up to and including each sample; shorter than the samples when the last ones have none.
    ends: Vec<u32>,
    rows: Vec<u8>,
    names: NamesBuilder,
    numbers: HashMap<String, u16>,
}

/// Where checked rows lie in the index.
#[derive(Clone, Debug)]
pub(super) struct FieldRows<const N: usize> {
    ends: usize,
    rows: usize,
    names: Names,
    name_count: u32,
}

/// A row.
pub(super) struct FieldRow<'a, const N: usize> {
    pub(super) bytes: &'a [u8; N],
    /// Position of the field's name in the table.
    pub(super) name: u16,
    pub(super) flags: u16,
}

impl<const N: usize> FieldRowsBuilder<N> {
    pub(super) fn new(structure: &'static str) -> Self {
        let (ends, rows, names) = (Vec::new(), Vec::new(), NamesBuilder::default());
        Self { structure, ends, rows, names, numbers: HashMap::new() }
    }

    /// Adds a row of the sample that is the last one of `samples`.
    pub(super) fn push(
        &mut self,
        samples: usize,
        name: &str,
        bytes: [u8; N],
        flags: u16,
    ) -> Result<(), FormatError> {
        let structure = self.structure;
        let too_many = |what: &str| FormatError::new(structure, 0, format_args!("one {what} more"), "fewer");
        let next = u16::try_from(self.numbers.len()).map_err(|_| too_many("name"))?;
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                self.names.push(name.as_bytes());
                self.numbers.insert(name.to_owned(), next);
                next
            }
        };
        self.rows.extend(bytes);
        self.rows.extend(number.to_le_bytes());
        self.rows.extend(flags.to_le_bytes());
        let before = self.ends.last().copied().unwrap_or(0);
        let end = u32::try_from(self.rows.len() / (N + NAME_BYTES)).map_err(|_| too_many("field"))?;
        self.ends.resize(samples, before);
        self.ends.last_mut().into_iter().for_each(|last| *last = end);
        Ok(())
    }

    /// The rows, if there are any, with an end for each of the samples.
    pub(super) fn finish(mut self, samples: usize) -> Option<Self> {
        let last = self.ends.last().copied()?;
        self.ends.resize(samples, last);
        Some(self)
    }

    /// Bytes that [`write`](Self::write) will append.
    pub(super) fn bytes(&self) -> usize {
        let ends = self.ends.len().saturating_mul(END_BYTES);
        let tables = ends.saturating_add(self.rows.len()).saturating_add(self.names.bytes());
        tables.saturating_add(HEAD_BYTES)
    }

    /// Appends the section's bytes to `out`.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        out.extend(count(self.rows.len() / (N + NAME_BYTES)));
        out.extend(count(self.names.len()));
        out.extend(self.ends.into_iter().flat_map(u32::to_le_bytes));
        out.extend_from_slice(&self.rows);
        self.names.write(out);
    }
}

impl<const N: usize> FieldRows<N> {
    /// Checks the section that fills `index[range]`; `check_sample` looks at each sample's rows,
    /// and an error of it is what the sample has.
    pub(super) fn check(
        index: &[u8],
        range: Range<usize>,
        samples: u32,
        structure: &'static str,
        check_sample: impl Fn(&Self, usize, Range<u32>) -> Result<(), String>,
    ) -> Result<Self, FormatError> {
        let wrong = |got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            FormatError::new(structure, range.start as u64, got, expected)
        };
        let section = index.get(range.clone()).unwrap_or_default();
        let (Some(count), Some(name_count)) = (u32_at(section, 0), u32_at(section, 4)) else {
            return Err(wrong(&format_args!("{} bytes", section.len()), &"two counts"));
        };
        let ends = range.start.saturating_add(HEAD_BYTES);
        let rows = ends.saturating_add((samples as usize).saturating_mul(END_BYTES));
        let table = rows.saturating_add((count as usize).saturating_mul(N + NAME_BYTES));
        if table > range.end {
            let expected = format_args!("{samples} samples and {count} fields");
            return Err(wrong(&format_args!("{} bytes", section.len()), &expected));
        }
        let names = Names::check(index, table..range.end, name_count.into(), NAME_BYTES_MAX, structure)?;
        let checked = Self { ends, rows, names, name_count };
        checked.check_names(index).map_err(|got| wrong(&got, &"names of fields, each once"))?;
        // By name: one more than the last sample that has it.
        let mut seen = vec![0; name_count as usize];
        let mut last = 0;
        for sample in 0..samples as usize {
            let end = checked.end_of(index, sample).unwrap_or(0);
            let fault = if end < last || end > count {
                Err(format!("an end at {end}, after {last} of {count}"))
            } else {
                let each = checked.check_each_once(index, last..end, sample, &mut seen);
                each.and_then(|()| check_sample(&checked, sample, last..end))
            };
            fault
                .map_err(|got| wrong(&format_args!("sample {sample} with {got}"), &"fields in its shard"))?;
            last = end;
        }
        if last != count {
            return Err(wrong(&format_args!("{count} fields"), &format_args!("{last}, the samples' own")));
        }
        Ok(checked)
    }

    /// Checks all names. An error is what is there.
    fn check_names(&self, index: &[u8]) -> Result<(), String> {
        let mut names = HashSet::new();
        for number in 0..self.name_count {
            let name = self.name(index, number).ok_or_else(|| format!("name {number} that is no text"))?;
            if !field_name_is_valid(name) || !names.insert(name) {
                return Err(format!("a field {name:?}"));
            }
        }
        Ok(())
    }

    /// Checks that each of a sample's rows has a name, and no two the same.
    fn check_each_once(
        &self,
        index: &[u8],
        rows: Range<u32>,
        sample: usize,
        seen: &mut [usize],
    ) -> Result<(), String> {
        for number in rows {
            let name = self.row(index, number).map(|row| row.name);
            let last = name.and_then(|name| seen.get_mut(usize::from(name)));
            let last = last.ok_or_else(|| format!("field {number} without name"))?;
            if *last == sample + 1 {
                let name = name.and_then(|name| self.name(index, name.into())).unwrap_or_default();
                return Err(format!("a field {name:?} twice"));
            }
            *last = sample + 1;
        }
        Ok(())
    }

    /// The rows of a sample.
    pub(super) fn of(&self, index: &[u8], sample: usize) -> Option<Range<u32>> {
        let start = match sample.checked_sub(1) {
            Some(before) => self.end_of(index, before)?,
            None => 0,
        };
        Some(start..self.end_of(index, sample)?)
    }

    pub(super) fn row<'a>(&self, index: &'a [u8], row: u32) -> Option<FieldRow<'a, N>> {
        let at = self.rows.checked_add((row as usize).checked_mul(N + NAME_BYTES)?)?;
        let (bytes, rest) = index.get(at..)?.split_first_chunk::<N>()?;
        Some(FieldRow { bytes, name: u16_at(rest, 0)?, flags: u16_at(rest, 2)? })
    }

    /// The name at this position of the table.
    pub(super) fn name<'a>(&self, index: &'a [u8], number: u32) -> Option<&'a str> {
        std::str::from_utf8(self.names.get(index, number.into())?).ok()
    }

    /// All names, in the order of the table.
    pub(super) fn names<'a>(&self, index: &'a [u8]) -> impl Iterator<Item = &'a str> {
        (0..self.name_count).filter_map(|number| self.name(index, number))
    }

    /// For each name, in the order of the table, whether it is wanted.
    pub(super) fn wanted(&self, index: &[u8], is_wanted: impl Fn(&str) -> bool) -> Vec<bool> {
        (0..self.name_count).map(|number| self.name(index, number).is_some_and(&is_wanted)).collect()
    }

    fn end_of(&self, index: &[u8], sample: usize) -> Option<u32> {
        let ends = index.get(self.ends..self.rows)?;
        u32_at(ends, sample.checked_mul(END_BYTES)?)
    }
}
