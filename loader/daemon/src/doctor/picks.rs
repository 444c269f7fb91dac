//! Chooses the probe's records: random ones, of open shards.
//!
//! A shard is opened when it is first read, which takes extra round trips on NFS. The daemon does
//! that once in days; in a probe of seconds over hundreds of shards it would be most of the result.
//! So the probe uses some shards only, and reads one record of each before it measures. Where each
//! image is a file, the daemon opens one for nearly every read, and so does the probe.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use shade_formats::index::{Index, PlacesKind};
use shade_formats::{SampleId, ShardId};

/// Most shards to read from: enough to spread over a server's disks.
const SHARDS_MAX: u32 = 64;

/// The records to read.
pub(super) struct Picks {
    random: ChaCha8Rng,
    /// One sample of each chosen shard.
    firsts: Vec<(ShardId, SampleId)>,
    /// Number of these that were handed out.
    opened: usize,
    /// All samples of the chosen shards; of the dataset where each has a file of its own.
    samples: Vec<SampleId>,
}

impl Picks {
    /// Chooses shards of `index` at random, differently in each run, so that the server's caches do
    /// not answer.
    pub(super) fn new(index: &Index) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let random = ChaCha8Rng::seed_from_u64(now.as_secs() ^ (u64::from(now.subsec_nanos()) << 32));
        let mut picks = Self { random, firsts: Vec::new(), opened: 0, samples: Vec::new() };
        if index.places().is_some_and(|places| places.kind == PlacesKind::Files) {
            picks.samples = (0..index.len()).map(SampleId).collect();
            return picks;
        }
        let mut chosen = BTreeMap::new();
        for _ in 0..SHARDS_MAX {
            // A shard that is drawn twice does no harm.
            let shard = picks.below(u64::from(index.shard_count()));
            chosen.insert(u32::try_from(shard).unwrap_or(0), None);
        }
        for id in 0..index.len() {
            let Some(entry) = index.entry(SampleId(id)) else { continue };
            if let Some(first) = chosen.get_mut(&entry.shard.0) {
                first.get_or_insert(SampleId(id));
                picks.samples.push(SampleId(id));
            }
        }
        picks.firsts =
            chosen.into_iter().filter_map(|(shard, first)| Some((ShardId(shard), first?))).collect();
        picks
    }

    /// A sample of the next shard to open.
    pub(super) fn next_shard(&mut self) -> Option<SampleId> {
        let (_, sample) = self.firsts.get(self.opened)?;
        self.opened += 1;
        Some(*sample)
    }

    /// Drops the shards that were not handed out, unless none was.
    pub(super) fn keep_opened(&mut self, index: &Index) {
        if self.opened == 0 || self.opened == self.firsts.len() {
            return;
        }
        self.firsts.truncate(self.opened);
        let firsts = &self.firsts;
        let is_open = |shard: ShardId| firsts.iter().any(|(open, _)| *open == shard);
        self.samples.retain(|sample| index.entry(*sample).is_some_and(|entry| is_open(entry.shard)));
    }

    /// Any of the samples.
    pub(super) fn random(&mut self) -> Option<SampleId> {
        let at = self.below(self.samples.len() as u64);
        self.samples.get(usize::try_from(at).ok()?).copied()
    }

    /// A number below `bound`. The modulus favours low ones by less than one in a thousand million.
    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shade_formats::index::{Entry, IndexBuilder, Shard};

    use super::*;

    /// `shards` shards of `each` samples, which alternate between the shards.
    fn index(shards: u32, each: u32) -> Index {
        let mut index = IndexBuilder::new();
        for id in 0..shards {
            let bytes = 1024 * u64::from(each + 1);
            index
                .push_shard(Shard { name: &format!("shard-{id:06}.tar"), bytes, crc32c: 0, records: each })
                .unwrap();
        }
        index.push_class(b"a").unwrap();
        for id in 0..shards * each {
            let offset = 512 + 1024 * u64::from(id / shards);
            let entry = Entry {
                shard: ShardId(id % shards),
                offset,
                stored_len: 100,
                raw_len: 100,
                crc32c: Some(0),
                label: 0,
                width: 0,
                height: 0,
                codec: Default::default(),
                media: Default::default(),
            };
            index.push_sample(&entry, format!("a/{id:06}").as_bytes()).unwrap();
        }
        Index::open(index.finish().unwrap()).unwrap()
    }

    #[test]
    fn every_shard_of_a_small_dataset_is_opened_once_and_read_from() {
        let index = index(3, 5);
        let mut picks = Picks::new(&index);
        let shard = |sample| index.entry(sample).unwrap().shard.0;
        let opened: Vec<u32> = std::iter::from_fn(|| picks.next_shard()).map(shard).collect();
        assert_eq!(opened, [0, 1, 2]);
        picks.keep_opened(&index);
        let read: BTreeSet<SampleId> = (0..1000).filter_map(|_| picks.random()).collect();
        assert_eq!(read.len(), 15);
    }

    #[test]
    fn of_many_shards_some_are_chosen_and_only_opened_ones_are_read_from() {
        let index = index(200, 2);
        let mut picks = Picks::new(&index);
        assert!(picks.firsts.len() <= 64 && picks.firsts.len() > 30, "{}", picks.firsts.len());
        assert_eq!(picks.samples.len(), 2 * picks.firsts.len());
        let opened = [picks.next_shard().unwrap(), picks.next_shard().unwrap()];
        picks.keep_opened(&index);
        let shard = |sample| index.entry(sample).unwrap().shard;
        for _ in 0..100 {
            let read = picks.random().unwrap();
            assert!(opened.iter().any(|opened| shard(*opened) == shard(read)), "{read:?}");
        }
    }

    #[test]
    fn where_each_sample_is_a_file_all_are_read_from_and_opened_then() {
        let mut index = IndexBuilder::new();
        index.push_class(b"a").unwrap();
        for id in 0..200 {
            index.push_shard(Shard { name: "", bytes: 100, crc32c: 0, records: 1 }).unwrap();
            let (codec, media) = Default::default();
            let (shard, offset, stored_len, raw_len) = (ShardId(id), 0, 100, 100);
            let (crc32c, label, width, height) = (None, 0, 0, 0);
            let entry =
                Entry { shard, offset, stored_len, raw_len, crc32c, label, width, height, codec, media };
            index.push_sample(&entry, format!("a/{id:06}").as_bytes()).unwrap();
        }
        index.set_places(PlacesKind::Files, b"/images", vec![0; 200]);
        let index = Index::open(index.finish().unwrap()).unwrap();
        let mut picks = Picks::new(&index);
        assert_eq!(picks.next_shard(), None);
        picks.keep_opened(&index);
        let read: BTreeSet<SampleId> = (0..10_000).filter_map(|_| picks.random()).collect();
        assert_eq!(read.len(), 200);
    }

    #[test]
    fn without_time_to_open_any_all_are_read_from() {
        let index = index(2, 3);
        let mut picks = Picks::new(&index);
        picks.keep_opened(&index);
        assert_eq!(picks.samples.len(), 6);
    }
}
