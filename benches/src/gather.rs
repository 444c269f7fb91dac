//! One worker copies records into a ring's payload, beside a plain copy of the same bytes: records
//! of the cache, and records just read, whose checksums it compares.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use shade_core::{Pixels, Ticket, WholeSamples, block_bytes_for, charged_bytes};
use shade_formats::checksum::crc32c;
use shade_formats::ring::PayloadSize;
use shade_formats::{DrawnRow, EpochDraws, SampleId};
use shade_images::Size;
use shade_job::{FieldsRead, JpegDecoder, Output};
use shade_load::batches::{FillOrder, Filled, Row, Workers};
use shade_reads::blocks::{Arena, Blocks, FreeList, Lent, Record};
use shade_shm::Region;
use shade_shm::RingSegments;

use crate::figure::{Figure, Unit};
use crate::result::Result;
use crate::synthetic;

/// Name, bytes of a record, records. Over 100 MB, more than any CPU cache.
const CASES: [(&str, u32, u32); 2] = [("110 KB", 110_000, 1_500), ("500 B", 500, 250_000)];
/// Bytes that copies go to, again and again: a ring of eight batches of 110 KB records in
/// miniature.
const PAYLOAD_BYTES: u64 = 64 << 20;
/// Rows of one order, as the core makes them.
const ORDER_ROWS: usize = 32;
const RUNS: usize = 5;
const BUDGET_US: f64 = 25.0;

/// Microseconds per record, gathered and plainly copied.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, record_bytes, records) in CASES {
        let mut gather = Gather::new(record_bytes, records)?;
        let mut copy = Copy::new(record_bytes, records);
        let (mut gathered, mut checked, mut copied) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..=RUNS {
            let (one, first, other) = (gather.run(false)?, gather.run(true)?, copy.run());
            // The first run touches the pages.
            if run > 0 {
                gathered.push(one);
                checked.push(first);
                copied.push(other);
            }
        }
        let bytes = f64::from(record_bytes);
        let copied = Figure::new(format!("memcpy, {name}"), Unit::UsPerRecord, copied).of_bytes(bytes);
        let gathered = Figure::new(format!("gather, {name}"), Unit::UsPerRecord, gathered).of_bytes(bytes);
        let gathered = if record_bytes > 100_000 { gathered.with_budget(BUDGET_US) } else { gathered };
        let checked =
            Figure::new(format!("gather and check, {name}"), Unit::UsPerRecord, checked).of_bytes(bytes);
        figures.extend([gathered.beside(&copied), checked.beside(&copied), copied]);
    }
    Ok(figures)
}

/// One worker and an arena of records in scattered blocks, as after many evictions.
struct Gather {
    workers: Workers,
    done: Receiver<Filled>,
    payload: Region,
    rows: Vec<Row>,
}

impl Gather {
    fn new(record_bytes: u32, records: u32) -> Result<Self> {
        let fill = |id: u32| id.to_le_bytes()[0];
        let checksums: Vec<u32> =
            (0..records).map(|id| crc32c(&vec![fill(id); record_bytes as usize])).collect();
        let index = synthetic::index_of(&checksums, record_bytes)?;
        let block_bytes = block_bytes_for((0..records).map(|_| record_bytes));
        let bytes = u64::from(records) * charged_bytes(record_bytes, block_bytes);
        let (arena, mut free) = Arena::create(bytes, block_bytes)?;
        scatter(&mut free);
        let mut rows = Vec::new();
        for (id, offset) in (0..records).zip(offsets(record_bytes)) {
            let mut blocks = free.take(u64::from(record_bytes)).ok_or("the arena is too small")?;
            for slice in arena.slices_mut(&mut blocks, record_bytes)? {
                slice.fill(fill(id));
            }
            let record = Lent::new(Arc::new(Record::new(blocks, true)));
            rows.push(Row {
                position: id,
                sample: SampleId(id),
                entry: index.entry(SampleId(id)).ok_or("no such sample")?,
                offset,
                len: u64::from(record_bytes),
                drawn: DrawnRow::default(),
                pixels: Pixels::Own,
                size: Size::default(),
                record: Some(record),
            });
        }
        let (done_in, done) = unbounded();
        let samples = Arc::new(WholeSamples::new(Arc::new(index), &FieldsRead::None));
        let workers = Workers::start(1, JpegDecoder::Auto, &samples, Arc::new(arena), done_in)?;
        let payload = PayloadSize { bytes: PAYLOAD_BYTES, gap_bytes: PAYLOAD_BYTES };
        let end = RingSegments::create(payload)?.into_end();
        Ok(Self { workers, done, payload: end.payload, rows })
    }

