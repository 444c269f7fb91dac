//! Which queued records lie close enough to each other for one read. Pure.

use std::collections::BTreeMap;

use shade_formats::{SampleId, ShardId};

/// Limit of the unwanted bytes between two neighbours. By simulation (`shade-benches coalesce`),
/// for stores from 0.1 ms and 16 Gbit/s to 10 ms and 1 Gbit/s and records of 600 B to 12 KB: 16 KiB
/// is 0.98 to 2.1 times as fast as reading each record alone. 32 KiB gains more on fast links and
/// falls to 0.76 on a link of 1 Gbit/s.
pub const GAP_BYTES_MAX: u32 = 16 * 1024;
/// Limit of the records in one read.
pub const NEIGHBOURS_MAX: usize = 128;

/// Records that are queued to be read, by where they lie.
#[derive(Debug)]
pub struct Neighbours {
    queued: BTreeMap<(ShardId, u64), QueuedRecord>,
    gap_bytes_max: u32,
    span_bytes_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct QueuedRecord {
    sample: SampleId,
    len: u32,
}

impl Neighbours {
    /// No records. Neighbours are at most `gap_bytes_max` apart and span at most `span_bytes_max`
    /// together.
    #[must_use]
    pub fn new(gap_bytes_max: u32, span_bytes_max: u32) -> Self {
        Self { queued: BTreeMap::new(), gap_bytes_max, span_bytes_max }
    }

    /// Neighbours are at most this far apart from now on.
    pub(super) fn set_gap(&mut self, gap_bytes_max: u32) {
        self.gap_bytes_max = gap_bytes_max;
    }

    /// The record of `sample` is queued: `len` bytes at `offset` of `shard`.
    pub fn insert(&mut self, sample: SampleId, shard: ShardId, offset: u64, len: u32) {
        self.queued.insert((shard, offset), QueuedRecord { sample, len });
    }

    /// The record at `offset` of `shard` is not queued any more.
    pub fn remove(&mut self, shard: ShardId, offset: u64) {
        self.queued.remove(&(shard, offset));
    }

    /// Takes the record at `offset` of `shard` and its neighbours out and puts them into `group`,
    /// by offset: only itself where it has no neighbours, nothing where it is not queued.
    ///
    /// The group grows from that record, first behind it, then before it: the record needed first
    /// decides.
    pub fn take(&mut self, shard: ShardId, offset: u64, group: &mut Vec<(u64, SampleId)>) {
        group.clear();
        let Some(first) = self.queued.remove(&(shard, offset)) else { return };
        let (mut start, mut end) = (offset, offset + u64::from(first.len));
        group.push((offset, first.sample));
        for (&(_, at), record) in self.queued.range((shard, offset + 1)..=(shard, u64::MAX)) {
            let reaches = at + u64::from(record.len);
            if group.len() >= NEIGHBOURS_MAX || !self.fits(at.saturating_sub(end), reaches - start) {
                break;
            }
            end = end.max(reaches);
            group.push((at, record.sample));
        }
        for (&(_, at), record) in self.queued.range((shard, 0)..(shard, offset)).rev() {
            let gap = start.saturating_sub(at + u64::from(record.len));
            if group.len() >= NEIGHBOURS_MAX || !self.fits(gap, end - at) {
                break;
            }
            start = at;
            group.push((at, record.sample));
        }
        if group.len() > 1 {
            group.sort_unstable();
            for (at, _) in group {
                self.queued.remove(&(shard, *at));
            }
        }
    }

    fn fits(&self, gap: u64, span: u64) -> bool {
        gap <= u64::from(self.gap_bytes_max) && span <= u64::from(self.span_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHARD: ShardId = ShardId(1);

    fn of(records: &[(u64, u32)]) -> Neighbours {
        let mut neighbours = Neighbours::new(1000, 10_000);
        for (id, &(offset, len)) in (0..).zip(records) {
            neighbours.insert(SampleId(id), SHARD, offset, len);
        }
        neighbours
    }

    fn take(neighbours: &mut Neighbours, offset: u64) -> Vec<u32> {
        let mut group = Vec::new();
        neighbours.take(SHARD, offset, &mut group);
        group.into_iter().map(|(_, sample)| sample.0).collect()
    }

    #[test]
    fn neighbours_within_the_gap_come_along_in_the_order_of_their_offsets() {
        let mut neighbours = of(&[(5000, 400), (0, 400), (1400, 500), (2900, 500), (4400, 500), (6500, 1)]);
        assert_eq!(take(&mut neighbours, 1400), [1, 2, 3, 4, 0], "6500 is 1,100 behind the end of 5000");
        assert!(take(&mut neighbours, 1400).is_empty());
        assert_eq!(take(&mut neighbours, 6500), [5]);
    }

    #[test]
    fn the_span_is_kept() {
        let mut neighbours = of(&[(0, 6000), (6500, 3500), (10_500, 100)]);
        assert_eq!(take(&mut neighbours, 6500), [1, 2], "0 would make 10,600");
        assert_eq!(take(&mut neighbours, 0), [0]);
        let mut large = of(&[(0, 500_000), (500_100, 100)]);
        assert_eq!(take(&mut large, 0), [0], "a record larger than any span goes alone");
    }

    #[test]
    fn other_shards_are_no_neighbours() {
        let mut neighbours = of(&[(512, 100)]);
        neighbours.insert(SampleId(7), ShardId(0), 600, 10);
        neighbours.insert(SampleId(8), ShardId(2), 0, 10);
        assert_eq!(take(&mut neighbours, 512), [0]);
    }

    #[test]
    fn what_waits_no_more_does_not_come_along() {
        let mut neighbours = of(&[(0, 100), (200, 100), (400, 100)]);
        neighbours.remove(SHARD, 200);
        assert_eq!(take(&mut neighbours, 0), [0, 2]);
    }

    proptest! {
        #[test]
        fn every_record_is_taken_once_and_every_group_keeps_the_bounds(
            gaps in prop::collection::vec((0u64..3000, 1u32..4000), 1..60), first in any::<prop::sample::Index>()
        ) {
            let mut offset = 0;
            let records: Vec<(u64, u32)> = gaps.iter().map(|&(gap, len)| {
                let at = offset + gap;
                offset = at + u64::from(len);
                (at, len)
            }).collect();
            let mut neighbours = of(&records);
            let mut seen = vec![false; records.len()];
            let order = (0..records.len()).cycle().skip(first.index(records.len())).take(records.len());
            for head in order {
                let group = take(&mut neighbours, records[head].0);
                prop_assert_eq!(group.is_empty(), seen[head]);
                for &id in &group {
                    prop_assert!(!std::mem::replace(&mut seen[id as usize], true), "{} taken twice", id);
                }
                for pair in group.windows(2) {
                    let (a, b) = (records[pair[0] as usize], records[pair[1] as usize]);
                    prop_assert!(b.0 - (a.0 + u64::from(a.1)) <= 1000);
                }
                if let (Some(&first), Some(&last)) = (group.first(), group.last()) && first != last {
                    let last = records[last as usize];
                    prop_assert!(last.0 + u64::from(last.1) - records[first as usize].0 <= 10_000);
                }
            }
            prop_assert!(seen.iter().all(|&seen| seen));
        }
    }
}
