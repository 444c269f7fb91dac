//! Random records of 110 KB from a bucket whose requests take 30 ms, by the daemon's reads, beside
//! bare requests for the same ranges: many tasks, each of which asks for the next when it has one.
//!
//! The server is `shade-test-bucket`: s3s-fs, and before it lognormal latencies of which one in a
//! thousand takes a second more. It shares the machine, and is what limits both.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_channel::unbounded;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use shade_core::block_bytes_for;
use shade_dataset::{Address, Objects, Uploads, When};
use shade_formats::index::Index;
use shade_formats::{SampleId, ShardId};
use shade_job::{EngineChoice, IoMode};
use shade_reads::blocks::Arena;
use shade_reads::{Depth, PATIENCE, ReadOp, Reads, ReadsConfig};

use crate::bucket_server::{RECORD_BYTES, Server};
use crate::cpu_time::process_cpu_s;
use crate::figure::{Figure, Unit};
use crate::local_reads::write_shard;
use crate::result::Result;
use crate::scratch::Scratch;
use crate::synthetic::SHARD_FILE;

const RECORDS: u32 = 8_000;
/// A batch: its first record is what a trainer waits for.
const BATCH: usize = 256;
/// Tasks of the bare client: the best of these counts.
const TASKS: [usize; 2] = [128, 512];
const SLOWNESS: &str = "latency_ms=30 slow=0.001";
const RUNS: usize = 3;

/// A run's figures.
#[derive(Clone, Copy)]
struct Took {
    /// After the first second, in which the depth is found.
    records_per_s: f64,
    first_batch_ms: f64,
    cpu_us: f64,
}

/// Rates, the first batch and CPU time, ours and those of bare requests, in turn.
pub(crate) fn run(scratch: &Scratch) -> Result<Vec<Figure>> {
    let folder = scratch.folder().join("bucket");
    let index = Arc::new(write_shard(&folder, RECORDS, RECORD_BYTES)?);
    let (mut server, address) = Server::start(&folder.join("root"))?;
    let Ok(Address::Url(url)) = Address::parse(&format!("{address}/data")) else {
        return Err("no address".into());
    };
    // Through the server, which keeps the object's version then.
    let shard = index.shard(ShardId(0)).ok_or("no shard")?;
    Uploads::open(&url)?.put(shard.name, std::fs::read(folder.join(SHARD_FILE))?, When::Always)?;
    std::fs::write(folder.join("origin"), format!("shade-origin 1\n{url}\n"))?;
    server.be(SLOWNESS)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        ours.push(read(&folder, &index, run as u64)?);
        let objects = Arc::new(Objects::open(&url, 1024)?);
        let runs = TASKS.map(|tasks| ask(&objects, &index, tasks, run as u64));
        let best = runs.into_iter().max_by(|a, b| a.records_per_s.total_cmp(&b.records_per_s));
        bare.extend(best);
    }
    let all = rows(&ours, &bare);
    std::fs::remove_dir_all(&folder)?;
    Ok(all)
}

fn rows(ours: &[Took], bare: &[Took]) -> Vec<Figure> {
    let figure = |name: &str, unit, runs: &[Took], of: fn(&Took) -> f64| {
        Figure::new(format!("{name}, 110 KB, requests of 30 ms"), unit, runs.iter().map(of).collect())
    };
    let rate = |name, runs| {
        figure(name, Unit::RecordsPerSecond, runs, |took| took.records_per_s)
            .of_bytes(f64::from(RECORD_BYTES))
    };
    let first = |name, runs| figure(name, Unit::Ms, runs, |took| took.first_batch_ms);
    let cpu = |name, runs| figure(name, Unit::UsPerRecord, runs, |took| took.cpu_us);
    let (bare_rate, bare_cpu) = (rate("bare requests", bare), cpu("CPU of bare requests", bare));
    vec![
        rate("bucket", ours).beside(&bare_rate),
        first("first 256 records from a bucket", ours),
        cpu("CPU of bucket", ours).beside(&bare_cpu),
        bare_rate,
        bare_cpu,
    ]
}

