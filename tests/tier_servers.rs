//! Records in real cache servers, Valkey and Redis, single ones and clusters: what is stored comes
//! back as it was, and whatever happens to a server, each order is answered once.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use shade_core::{Memory, TierEvent, TierMiss, TierOrder, TierPut};
use shade_formats::checksum::crc32c;
use shade_formats::{ContentId, SampleId, ShardId};
use shade_reads::ReadOp;
use shade_reads::blocks::{Arena, Blocks, FreeList, Record};
use shade_tests::{CacheServers, CuttingProxy, PATIENCE, cache_server_programs, eventually};
use shade_tier::{Event, Tier, TierConfig};

/// Odd, so that records end within a block.
const BLOCK_BYTES: u32 = 1536;
const SAMPLES: u32 = 60;

/// A sample that was asked for, and what became of it.
type Got = (u32, Result<(), TierMiss>);

/// A tier and the core's end of it.
struct World {
    tier: Tier,
    events: Receiver<Event>,
    arena: Arc<Arena>,
    free: FreeList,
    /// Bytes that the tier may fill.
    room: u64,
    held: Vec<SampleId>,
}

/// From one byte to some hundred KB.
fn len(sample: u32) -> u32 {
    1 + sample * sample * 97
}

fn bytes(sample: u32) -> Vec<u8> {
    (0..len(sample))
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0] ^ sample.to_le_bytes()[0])
        .collect()
}

impl World {
    /// Waits until the servers are reached.
    fn new(servers: &CacheServers, content_id: u128) -> Self {
        Self::over(&servers.text(), servers.count(), (content_id, PATIENCE))
    }

    /// The same with a daemon's deadline, for tests in which a server hangs.
    fn in_a_hurry(servers: &CacheServers, content_id: u128) -> Self {
        Self::over(&servers.text(), servers.count(), (content_id, shade_tier::DEADLINE))
    }

    fn over(servers: &str, count: usize, (content_id, deadline): (u128, Duration)) -> Self {
        let (arena, free) = Arena::create(64 << 20, BLOCK_BYTES).unwrap();
        let (arena, (events_in, events)) = (Arc::new(arena), unbounded());
        let config = TierConfig {
            servers: servers.parse().unwrap(),
            bytes: None,
            content_id: ContentId(content_id),
            fields: None,
            record_bytes: 10_000,
            deadline,
        };
        let tier = Tier::start(config, Arc::clone(&arena), events_in).unwrap();
        let mut world = Self { tier, events, arena, free, room: 0, held: Vec::new() };
        for _ in 0..count {
            world.wait_for_room();
        }
        world
    }

    fn wait_for_room(&mut self) {
        loop {
            match self.events.recv().unwrap() {
                TierEvent::Room { bytes, get } => {
                    assert!(get.is_some(), "the servers' speed is measured");
                    self.room = bytes;
                    return;
                }
                event => self.take(event),
            }
        }
    }

    /// An event that is no answer.
    fn take(&mut self, event: Event) {
        match event {
            TierEvent::Room { bytes, .. } => self.room = bytes,
            TierEvent::Held(samples) => self.held.extend(samples),
            TierEvent::Got { .. } | TierEvent::Put { .. } => panic!("an answer that nobody waits for"),
        }
    }

    fn put(&mut self, samples: impl Iterator<Item = u32>) -> Vec<(u32, TierPut)> {
        let stored = self.order_put(samples);
        self.answers(0, stored).1
    }

    /// Orders records to be stored. Returns how many.
    fn order_put(&mut self, samples: impl Iterator<Item = u32>) -> usize {
        let mut asked = 0;
        for sample in samples {
            let bytes = bytes(sample);
            let mut blocks = self.free.take(bytes.len() as u64).unwrap();
            let mut rest = bytes.as_slice();
            for slice in self.arena.slices_mut(&mut blocks, len(sample)).unwrap() {
                slice.copy_from_slice(rest.split_off(..slice.len()).unwrap());
            }
            let record = FreeList::lend(Arc::new(Record::new(blocks, false)));
            self.tier.order(TierOrder::Put { sample: SampleId(sample), len: len(sample), record });
            asked += 1;
        }
        asked
    }

    /// Orders records to be fetched, all at once. Returns how many.
    fn order_get(&mut self, samples: impl Iterator<Item = u32>) -> usize {
        let ops: Vec<ReadOp> = samples.map(|sample| self.op(sample)).collect();
        let asked = ops.len();
        self.tier.order(TierOrder::Get(ops));
        asked
    }

