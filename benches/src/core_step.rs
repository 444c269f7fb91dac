//! What the brain costs: time inside `Core::step` and `Core::advance` per record, all hits and all misses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shade_formats::control::{JobSpec, OnError, Order, Output, PlanSpec, Sampler, Tail};
use shade_formats::index::{Codec, Entry, Index, IndexBuilder, Media, Shard};
use shade_formats::{FormatError, ShardId};
use shade_load::batches::Filled;
use shade_load::blocks::Arena;
use shade_load::cache::Policy;
use shade_load::core::{Action, Attach, Core, CoreConfig, Event, staging_bytes};
use shade_load::reads::Completion;

use crate::Figure;

const SAMPLES: u32 = 100_000;
const RECORD_BYTES: u32 = 500;
const BLOCK_BYTES: u32 = 512;
const BATCH: u32 = 256;

/// Nanoseconds per record with everything resident, and with nothing cached.
pub fn run() -> Result<Vec<Figure>, Box<dyn std::error::Error>> {
    let index = Arc::new(index()?);
    let whole = u64::from(SAMPLES) * u64::from(BLOCK_BYTES);
    let hit = epoch_ns(&index, whole, 3)?;
    let miss = epoch_ns(&index, 0, 3)?;
    Ok(vec![
        Figure::new("core step, hit", hit, "ns/record", "budget 300"),
        Figure::new("core step, miss", miss, "ns/record", "budget 2000"),
    ])
}

/// Time in the core per record of an epoch after the first; the least of `rounds`.
fn epoch_ns(index: &Arc<Index>, cache_bytes: u64, rounds: u32) -> std::io::Result<f64> {
    let (_arena, free) = Arena::create(cache_bytes + staging_bytes(index, BLOCK_BYTES, 32), BLOCK_BYTES)?;
    let config = CoreConfig { cache_bytes, policy: Policy::App, depth: 32, block_bytes: BLOCK_BYTES };
    let mut driver = Driver { core: Core::new(Arc::clone(index), free, config), spent: Duration::ZERO, released: 0 };
    let spec = JobSpec {
        plan: PlanSpec { sampler: Sampler::Uniform, order: Order::Shuffled, ..PlanSpec::default() },
        batch_size: BATCH,
        world_size: 1,
        tail: Tail::Even,
        output: Output::Raw,
        on_error: OnError::Raise,
        ring_bytes: 0,
    };
    driver.feed(vec![Event::Attach(Box::new(Attach { session: 0, rank: 0, spec })), Event::Ready(0)]);
    let mut least = f64::INFINITY;
    for epoch in 0..=rounds {
        driver.spent = Duration::ZERO;
        driver.feed(vec![Event::StartEpoch { session: 0, generation: epoch + 1, epoch, first_batch: 0 }]);
        if epoch > 0 {
            least = least.min(driver.spent.as_nanos() as f64 / f64::from(SAMPLES));
        }
    }
    Ok(least)
}

struct Driver {
    core: Core,
    spent: Duration,
    released: u64,
}

impl Driver {
    /// Feeds events until nothing follows from them; everything outside the core happens at once.
    fn feed(&mut self, mut events: Vec<Event>) {
        while !events.is_empty() {
            let mut actions = Vec::new();
            let started = Instant::now();
            for event in events.drain(..) {
                self.core.step(0, event, &mut actions);
            }
            self.core.advance(0, &mut actions);
            self.spent += started.elapsed();
            for action in actions {
                events.extend(match action {
                    Action::Read(op) => {
                        Some(Event::Read(Completion { op, outcome: Ok(()), latency: Duration::ZERO }))
                    }
                    Action::Fill(order) => {
                        let rows = order.rows.into_iter().map(|row| (row.len, row)).map(|(len, row)| (row, Ok(len)));
                        Some(Event::Filled(Filled { ticket: order.ticket, rows: rows.collect(), fill_ns: 0 }))
                    }
                    Action::Seal(order) => Some(Event::Sealed(order.ticket)),
                    Action::Publish(session, _) => {
                        self.released += 1;
                        Some(Event::Released { session, count: self.released })
                    }
                    _ => None,
                });
            }
        }
    }
}

fn index() -> Result<Index, FormatError> {
    let mut builder = IndexBuilder::new();
    builder.push_class(b"class")?;
    let stride = 1024;
    builder.push_shard(Shard {
        name: "shard-000000.tar",
        bytes: u64::from(SAMPLES) * stride + 1024,
        records: SAMPLES,
        crc32c: 0,
    })?;
    for id in 0..SAMPLES {
        let entry = Entry {
            shard: ShardId(0),
            offset: 512 + u64::from(id) * stride,
            stored_len: RECORD_BYTES,
            raw_len: RECORD_BYTES,
            crc32c: 0,
            label: 0,
            width: 28,
            height: 28,
            codec: Codec::None,
            media: Media::Png,
        };
        builder.push_sample(&entry, format!("class/{id:06}.png").as_bytes())?;
    }
    Index::open(builder.finish()?)
}