fn shuffled(index: &Index, seed: u64) -> Vec<SampleId> {
    let mut samples: Vec<SampleId> = (0..index.len()).map(SampleId).collect();
    samples.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    samples
}

/// All records in random order by the daemon's reads, at the depth that they find.
fn read(folder: &Path, index: &Arc<Index>, seed: u64) -> Result<Took> {
    let samples = shuffled(index, seed);
    let block_bytes = block_bytes_for(std::iter::once(RECORD_BYTES));
    let in_flight = 2048;
    let (arena, mut free) =
        Arena::create(in_flight * u64::from(RECORD_BYTES.next_multiple_of(block_bytes)), block_bytes)?;
    let (sender, completions) = unbounded();
    let config = ReadsConfig {
        engine: EngineChoice::Auto,
        io: IoMode::Auto,
        depth: Depth::Auto,
        store: None,
        patience: PATIENCE,
    };
    let started = Instant::now();
    let reads =
        Reads::start(folder, Arc::clone(index), Arc::new(arena), config, sender, |why| panic!("{why}"))?;
    let (cpu, mut times) = (process_cpu_s(), Vec::new());
    let mut rest = samples.iter();
    let mut submitted = 0;
    while times.len() < samples.len() {
        while submitted < in_flight {
            let Some(&sample) = rest.next() else { break };
            let entry = index.entry(sample).ok_or("no such sample")?;
            let blocks = free.take(u64::from(entry.stored_len)).ok_or("the arena is too small")?;
            let (shard, offset, len, crc32c) = (entry.shard, entry.offset, entry.stored_len, entry.crc32c);
            reads.submit(ReadOp { flight: 0, sample, shard, offset, len, crc32c, recheck: false, blocks });
            submitted += 1;
        }
        for completion in std::iter::once(completions.recv()?).chain(completions.try_iter()) {
            completion.outcome?;
            free.give(completion.op.blocks);
            submitted -= 1;
            times.push(started.elapsed().as_secs_f64());
        }
    }
    eprintln!("depth {} at the end", reads.depth());
    Ok(took(&times, process_cpu_s() - cpu))
}

/// The same ranges by bare requests.
fn ask(objects: &Arc<Objects>, index: &Arc<Index>, tasks: usize, seed: u64) -> Took {
    let samples = Arc::new(shuffled(index, seed));
    let (next, bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let (sender, done) = unbounded();
    let (cpu, started) = (process_cpu_s(), Instant::now());
    for _ in 0..tasks {
        let (objects, index, samples) = (Arc::clone(objects), Arc::clone(index), Arc::clone(&samples));
        let (next, bytes, sender) = (Arc::clone(&next), Arc::clone(&bytes), sender.clone());
        let client = Arc::clone(&objects);
        client.spawn(async move {
            while let Some(&sample) = samples.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Some(entry) = index.entry(sample) else { break };
                let range = entry.offset..entry.offset + u64::from(entry.stored_len);
                let take = |piece: &[u8]| {
                    bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
                };
                let _ = objects.read(SHARD_FILE, range, None, take).await;
                let _ = sender.send(started.elapsed().as_secs_f64());
            }
        });
    }
    drop(sender);
    let times: Vec<f64> = done.iter().collect();
    took(&times, process_cpu_s() - cpu)
}

fn took(times: &[f64], cpu_s: f64) -> Took {
    let last = times.last().copied().unwrap_or_default();
    let later = times.iter().filter(|&&time| time > 1.0).count();
    Took {
        records_per_s: later as f64 / (last - 1.0),
        first_batch_ms: times.get(BATCH - 1).copied().unwrap_or_default() * 1e3,
        cpu_us: cpu_s * 1e6 / times.len() as f64,
    }
}
