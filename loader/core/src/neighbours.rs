//! Which wanted records lie so close to each other that one read brings them all. Pure.

use std::collections::BTreeMap;

use shade_formats::{SampleId, ShardId};

/// Bytes of a shard that one read of neighbours spans at most: half of what Linux' NFS client and server agree on by
/// default (512 KiB to 1 MiB), so that it stays one RPC.
pub const SPAN_BYTES_MAX: u32 = 256 * 1024;
/// Unwanted bytes that are read along rather than begin another read. By simulation (`shade-benches coalesce`): from
/// 0.1 ms and 16 Gbit to 10 ms and 1 Gbit, 600 B to 12 KB a record, 16 KiB is 0.98 to 2.1 times as fast as reading alone;
/// 32 KiB gains more on fast links and falls to 0.76 on a link of 1 Gbit.
pub const GAP_BYTES_MAX: u32 = 16 * 1024;
/// Neighbours in one read at most.
pub const NEIGHBOURS_MAX: usize = 128;

/// Records that wait to be read, by where they lie.
#[derive(Debug)]
pub struct Neighbours {
    wanted: BTreeMap<(ShardId, u64), Wanted>,
    gap_bytes_max: u32,
    span_bytes_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    sample: SampleId,
    len: u32,
}

impl Neighbours {
    /// None yet; neighbours are at most `gap_bytes_max` apart and span at most `span_bytes_max` together.
    #[must_use]
    pub fn new(gap_bytes_max: u32, span_bytes_max: u32) -> Self {
        Self { wanted: BTreeMap::new(), gap_bytes_max, span_bytes_max }
    }

    /// `sample` waits, whose record of `len` bytes lies at `offset` in `shard`.
    pub fn insert(&mut self, sample: SampleId, shard: ShardId, offset: u64, len: u32) {
        self.wanted.insert((shard, offset), Wanted { sample, len });
    }

    /// The record at `offset` in `shard` waits no more.
    pub fn remove(&mut self, shard: ShardId, offset: u64) {
        self.wanted.remove(&(shard, offset));
    }

    /// Takes the record at `offset` in `shard` and its neighbours out and puts them into `group`, in the order of their
    /// offsets; only itself where it has none, nothing where it does not wait.
    ///
    /// Grows from the record on, first behind it, then before it, so that what is wanted soonest decides.
    pub fn take(&mut self, shard: ShardId, offset: u64, group: &mut Vec<(u64, SampleId)>) {
        group.clear();
        let Some(first) = self.wanted.remove(&(shard, offset)) else { return };
        let (mut start, mut end) = (offset, offset + u64::from(first.len));
        group.push((offset, first.sample));
        for (&(_, at), wanted) in self.wanted.range((shard, offset + 1)..=(shard, u64::MAX)) {
            let reaches = at + u64::from(wanted.len);
            if group.len() >= NEIGHBOURS_MAX || !self.fits(at.saturating_sub(end), reaches - start) {
                break;
            }
            end = end.max(reaches);
            group.push((at, wanted.sample));
        }
        for (&(_, at), wanted) in self.wanted.range((shard, 0)..(shard, offset)).rev() {
            let gap = start.saturating_sub(at + u64::from(wanted.len));
            if group.len() >= NEIGHBOURS_MAX || !self.fits(gap, end - at) {
                break;
            }
            start = at;
            group.push((at, wanted.sample));
        }
        if group.len() > 1 {
            group.sort_unstable();
            for (at, _) in group {
                self.wanted.remove(&(shard, *at));
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
