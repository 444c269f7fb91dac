//! What reads bring and what they cost: bytes, requests to the server, kernel workers, time.
//!
//! Time is measured in round trips of a link that is slow on purpose, so a slow machine does not
//! matter.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use shade_job::{EngineChoice, IoMode};
use shade_reads::ReadsConfig;

use crate::reader::{Reader, every_way, name_of, way};
use crate::world::{Link, SMALL, World, read_rpcs};

/// Requests that a client of NFSv4.1 and later may have in flight: its session's slots, set in
/// `guest.sh`.
const SLOTS: u32 = 24;
/// A round trip within a site. Reported but not asserted, as an emulated machine is too slow for
/// it: 256 reads, 24 at a time, take 107 ms of round trips, but 0.27 to 0.35 s of QEMU's two CPUs,
/// which are 82 to 90 % busy with client and server.
const SHORT: Duration = Duration::from_millis(10);
/// A round trip far longer than an emulated machine's own work.
const LONG: Duration = Duration::from_millis(200);
/// Tries to get a figure that a busy machine may spoil.
const ROUNDS_MAX: u32 = 5;

/// Every record has the packed bytes, in every way of reading.
pub(crate) fn bytes(world: &World) -> String {
    for way in every_way(16) {
        let place = world.place(&format!("bytes-{}", name_of(&way)));
        Reader::start(world, &place, way).read_good(&world.all());
    }
    format!("{} records right in each of 4 ways", world.index.len())
}

/// A direct read is one request, whatever the number of memory blocks.
pub(crate) fn rpcs(world: &World) -> String {
    let mut counts = Vec::new();
    for engine in [EngineChoice::Uring, EngineChoice::Threads] {
        let way = way(engine, IoMode::Direct, 16);
        let place = world.place(&format!("rpcs-{}", name_of(&way)));
        let mut reader = Reader::start(world, &place, way);
        // After the start, which reads once to find out whether direct reads are allowed.
        let before = read_rpcs();
        reader.read_good(&world.all());
        counts.push(read_rpcs() - before);
    }
    let records = u64::from(world.index.len());
    assert_eq!(counts, [records; 2], "requests to read; {records} records");
    let (groups, together) = rpcs_of_neighbours(world);
    assert_eq!(together, groups, "neighbours in {groups} groups are as many requests");
    format!("{records} records, {counts:?} requests; in groups of {GROUP} neighbours {together}")
}

/// Small records that are read together.
const GROUP: usize = 16;

/// The number of groups of neighbours, and of requests for them.
fn rpcs_of_neighbours(world: &World) -> (u64, u64) {
    let place = world.place("rpcs-together");
    let mut reader = Reader::start(world, &place, way(EngineChoice::Uring, IoMode::Direct, 16));
    let mut samples = world.samples_of(world.fullest_shard());
    samples.retain(|&sample| sample < SMALL);
    let before = read_rpcs();
    for group in samples.chunks(GROUP) {
        reader.submit_together(group);
    }
    for _ in &samples {
        let (sample, outcome) = reader.next();
        assert_eq!(outcome, Ok(()), "sample {sample}");
    }
    (samples.len().div_ceil(GROUP) as u64, read_rpcs() - before)
}

/// The number of kernel threads for io_uring's reads.
pub(crate) fn workers(world: &World) -> String {
    let depth = 24;
    let direct = most_workers(world, IoMode::Direct, depth);
    let buffered = most_workers(world, IoMode::Buffered, depth);
    if world.reads_go_to_workers() {
        assert!((1..=4).contains(&direct), "a worker only sends a direct read: {direct}");
        assert_eq!(buffered, depth as usize, "each buffered read blocks a worker");
    } else {
        assert_eq!(direct, 0, "direct reads need no worker");
    }
    format!("depth {depth}: direct {direct}, buffered {buffered}")
}

