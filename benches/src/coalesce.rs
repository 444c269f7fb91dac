//! Gain of reading neighbours together, simulated. The daemon's gap was chosen by this table.
//!
//! Records are needed in random order, some thousand at a time (a ring's batches). Each read takes
//! a slot of the store for the latency, its bytes pass one link, and the client's one thread sends
//! and receives it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use shade_core::Neighbours;
use shade_formats::limits::SPAN_BYTES_MAX;
use shade_formats::{SampleId, ShardId};

use crate::figure::{Figure, Unit};
use crate::result::Result;

/// Name, bytes of a record, records in the dataset.
const DATASETS: [(&str, u32, u32); 4] = [
    ("600 B of 60,000", 600, 60_000),
    ("3 KB of 60,000", 3_000, 60_000),
    ("3 KB of 1,280,000", 3_000, 1_280_000),
    ("12 KB of 200,000", 12_000, 200_000),
];
/// Name, latency in microseconds, bytes a microsecond on the link.
const STORES: [(&str, f64, f64); 4] = [
    ("0.1 ms 16 Gbit", 100.0, 2_000.0),
    ("0.5 ms 10 Gbit", 500.0, 1_250.0),
    ("2 ms 1 Gbit", 2_000.0, 125.0),
    ("10 ms 1 Gbit", 10_000.0, 125.0),
];
const GAPS_KIB: [u32; 5] = [0, 4, 8, 16, 32];
/// Slots that Linux' NFS server grants. A greater depth is not served faster.
const SLOTS: usize = 32;
/// Records needed at a time: a ring of 8 batches of 256.
const WINDOW: usize = 2_048;
/// Records read in a run.
const READS: usize = 40_000;
/// The client's time for a read, microseconds: that of an NFS client for one READ.
const CLIENT_US: f64 = 15.0;
/// The same for each KB, for checks and copies.
const CLIENT_US_PER_KB: f64 = 0.2;

/// Records a second with each gap, beside reading every record on its own.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (dataset, record_bytes, records) in DATASETS {
        for (store, latency_us, bytes_per_us) in STORES {
            let mut alone: Option<Figure> = None;
            for gap_kib in GAPS_KIB {
                let outcome =
                    Simulation::new(record_bytes, records, gap_kib * 1024).run(latency_us, bytes_per_us);
                let name = format!(
                    "{dataset}, {store}, gap {gap_kib} KiB: {:.2} reads and {:.1} bytes per record and byte",
                    outcome.reads_per_record, outcome.bytes_per_byte
                );
                let figure = Figure::new(name, Unit::RecordsPerSecond, vec![outcome.records_per_s])
                    .of_bytes(f64::from(record_bytes));
                figures.push(match &alone {
                    Some(alone) => figure.beside(alone),
                    None => alone.insert(figure).clone(),
                });
            }
        }
    }
    Ok(figures)
}

struct Outcome {
    records_per_s: f64,
    reads_per_record: f64,
    bytes_per_byte: f64,
}

struct Simulation {
    record_bytes: u32,
    /// Records in the plan's order.
    plan: VecDeque<SampleId>,
    neighbours: Neighbours,
    /// Needed and not yet read.
    queue: VecDeque<SampleId>,
    waiting: HashSet<SampleId>,
}

impl Simulation {
    fn new(record_bytes: u32, records: u32, gap_bytes: u32) -> Self {
        let mut plan: Vec<SampleId> = (0..records).map(SampleId).collect();
        plan.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        plan.truncate(READS);
        Self {
            record_bytes,
            plan: plan.into(),
            neighbours: Neighbours::new(gap_bytes, SPAN_BYTES_MAX),
            queue: VecDeque::new(),
            waiting: HashSet::new(),
        }
    }

    /// A record's offset: after the headers and paddings of those before it, all in one shard.
    fn offset(&self, sample: SampleId) -> u64 {
        (u64::from(self.record_bytes).next_multiple_of(512) + 512) * u64::from(sample.0) + 512
    }

    fn want_more(&mut self, outstanding: usize) {
        for _ in outstanding..WINDOW {
            let Some(sample) = self.plan.pop_front() else { return };
            self.neighbours.insert(sample, ShardId(0), self.offset(sample), self.record_bytes);
            self.waiting.insert(sample);
            self.queue.push_back(sample);
        }
    }

    /// The next read: its records and its bytes.
    fn next_read(&mut self) -> Option<(usize, f64)> {
        loop {
            let first = self.queue.pop_front()?;
            if !self.waiting.contains(&first) {
                continue;
            }
            let mut group = Vec::new();
            self.neighbours.take(ShardId(0), self.offset(first), &mut group);
            for (_, sample) in &group {
                self.waiting.remove(sample);
            }
            let (from, to) = (group.first()?.0, group.last()?.0);
            return Some((group.len(), (to - from) as f64 + f64::from(self.record_bytes)));
        }
    }

    /// Reads the whole plan in virtual time.
    fn run(mut self, latency_us: f64, bytes_per_us: f64) -> Outcome {
        let total = self.plan.len();
        let (mut now, mut client_free, mut link_free) = (0.0_f64, 0.0_f64, 0.0_f64);
        let (mut outstanding, mut reads, mut bytes) = (0, 0.0, 0.0);
        // Ends of reads in ns, and their records.
        let mut flying: BinaryHeap<Reverse<(u128, usize)>> = BinaryHeap::new();
        loop {
            self.want_more(outstanding);
            outstanding =
                self.waiting.len() + flying.iter().map(|Reverse((_, records))| records).sum::<usize>();
            while flying.len() < SLOTS {
                let Some((records, read_bytes)) = self.next_read() else { break };
                client_free = client_free.max(now) + CLIENT_US + CLIENT_US_PER_KB * read_bytes / 1e3;
                let answered = client_free + latency_us;
                link_free = link_free.max(answered) + read_bytes / bytes_per_us;
                flying.push(Reverse((ns(link_free), records)));
                reads += 1.0;
                bytes += read_bytes;
            }
            let Some(Reverse((end, records))) = flying.pop() else { break };
            now = now.max(end as f64 / 1e3);
            outstanding -= records;
        }
        let wanted_bytes = f64::from(self.record_bytes) * total as f64;
        Outcome {
            records_per_s: total as f64 / now * 1e6,
            reads_per_record: reads / total as f64,
            bytes_per_byte: bytes / wanted_bytes,
        }
    }
}

fn ns(us: f64) -> u128 {
    std::time::Duration::from_secs_f64(us / 1e6).as_nanos()
}
