//! A table of byte strings: `count + 1` offsets (u64, from the blob's start, never falling), then
//! the blob.

use std::ops::Range;

use super::layout::u64_at;
use crate::error::FormatError;

const OFFSET_BYTES: usize = 8;

/// Where a checked table lies in the index.
#[derive(Clone, Debug)]
pub(super) struct Names {
    offsets: usize,
    blob: Range<usize>,
    count: u64,
}

impl Names {
    /// Checks the table that fills `index[range]`: offsets start at 0, never fall, end at the
    /// blob's end, and no string is longer than `name_bytes_max`.
    pub(super) fn check(
        index: &[u8],
        range: Range<usize>,
        count: u64,
        name_bytes_max: usize,
        structure: &'static str,
    ) -> Result<Self, FormatError> {
        let at = range.start as u64;
        let short = || {
            FormatError::new(
                structure,
                at,
                format_args!("{} bytes", range.len()),
                format_args!("{count} names"),
            )
        };
        let table = index.get(range.clone()).ok_or_else(short)?;
        let count_here = usize::try_from(count).ok().ok_or_else(short)?;
        let offsets_len =
            count_here.checked_add(1).and_then(|count| count.checked_mul(OFFSET_BYTES)).ok_or_else(short)?;
        let (offsets, blob) = table.split_at_checked(offsets_len).ok_or_else(short)?;
        let mut last = 0u64;
        for (number, chunk) in offsets.chunks_exact(OFFSET_BYTES).enumerate() {
            let offset = u64_at(chunk, 0).ok_or_else(short)?;
            let place = at.saturating_add((number as u64).saturating_mul(8));
            let length = if number == 0 && offset != 0 { None } else { offset.checked_sub(last) };
            if length.is_none_or(|length| length > name_bytes_max as u64) {
                let expected =
                    format_args!("an offset in {last}..={}", last.saturating_add(name_bytes_max as u64));
                return Err(FormatError::new(structure, place, format_args!("offset {offset}"), expected));
            }
            last = offset;
        }
        if last != blob.len() as u64 {
            return Err(FormatError::new(structure, at, format_args!("{} bytes of names", blob.len()), last));
        }
        let blob_start = range.start.checked_add(offsets_len).ok_or_else(short)?;
        Ok(Self { offsets: range.start, blob: blob_start..range.end, count })
    }

    /// The string `number`; `None` from `count` on.
    pub(super) fn get<'a>(&self, index: &'a [u8], number: u64) -> Option<&'a [u8]> {
        index.get(self.range(index, number)?)
    }

    /// A table of the first `count` strings; `None` if there are fewer.
    pub(super) fn first(&self, index: &[u8], count: u32) -> Option<Vec<u8>> {
        if u64::from(count) > self.count {
            return None;
        }
        let offsets = (count as usize).checked_add(1)?.checked_mul(OFFSET_BYTES)?;
        let mut table = index.get(self.offsets..self.offsets.checked_add(offsets)?)?.to_vec();
        let len = usize::try_from(u64_at(&table, offsets.checked_sub(OFFSET_BYTES)?)?).ok()?;
        table.extend_from_slice(index.get(self.blob.clone())?.get(..len)?);
        Some(table)
    }

    /// Where the string `number` lies in the index.
    pub(super) fn range(&self, index: &[u8], number: u64) -> Option<Range<usize>> {
        if number >= self.count {
            return None;
        }
        let at = self.offsets.checked_add(usize::try_from(number).ok()?.checked_mul(OFFSET_BYTES)?)?;
        let start = usize::try_from(u64_at(index, at)?).ok()?;
        let end = usize::try_from(u64_at(index, at.checked_add(OFFSET_BYTES)?)?).ok()?;
        let range = self.blob.start.checked_add(start)?..self.blob.start.checked_add(end)?;
        (range.start <= range.end && range.end <= self.blob.end).then_some(range)
    }
}

/// Collects a table.
#[derive(Debug, Default)]
pub(super) struct NamesBuilder {
    ends: Vec<u64>,
    blob: Vec<u8>,
}

impl NamesBuilder {
    pub(super) fn push(&mut self, name: &[u8]) {
        self.blob.extend_from_slice(name);
        self.ends.push(self.blob.len() as u64);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes that [`write`](Self::write) will append.
    pub(super) fn bytes(&self) -> usize {
        self.ends.len().saturating_add(1).saturating_mul(OFFSET_BYTES).saturating_add(self.blob.len())
    }

    /// Appends the table's bytes to `out`, and frees the offsets before it copies the blob: both
    /// may be large.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend(0u64.to_le_bytes());
        out.extend(self.ends.into_iter().flat_map(u64::to_le_bytes));
        out.extend_from_slice(&self.blob);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::NAME_BYTES_MAX;

    fn check(bytes: &[u8], count: u64) -> Result<Names, FormatError> {
        Names::check(bytes, 3..bytes.len(), count, NAME_BYTES_MAX, "names")
    }

    fn table(names: &[&[u8]]) -> Vec<u8> {
        let mut builder = NamesBuilder::default();
        for name in names {
            builder.push(name);
        }
        let mut bytes = b"xyz".to_vec();
        let len = builder.bytes();
        builder.write(&mut bytes);
        assert_eq!(bytes.len(), 3 + len);
        bytes
    }

    #[test]
    fn strings_come_back_in_order_empty_ones_too() {
        let bytes = table(&[b"cat", b"", b"\xff\x00"]);
        let names = check(&bytes, 3).unwrap();
        let all: Vec<_> = (0..4).map(|n| names.get(&bytes, n)).collect();
        assert_eq!(all, [Some(&b"cat"[..]), Some(b""), Some(b"\xff\x00"), None]);
    }

    #[test]
    fn falling_wild_or_missing_offsets_are_refused() {
        let bytes = table(&[b"cat", b"dog"]);
        for (at, value) in [(3, 1u64), (11, 7), (11, u64::MAX), (19, 5), (19, 7), (19, 2)] {
            let mut bent = bytes.clone();
            bent[at..at + 8].copy_from_slice(&value.to_le_bytes());
            assert!(check(&bent, 2).is_err(), "{at} {value}");
        }
        assert!(check(&bytes, 200).is_err());
        assert!(check(&bytes, u64::MAX).is_err());
        let long = table(&[&[b'a'; NAME_BYTES_MAX + 1]]);
        assert!(check(&long, 1).is_err());
    }
}
