//! What reads bring and what they cost: bytes, requests to the server and how many of them are in
//! flight, kernel workers. Nothing is timed: a link that is slow on purpose keeps requests in
//! flight until they are counted.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use shade_job::{EngineChoice, IoMode};
use shade_reads::ReadsConfig;

use crate::reader::{Reader, every_way, name_of, way};
use crate::world::{Link, SMALL, World, read_rpcs, reads_in_flight};

/// Requests that a client of NFSv4.1 and later may have in flight: its session's slots, set in
/// `guest.sh`.
const SLOTS: u32 = 24;
/// A round trip far longer than a machine's own work, be it emulated and busy.
const LONG: Duration = Duration::from_secs(1);

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

/// io_uring keeps as many reads in flight as depth and server allow, and a few threads only as many
/// as they are.
pub(crate) fn concurrency(world: &World) -> String {
    let (depth, threads) = (64, 4);
    let allowed = u64::from(if world.nfs == 4 { SLOTS.min(depth) } else { depth });
    let engine = |engine, depth| way(engine, IoMode::Direct, depth);
    let by_uring = most_in_flight(world, engine(EngineChoice::Uring, depth), SMALL / 2);
    let by_threads = most_in_flight(world, engine(EngineChoice::Threads, threads), SMALL / 8);
    let said = format!(
        "io_uring at depth {depth} has {by_uring} of {allowed} reads in flight, {threads} threads have {by_threads}"
    );
    assert_eq!([by_uring, by_threads], [allowed, threads.into()], "{said}");
    said
}

/// The most reads that were under way at a time, of `count` small records.
fn most_in_flight(world: &World, way: ReadsConfig, count: u32) -> u64 {
    let place = world.place(&format!("concurrency-{}", name_of(&way)));
    let mut reader = Reader::start(world, &place, way);
    open_all(world, &mut reader);
    // A request that was sent twice, and had one answer, counts for ever.
    let lost = reads_in_flight();
    let _link = Link::delayed(LONG);
    let samples: Vec<u32> = (0..count).collect();
    reader.submit(&samples);
    let (mut most, mut back) = (0, 0);
    while back < samples.len() {
        most = most.max(reads_in_flight().saturating_sub(lost));
        if let Some((sample, outcome)) = reader.next_within(Duration::from_millis(5)) {
            assert_eq!(outcome, Ok(()), "sample {sample}");
            back += 1;
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
