//! Random records from a local disk by the daemon's reads, beside fio's io_uring engine on the
//! file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use shade_core::block_bytes_for;
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::Index;
use shade_job::{EngineChoice, IoMode};
use shade_reads::blocks::{Arena, FreeList};
use shade_reads::{Completion, Depth, PATIENCE, ReadOp, Reads, ReadsConfig};

use crate::cpu_time::process_cpu_s;
use crate::figure::{Figure, Unit};
use crate::result::Result;
use crate::scratch::Scratch;
use crate::synthetic::{self, SHARD_FILE};

/// Name, bytes of a record, records in the shard. A record is a multiple of fio's unit of 512
/// bytes.
const CASES: [(&str, u32, u32); 2] = [("110 KB", 110_080, 16_000), ("4 KiB", 4_096, 200_000)];
/// Records read in a run: half of the shard, none twice.
const SHARE: usize = 2;
/// Bytes before a record, and twice at the shard's end.
const HEADER: &[u8] = &[0; 512];
const DEPTH_READS: u32 = 32;
const DEPTH: Depth = Depth::Fixed(DEPTH_READS);
const RUNS: usize = 7;

/// Records a second and CPU time per record, ours and fio's, in turn.
pub(crate) fn run(scratch: &Scratch) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, record_bytes, records) in CASES {
        let folder = scratch.folder().join(format!("shard-of-{record_bytes}"));
        let index = Arc::new(write_shard(&folder, records, record_bytes)?);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for run in 0..RUNS {
            ours.push(read(&folder, &index, run as u64)?);
            theirs.push(fio(&folder.join(SHARD_FILE), record_bytes, records)?);
        }
        std::fs::remove_dir_all(&folder)?;
        figures.extend(rows(name, record_bytes, &ours, &theirs));
    }
    Ok(figures)
}

/// Times of a run.
struct Took {
    records_per_s: f64,
    cpu_us_per_record: f64,
}

fn rows(name: &str, record_bytes: u32, ours: &[Took], theirs: &[Took]) -> [Figure; 4] {
    let rate = |who: &str, runs: &[Took]| {
        let rates = runs.iter().map(|took| took.records_per_s).collect();
        Figure::new(format!("{who}, {name}, direct, depth {DEPTH_READS}"), Unit::RecordsPerSecond, rates)
            .of_bytes(f64::from(record_bytes))
    };
    let cpu = |who: &str, runs: &[Took]| {
        let times = runs.iter().map(|took| took.cpu_us_per_record).collect();
        Figure::new(format!("CPU of {who}, {name}"), Unit::UsPerRecord, times)
    };
    let (rival_rate, rival_cpu) = (rate("fio io_uring", theirs), cpu("fio", theirs));
    [rate("reads", ours).beside(&rival_rate), cpu("reads", ours).beside(&rival_cpu), rival_rate, rival_cpu]
}

/// Writes a shard of random records, and its index.
pub(crate) fn write_shard(folder: &Path, records: u32, record_bytes: u32) -> Result<Index> {
    std::fs::create_dir_all(folder)?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut shard = BufWriter::with_capacity(1 << 20, File::create(folder.join(SHARD_FILE))?);
    let mut record = vec![0; record_bytes as usize];
    let mut checksums = Vec::new();
    for _ in 0..records {
        rng.fill_bytes(&mut record);
        checksums.push(crc32c(&record));
        shard.write_all(HEADER)?;
        shard.write_all(&record)?;
    }
    shard.write_all(&[HEADER, HEADER].concat())?;
    shard.into_inner()?.sync_all()?;
    Ok(synthetic::index_of(&checksums, record_bytes)?)
}