    /// Gathers every record once, in random order, from the cache or with a check. Returns
    /// microseconds per record.
    fn run(&mut self, check: bool) -> Result<f64> {
        let records = self.rows.len();
        for row in std::mem::take(&mut self.rows) {
            let record = row.record.and_then(|record| Arc::into_inner(record.into_record()));
            let blocks = record.ok_or("a worker kept a record")?.into_blocks();
            self.rows.push(Row { record: Some(Lent::new(Arc::new(Record::new(blocks, !check)))), ..row });
        }
        self.rows.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        let mut orders = Vec::new();
        let mut rows = std::mem::take(&mut self.rows).into_iter().peekable();
        while rows.peek().is_some() {
            let ticket = Ticket { session: 0, seq: orders.len() as u64 };
            let rows = rows.by_ref().take(ORDER_ROWS).collect();
            orders.push(FillOrder {
                ticket,
                output: Arc::new(Output::Raw),
                later_views: Arc::default(),
                fields: None,
                draws: EpochDraws::default(),
                rows,
            });
        }
        let (count, started) = (orders.len(), Instant::now());
        for order in orders {
            self.workers.submit(order, self.payload.clone());
        }
        let done: Vec<Filled> = self.done.iter().take(count).collect();
        let spent = started.elapsed();
        for filled in done {
            if let Some((_, fault)) = filled.faults.into_iter().next() {
                return Err(fault.into());
            }
            self.rows.extend(filled.rows);
        }
        Ok(spent.as_secs_f64() * 1e6 / records as f64)
    }
}

/// Returns blocks to a free list in random order.
fn scatter(free: &mut FreeList) {
    let mut blocks: Vec<Blocks> = std::iter::from_fn(|| free.take(1)).collect();
    blocks.shuffle(&mut ChaCha8Rng::seed_from_u64(2));
    blocks.into_iter().for_each(|block| free.give(block));
}

/// Targets of records, one after another, round and round the payload.
fn offsets(record_bytes: u32) -> impl Iterator<Item = u64> {
    let bytes = u64::from(record_bytes);
    (0..PAYLOAD_BYTES / bytes).map(move |place| place * bytes).cycle()
}

/// The rival: the same bytes in one vector, copied record by record.
struct Copy {
    source: Vec<u8>,
    target: Vec<u8>,
    record_bytes: usize,
    order: Vec<usize>,
}

impl Copy {
    fn new(record_bytes: u32, records: u32) -> Self {
        let mut order: Vec<usize> = (0..records as usize).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        let record_bytes = record_bytes as usize;
        Self {
            source: vec![1; record_bytes * order.len()],
            target: vec![0; (64 << 20) / record_bytes * record_bytes],
            record_bytes,
            order,
        }
    }

    fn run(&mut self) -> f64 {
        let started = Instant::now();
        let places = self.target.len() / self.record_bytes;
        for (at, &record) in self.order.iter().enumerate() {
            let (from, to) = (record * self.record_bytes, at % places * self.record_bytes);
            let source = self.source.get(from..from + self.record_bytes);
            let target = self.target.get_mut(to..to + self.record_bytes);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
        std::hint::black_box(&self.target);
        started.elapsed().as_secs_f64() * 1e6 / self.order.len() as f64
    }
}