/// The most workers seen at a time.
fn most_workers(world: &World, io: IoMode, depth: u32) -> usize {
    let way = way(EngineChoice::Uring, io, depth);
    let place = world.place(&format!("workers-{}", name_of(&way)));
    let mut reader = Reader::start(world, &place, way);
    open_all(world, &mut reader);
    let _link = Link::delayed(LONG);
    let samples: Vec<u32> = (0..4 * depth).collect();
    reader.submit(&samples);
    let (mut most, mut back) = (0, 0);
    while back < samples.len() {
        most = most.max(workers_now());
        if let Some((sample, outcome)) = reader.next_within(Duration::from_millis(20)) {
            assert_eq!(outcome, Ok(()), "sample {sample}");
            back += 1;
        }
    }
    most
}

fn workers_now() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    tasks.filter(|comm| fs::read_to_string(comm).is_ok_and(|name| name.starts_with("iou-wrk-"))).count()
}

/// io_uring keeps as many reads in flight as depth and server allow, and is faster than a few
/// threads in that proportion.
pub(crate) fn concurrency(world: &World) -> String {
    let depth = 64;
    let allowed = f64::from(if world.nfs == 4 { SLOTS.min(depth) } else { depth });
    let mut said = String::new();
    for (rtt, asserted) in [(SHORT, false), (LONG, true)] {
        let engine = |engine, depth| way(engine, IoMode::Direct, depth);
        let uring = most_under_way(world, engine(EngineChoice::Uring, depth), rtt, SMALL, 0.95 * allowed);
        let threads = most_under_way(world, engine(EngineChoice::Threads, 4), rtt, SMALL / 8, 0.0);
        said += &format!(
            "RTT {rtt:?}: io_uring at depth {depth} has {:.1} of {allowed} reads under way (CPUs {:.0} % busy), 4 threads have {:.1}; ",
            uring.under_way,
            100.0 * uring.busy,
            threads.under_way
        );
        // A busy machine gives its guest too little of a CPU to keep all of them.
        assert!(!asserted || uring.under_way >= 0.75 * allowed, "{said}");
        assert!(!asserted || uring.under_way >= 4.0 * threads.under_way, "{said}");
    }
    said
}

/// A round of reads.
#[derive(Clone, Copy, Default)]
struct Round {
    /// Mean number of reads in flight: all reads' time alone, divided by the time taken.
    under_way: f64,
    /// Share of the machine's CPU time that was not idle.
    busy: f64,
}

/// CPU time of all CPUs since the boot, in ticks: (not idle, all).
fn cpu_times() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<u64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|ticks| ticks.parse().unwrap()).collect();
    let all: u64 = ticks.iter().sum();
    // The fourth is idle time, the fifth waits for disks.
    (all - ticks[3] - ticks[4], all)
}

/// The mean number of reads in flight while `count` small records are read, in the best of some
/// rounds. Rounds end once there are `enough`.
fn most_under_way(world: &World, way: ReadsConfig, rtt: Duration, count: u32, enough: f64) -> Round {
    let place = world.place(&format!("concurrency-{}-{rtt:?}", name_of(&way)));
    let mut reader = Reader::start(world, &place, way);
    open_all(world, &mut reader);
    let _link = Link::delayed(rtt);
    let mut seconds_of = |samples: &[u32]| {
        let started = Instant::now();
        reader.read_good(samples);
        started.elapsed().as_secs_f64()
    };
    let samples: Vec<u32> = (0..count).collect();
    let lone = (0..3).map(|_| seconds_of(&samples[..1])).fold(f64::MAX, f64::min);
    let mut most = Round::default();
    for _ in 0..ROUNDS_MAX {
        let before = cpu_times();
        let under_way = f64::from(count) * lone / seconds_of(&samples);
        let after = cpu_times();
        let busy = (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64;
        if under_way > most.under_way {
            most = Round { under_way, busy };
        }
        if most.under_way >= enough {
            break;
        }
    }
    most
}

/// Opens every shard, by reading its last record.
fn open_all(world: &World, reader: &mut Reader<'_>) {
    let shards: BTreeSet<_> = world.all().iter().map(|&sample| world.entry(sample).shard).collect();
    let lasts: Vec<u32> = shards.into_iter().map(|shard| *world.samples_of(shard).last().unwrap()).collect();
    reader.read_good(&lasts);
}