/// One run of ours: every second record in random order, none of them in memory.
fn read(folder: &Path, index: &Arc<Index>, seed: u64) -> Result<Took> {
    let mut samples: Vec<SampleId> = (0..index.len()).map(SampleId).collect();
    samples.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    samples.truncate(samples.len() / SHARE);
    let record_bytes = index.entry(SampleId(0)).map_or(0, |entry| entry.stored_len);
    let block_bytes = block_bytes_for(std::iter::once(record_bytes));
    let (arena, free) = Arena::create(
        u64::from(DEPTH_READS) * 4 * u64::from(record_bytes.next_multiple_of(block_bytes)),
        block_bytes,
    )?;
    let (sender, completions) = unbounded();
    let config = ReadsConfig {
        engine: EngineChoice::Uring,
        io: IoMode::Direct,
        depth: DEPTH,
        store: None,
        patience: PATIENCE,
    };
    let reads =
        Reads::start(folder, Arc::clone(index), Arc::new(arena), config, sender, |why| panic!("{why}"))?;
    let (cpu, started) = (process_cpu_s(), Instant::now());
    Loop { reads, completions, free }.read_all(index, &samples)?;
    let (seconds, cpu_s) = (started.elapsed().as_secs_f64(), process_cpu_s() - cpu);
    let records = samples.len() as f64;
    Ok(Took { records_per_s: records / seconds, cpu_us_per_record: cpu_s * 1e6 / records })
}

/// Submits as the core does: twice as many as are in flight, so that the next read is at hand.
struct Loop {
    reads: Reads,
    completions: Receiver<Completion>,
    free: FreeList,
}

impl Loop {
    fn read_all(mut self, index: &Index, samples: &[SampleId]) -> Result<()> {
        let mut rest = samples.iter();
        let (mut submitted, mut back) = (0, 0);
        while back < samples.len() {
            while submitted < DEPTH.submitted_max(false) {
                let Some(&sample) = rest.next() else { break };
                let entry = index.entry(sample).ok_or("no such sample")?;
                let blocks = self.free.take(u64::from(entry.stored_len)).ok_or("the arena is too small")?;
                let (shard, offset, len, crc32c) =
                    (entry.shard, entry.offset, entry.stored_len, entry.crc32c);
                self.reads.submit(ReadOp {
                    flight: 0,
                    sample,
                    shard,
                    offset,
                    len,
                    crc32c,
                    recheck: false,
                    blocks,
                });
                submitted += 1;
            }
            for completion in std::iter::once(self.completions.recv()?).chain(self.completions.try_iter()) {
                completion.outcome?;
                self.free.give(completion.op.blocks);
                submitted -= 1;
                back += 1;
            }
        }
        Ok(())
    }
}

/// fio's report about a job.
#[derive(Debug, Deserialize)]
struct Fio {
    jobs: Vec<FioJob>,
}

#[derive(Debug, Deserialize)]
struct FioJob {
    read: FioRead,
    /// Shares of the run's time, percent.
    usr_cpu: f64,
    sys_cpu: f64,
    /// Milliseconds.
    job_runtime: f64,
}

#[derive(Debug, Deserialize)]
struct FioRead {
    iops: f64,
    total_ios: f64,
}

/// One run of fio: as many random reads of the same size at the same depth.
fn fio(file: &Path, record_bytes: u32, records: u32) -> Result<Took> {
    let mut fio = Command::new("fio");
    fio.args(["--name=read", "--rw=randread", "--ioengine=io_uring", "--direct=1", "--output-format=json"]);
    fio.arg(format!("--filename={}", file.display())).arg(format!("--iodepth={DEPTH_READS}"));
    fio.arg(format!("--bs={record_bytes}")).arg(format!("--number_ios={}", records as usize / SHARE));
    let output = fio.stdin(Stdio::null()).output().map_err(|error| format!("fio: {error}"))?;
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let told: Fio = serde_json::from_slice(&output.stdout)?;
    let job = told.jobs.first().ok_or("fio ran no job")?;
    let cpu_ms = (job.usr_cpu + job.sys_cpu) / 100.0 * job.job_runtime;
    Ok(Took { records_per_s: job.read.iops, cpu_us_per_record: cpu_ms * 1e3 / job.read.total_ios })
}
