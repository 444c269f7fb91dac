//! How much of the daemon's memory this process has mapped: no more than the ring is long. Pure bookkeeping.
//!
//! The system counts a page that a process has looked at as its own, though it is the daemon's and there once. So what was
//! looked at is unmapped again when it is much: it is mapped anew, with the same bytes, if it is looked at once more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use shade_formats::ring::HUGE_PAGE_BYTES;

use crate::lent::Stretch;

/// What may become resident by a look at one byte of a mapping with huge pages.
const WINDOW_BYTES: u64 = HUGE_PAGE_BYTES as u64;
/// What becomes resident by a look at one byte of a mapping with small pages: Linux maps those around it, 64 KiB by default.
const AROUND_BYTES: u64 = 64 << 10;
/// A record may lie in two.
const WINDOWS_MIN: u64 = 2;
/// Neighbours so near are unmapped at once. The system steps over as many that are not mapped in about the time of one call.
const GAP_WINDOWS_MAX: u64 = 128;

/// What was looked at in place since it was unmapped last, to be read.
#[derive(Debug)]
pub(crate) struct Looked {
    windows: BTreeSet<u64>,
    windows_max: u64,
    /// Bytes of batches in the ring, likewise.
    ring_bytes: u64,
    ring_bytes_max: u64,
}

impl Looked {
    /// Nothing, of a trainer whose ring has a payload of so many bytes.
    pub(crate) fn new(ring_bytes: u64) -> Self {
        Self {
            windows: BTreeSet::new(),
            windows_max: (ring_bytes / 2 / WINDOW_BYTES).max(WINDOWS_MIN),
            ring_bytes: 0,
            ring_bytes_max: ring_bytes / 4,
        }
    }

    /// Counts a look at a record. What is to be unmapped before it, if that would be too much: nearly all.
    pub(crate) fn record(&mut self, Stretch { at, len }: Stretch) -> Vec<Range<u64>> {
        let windows = at / WINDOW_BYTES..=at.saturating_add(len.saturating_sub(1)) / WINDOW_BYTES;
        let new = windows.clone().filter(|window| !self.windows.contains(window)).count() as u64;
        let to_unmap = if self.windows.len() as u64 + new > self.windows_max {
            runs(&std::mem::take(&mut self.windows))
        } else {
            Vec::new()
        };
        self.windows.extend(windows);
        to_unmap
    }

    /// Counts a batch of so many bytes in the ring. Whether the ring is to be unmapped before it, since trainers look elsewhere
    /// now: the batch `lends` records.
    pub(crate) fn batch(&mut self, bytes: u64, lends: bool) -> bool {
        let unmap = lends && self.ring_bytes > self.ring_bytes_max;
        if unmap {
            self.ring_bytes = 0;
        }
        self.ring_bytes = self.ring_bytes.saturating_add(bytes);
        unmap
    }
}

/// The bytes of windows, with those between near ones.
fn runs(windows: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &window in windows {
        let bytes = window * WINDOW_BYTES..(window + 1) * WINDOW_BYTES;
        match runs.last_mut() {
            Some(run) if bytes.start - run.end <= GAP_WINDOWS_MAX * WINDOW_BYTES => run.end = bytes.end,
            _ => runs.push(bytes),
        }
    }
    runs
}

/// Records in hand that may have been written to. Each has pages of its own.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// How long each is, by where it begins.
    records: BTreeMap<u64, u64>,
}

impl Written {
    pub(crate) fn insert(&mut self, Stretch { at, len }: Stretch) {
        self.records.insert(at, len);
    }