    /// Waits for these numbers of answers. A record that comes is compared with what was stored.
    fn answers(&mut self, fetched: usize, stored: usize) -> (Vec<Got>, Vec<(u32, TierPut)>) {
        let (mut got, mut put) = (Vec::new(), Vec::new());
        while got.len() < fetched || put.len() < stored {
            match self.events.recv().unwrap() {
                TierEvent::Put { sample, record, outcome } => {
                    self.free.release(FreeList::take_back(record));
                    put.push((sample.0, outcome));
                }
                TierEvent::Got { op, outcome, .. } => {
                    if outcome.is_ok() {
                        let contents = self.contents(&op.blocks, op.len);
                        assert_eq!(contents, bytes(op.sample.0), "sample {}", op.sample);
                    }
                    got.push((op.sample.0, outcome));
                    self.free.give(op.blocks);
                }
                event => self.take(event),
            }
        }
        assert_eq!((got.len(), put.len()), (fetched, stored), "an answer that nobody waits for");
        got.sort_unstable_by_key(|(sample, _)| *sample);
        (got, put)
    }

    fn op(&mut self, sample: u32) -> ReadOp {
        ReadOp {
            flight: 0,
            sample: SampleId(sample),
            shard: ShardId(0),
            offset: 0,
            len: len(sample),
            crc32c: Some(crc32c(&bytes(sample))),
            recheck: false,
            blocks: self.free.take(u64::from(len(sample))).unwrap(),
        }
    }

    /// Asks for all at once.
    fn get(&mut self, samples: impl Iterator<Item = u32>) -> Vec<Got> {
        let asked = self.order_get(samples);
        self.answers(asked, 0).0
    }

    fn contents(&self, blocks: &Blocks, len: u32) -> Vec<u8> {
        self.arena.slices(blocks, len).unwrap().flatten().copied().collect()
    }

    /// Asks for one record.
    fn get_one(&mut self, sample: u32) -> Result<(), TierMiss> {
        self.get(std::iter::once(sample))[0].1
    }

    fn remove(&self, samples: impl Iterator<Item = u32>) {
        self.tier.order(TierOrder::Drop(samples.map(SampleId).collect()));
    }
}

fn all_stored(answers: &[(u32, TierPut)]) {
    assert!(answers.iter().all(|(_, outcome)| *outcome == TierPut::Stored), "{answers:?}");
}