    /// A record is in hand no longer. What is to be unmapped: it, and what became resident around it, but for others.
    pub(crate) fn remove(&mut self, Stretch { at, len }: Stretch) -> Range<u64> {
        self.records.remove(&at);
        let end = at.saturating_add(len);
        let before = self.records.range(..at).next_back().map_or(0, |(&at, &len)| at.saturating_add(len));
        let after = self.records.range(at..).next().map_or(u64::MAX, |(&at, _)| at);
        let page = rustix::param::page_size() as u64;
        let start = (at - at % AROUND_BYTES).max(before.next_multiple_of(page)).min(at);
        start..end.next_multiple_of(AROUND_BYTES).min(after).max(end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn record(at: u64, len: u64) -> Stretch {
        Stretch { at, len }
    }

    #[test]
    fn nothing_is_unmapped_while_half_of_the_ring_is_looked_at() {
        let mut looked = Looked::new(16 * MIB);
        assert!(looked.record(record(MIB, 2 * MIB)).is_empty(), "windows 0 and 1");
        assert!(looked.record(record(4 * MIB, MIB)).is_empty(), "window 2");
        assert!(looked.record(record(0, 6 * MIB)).is_empty(), "the same");
        assert!(looked.record(record(1000 * MIB, 0)).is_empty(), "window 500");
        let far = record(1001 * MIB, 1);
        assert!(looked.record(far).is_empty());
        let (start, end) = (1000 * MIB, 1002 * MIB);
        assert_eq!(looked.record(record(6 * MIB, 1)), [0..6 * MIB, start..end]);
        assert!(looked.record(far).is_empty());
        assert_eq!(looked.windows, BTreeSet::from([3, 500]));
    }

    #[test]
    fn a_small_ring_does_for_a_record_across_two_windows() {
        let mut looked = Looked::new(4096);
        assert!(looked.record(record(2 * MIB - 1, 2)).is_empty());
        assert!(looked.record(record(4 * MIB - 1, 2)).iter().eq([&(0..4 * MIB)]));
    }

    #[test]
    fn the_ring_is_unmapped_once_records_are_lent() {
        let mut looked = Looked::new(400);
        assert!((0..10).all(|_| !looked.batch(100, false)));
        assert!(looked.batch(60, true));
        assert!(!looked.batch(50, true));
        assert!(looked.batch(1, true), "110 bytes are more than a quarter");
    }

    proptest! {
        #[test]
        fn never_more_is_resident_than_half_of_the_ring(
            looks in prop::collection::vec((0..4000 * MIB, 0..3 * MIB), 1..200), ring in 16..200_u64,
        ) {
            let mut looked = Looked::new(ring * MIB);
            let mut mapped = BTreeSet::new();
            for (at, len) in looks {
                for run in looked.record(record(at, len)) {
                    mapped.retain(|&window| !run.contains(&(window * WINDOW_BYTES)));
                }
                mapped.extend(at / WINDOW_BYTES..(at + len.max(1)).div_ceil(WINDOW_BYTES));
                prop_assert!(mapped.len() as u64 * WINDOW_BYTES <= ring * MIB / 2);
            }
        }

        /// Records of 1 to 20 pages with gaps of 0 to 20, written to and given back in any order.
        #[test]
        fn what_was_written_is_unmapped_when_it_is_given_back_and_not_before(
            pages in prop::collection::vec((0..20_u64, 1..20_u64), 1..40), order in any::<u64>(),
        ) {
            let page = rustix::param::page_size() as u64;
            let mut at = 0;
            let mut records: Vec<Stretch> = pages.iter().map(|&(gap, pages)| {
                let record = record(at + gap * page, pages * page - 1);
                at = record.at + pages * page;
                record
            }).collect();
            let mut written = Written::default();
            records.iter().for_each(|&record| written.insert(record));
            while !records.is_empty() {
                let gone = records.swap_remove(usize::try_from(order % records.len() as u64).unwrap());
                let range = written.remove(gone);
                prop_assert!(range.start <= gone.at && gone.at + gone.len <= range.end);
                prop_assert!(range.start + AROUND_BYTES > gone.at && range.end < gone.at + gone.len + AROUND_BYTES);
                for other in &records {
                    prop_assert!(other.at >= range.end || other.at + other.len <= range.start, "{other:?}");
                }
            }
            prop_assert!(written.records.is_empty());
        }
    }
}