/// Runs `test` with each server program of this machine.
fn with_each(test: impl Fn(&str, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in cache_server_programs(folder.path()) {
        test(name, &program);
    }
}

const ROOM: [&str; 2] = ["--maxmemory", "64mb"];

#[test]
fn a_record_comes_back_as_it_was_until_it_is_removed() {
    with_each(|name, program| {
        for servers in [
            CacheServers::cluster(program, 3, &ROOM),
            CacheServers::single(program, 1, &ROOM),
            CacheServers::single(program, 2, &ROOM),
        ] {
            let mut world = World::new(&servers, 1);
            assert_eq!(world.room, servers.count() as u64 * (64 << 20) / 10 * 9, "{name}");
            assert_eq!(world.get_one(3), Err(TierMiss::Absent));
            all_stored(&world.put(0..SAMPLES));
            assert_eq!(servers.keys(), u64::from(SAMPLES), "nothing else is left there");
            for (sample, outcome) in world.get(0..SAMPLES) {
                assert_eq!(outcome, Ok(()), "{name}: sample {sample}");
            }
            world.remove(0..SAMPLES / 2);
            // In their order: what is stored afterwards stays.
            all_stored(&world.put(0..1));
            eventually("they are removed", || servers.keys() == u64::from(SAMPLES / 2 + 1));
            for (sample, outcome) in world.get(0..SAMPLES) {
                let is_there = sample == 0 || sample >= SAMPLES / 2;
                assert_eq!(outcome, if is_there { Ok(()) } else { Err(TierMiss::Absent) });
            }
        }
    });
}

#[test]
fn wrong_bytes_are_told_from_right_ones() {
    with_each(|_, program| {
        let servers = CacheServers::single(program, 1, &ROOM);
        let mut world = World::new(&servers, 0xfeed);
        all_stored(&world.put(0..SAMPLES));
        let mut flipped = bytes(7);
        flipped[100] ^= 1;
        let key = |sample: u32| format!("shade:{:032x}:{sample:08x}", 0xfeed);
        let mut connection = servers.connect(0);
        let mut set = |sample, bytes: &[u8]| {
            connection.call(&[b"SET", key(sample).as_bytes(), bytes]).unwrap();
        };
        set(7, &flipped);
        set(8, &bytes(8)[1..]);
        set(9, &[bytes(9), vec![0]].concat());
        set(10, b"");
        servers.call(0, &["DEL", &key(11)]);
        servers.call(0, &["RPUSH", &key(11), "a list"]);
        for (sample, outcome) in world.get(0..SAMPLES) {
            let expected = match sample {
                7..=10 => Err(TierMiss::Wrong),
                11 => Err(TierMiss::Down),
                _ => Ok(()),
            };
            assert_eq!(outcome, expected, "sample {sample}");
        }
        // Another dataset's keys are others.
        let mut other = World::new(&servers, 0xfeee);
        assert_eq!(other.get_one(1), Err(TierMiss::Absent));
        assert!(other.held.is_empty());
    });
}

#[test]
fn a_full_server_refuses_and_keeps_what_it_has() {
    with_each(|_, program| {
        let servers = CacheServers::single(program, 1, &["--maxmemory", "6mb"]);
        let mut world = World::new(&servers, 1);
        let answers = world.put(0..SAMPLES);
        let stored: Vec<u32> = answers
            .iter()
            .filter(|(_, outcome)| *outcome == TierPut::Stored)
            .map(|(sample, _)| *sample)
            .collect();
        assert!(!stored.is_empty() && stored.len() < SAMPLES as usize, "{answers:?}");
        assert!(answers.iter().all(|(_, outcome)| *outcome != TierPut::Failed), "{answers:?}");
        for (sample, outcome) in world.get(0..SAMPLES) {
            let expected = if stored.contains(&sample) { Ok(()) } else { Err(TierMiss::Absent) };
            assert_eq!(outcome, expected);
        }
    });
}

#[test]
fn a_killed_server_costs_its_own_records_alone_and_comes_back_without_them() {
    with_each(|name, program| {
        let mut servers = CacheServers::cluster(program, 3, &ROOM);
        let mut world = World::new(&servers, 1);
        all_stored(&world.put(0..SAMPLES));
        servers.kill(1);
        let answers = world.get(0..SAMPLES);
        let lost: Vec<u32> = answers
            .iter()
            .filter(|(_, outcome)| *outcome == Err(TierMiss::Down))
            .map(|(sample, _)| *sample)
            .collect();
        assert!(!lost.is_empty() && lost.len() < SAMPLES as usize, "{name}: {answers:?}");
        assert!(
            answers.iter().all(|(sample, outcome)| outcome.is_ok() != lost.contains(sample)),
            "{answers:?}"
        );
        // While it is gone.
        let puts = world.put(0..SAMPLES);
        assert!(
            puts.iter().all(|(sample, put)| (*put == TierPut::Failed) == lost.contains(sample)),
            "{puts:?}"
        );
        servers.restart(1);
        eventually("it is asked again", || world.get_one(lost[0]) == Err(TierMiss::Absent));
        all_stored(&world.put(lost.iter().copied()));
        assert!(world.get(0..SAMPLES).iter().all(|(_, outcome)| outcome.is_ok()));
    });
}

#[test]
fn with_all_servers_gone_every_order_is_answered() {
    with_each(|_, program| {
        let mut servers = CacheServers::cluster(program, 3, &ROOM);
        let mut world = World::new(&servers, 1);
        all_stored(&world.put(0..SAMPLES));
        (0..3).for_each(|at| servers.kill(at));
        for _ in 0..20 {
            assert!(world.get(0..SAMPLES).iter().all(|(_, outcome)| *outcome == Err(TierMiss::Down)));
            assert!(world.put(0..SAMPLES).iter().all(|(_, outcome)| *outcome == TierPut::Failed));
        }
    });
}

#[test]
fn a_server_that_hangs_is_left_alone() {
    with_each(|_, program| {
        let servers = CacheServers::single(program, 1, &ROOM);
        all_stored(&World::new(&servers, 1).put(0..SAMPLES));
        let mut world = World::in_a_hurry(&servers, 1);
        let hangs = rustix::process::Pid::from_raw(i32::try_from(servers.pid(0)).unwrap()).unwrap();
        rustix::process::kill_process(hangs, rustix::process::Signal::STOP).unwrap();
        for _ in 0..20 {
            assert!(world.get(0..SAMPLES).iter().all(|(_, outcome)| *outcome == Err(TierMiss::Down)));
        }
        rustix::process::kill_process(hangs, rustix::process::Signal::CONT).unwrap();
        eventually("it is asked again", || world.get(0..SAMPLES).iter().all(|(_, outcome)| outcome.is_ok()));
    });
}

#[test]
fn slots_that_move_are_found_again() {
    with_each(|_, program| {
        let servers = CacheServers::cluster(program, 3, &ROOM);
        let mut world = World::new(&servers, 1);
        // All slots of the last server go to the first one, and their records are lost on the way.
        let to = servers.call(0, &["CLUSTER", "MYID"]).text().unwrap();
        let key = |sample: u32| format!("shade:{:032x}:{sample:08x}", 1);
        let slot = |sample| servers.number(0, &["CLUSTER", "KEYSLOT", &key(sample)]);
        let moved: Vec<u32> = (0..SAMPLES).filter(|&sample| slot(sample) > 16_384 * 2 / 3).collect();
        assert!(moved.len() > 5);
        // The first to come is refused by the former owner, and tells of it. What servers had told
        // each other before, and comes late, may give slots back: so they are moved again.
        eventually("the new owner is found", || {
            for &sample in &moved {
                for at in 0..3 {
                    servers.call(at, &["CLUSTER", "SETSLOT", &slot(sample).to_string(), "NODE", &to]);
                }
            }
            world.put(moved.iter().copied()).iter().all(|(_, put)| *put == TierPut::Stored)
        });
        assert!(world.get(moved.iter().copied()).iter().all(|(_, outcome)| outcome.is_ok()));
        assert_eq!(servers.number(2, &["DBSIZE"]), 0);
    });
}

#[test]
fn what_an_earlier_daemon_stored_is_found() {
    with_each(|_, program| {
        let servers = CacheServers::cluster(program, 3, &ROOM);
        all_stored(&World::new(&servers, 1).put(0..SAMPLES));
        let mut world = World::new(&servers, 1);
        while world.held.len() < SAMPLES as usize {
            let event = world.events.recv().unwrap();
            world.take(event);
        }
        world.held.sort_unstable();
        assert!(world.held.iter().copied().eq((0..SAMPLES).map(SampleId)));
        assert!(world.get(0..SAMPLES).iter().all(|(_, outcome)| outcome.is_ok()));
    });
}

/// A server that hangs up when it is asked for a record (a key of 47 bytes), which a store waits
/// behind. It is left alone for some seconds each time.
#[test]
fn orders_of_a_round_that_fails_are_all_answered() {
    with_each(|_, program| {
        let servers = CacheServers::single(program, 1, &ROOM);
        let proxy = CuttingProxy::new(&servers, 0, "GET\r\n$47", usize::MAX);
        let mut world = World::over(&proxy.text(), 1, (1, PATIENCE));
        let free = world.free.free_bytes();
        while proxy.cuts() < 2 {
            let stored = world.order_put(0..SAMPLES);
            let asked = world.order_get(0..SAMPLES);
            // Each comes back with its blocks.
            world.answers(asked, stored);
            assert_eq!(world.free.free_bytes(), free);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn a_scan_that_is_cut_off_is_repeated() {
    with_each(|_, program| {
        let servers = CacheServers::single(program, 1, &ROOM);
        all_stored(&World::new(&servers, 1).put(0..SAMPLES));
        let proxy = CuttingProxy::new(&servers, 0, "SCAN", 1);
        let mut world = World::over(&proxy.text(), 1, (1, PATIENCE));
        let mut found = HashSet::new();
        while found.len() < SAMPLES as usize {
            let event = world.events.recv().unwrap();
            world.take(event);
            found = world.held.iter().collect();
        }
        assert_eq!(proxy.cuts(), 1);
    });
}

/// A tier that may fill 12,345 bytes of these servers, started and then `meanwhile`, has its room.
fn a_size_that_is_given_is_told(servers: &mut CacheServers, meanwhile: impl FnOnce(&mut CacheServers)) {
    let (arena, _free) = Arena::create(1 << 20, BLOCK_BYTES).unwrap();
    let (events_in, events) = unbounded();
    let config = TierConfig {
        servers: servers.text().parse().unwrap(),
        bytes: Some(12_345),
        content_id: ContentId(1),
        fields: None,
        record_bytes: 1000,
        deadline: PATIENCE,
    };
    let tier = Tier::start(config, Arc::new(arena), events_in).unwrap();
    meanwhile(servers);
    let event = events.recv().unwrap();
    assert!(matches!(event, TierEvent::Room { bytes: 12_345, .. }));
    drop(tier);
    // Its threads end, and with them the last sender.
    while events.recv().is_ok() {}
}

#[test]
fn servers_that_come_later_are_found() {
    with_each(|_, program| {
        let mut servers = CacheServers::single(program, 1, &ROOM);
        servers.kill(0);
        a_size_that_is_given_is_told(&mut servers, |servers| servers.restart(0));
    });
}

#[test]
fn a_size_that_is_given_needs_no_right_to_ask_for_the_server_s() {
    with_each(|_, program| {
        let mut servers = CacheServers::single(program, 1, &ROOM);
        servers.call(0, &["ACL", "SETUSER", "default", "-info"]);
        a_size_that_is_given_is_told(&mut servers, |_| ());
    });
}
