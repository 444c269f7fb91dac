//! From `Producer::publish` in one thread to `Consumer::poll` in another, which spins or sleeps.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use shade_formats::ring::{CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, Descriptor, PayloadSize};
use shade_shm::{Consumer, Doorbell, Producer, Region};

use crate::figure::{Figure, Unit, median};
use crate::result::Result;

const PAYLOAD: PayloadSize = PayloadSize { bytes: 1 << 20, gap_bytes: 4096 };
const RUNS: usize = 5;
/// Publications per run, of which it takes the median.
const SPIN_ROUNDS: u64 = 20_000;
const DOORBELL_ROUNDS: u64 = 1_000;
/// Long enough for the consumer to fall asleep before the next publication.
const PAUSE: Duration = Duration::from_micros(200);
const BUDGET_NS: f64 = 50_000.0;

/// Nanoseconds from publishing to seeing.
pub(crate) fn run() -> Result<Vec<Figure>> {
    let (mut spinning, mut asleep) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        spinning.push(latency_ns(false, SPIN_ROUNDS)?);
        asleep.push(latency_ns(true, DOORBELL_ROUNDS)?);
    }
    Ok(vec![
        Figure::new("publish to poll, spinning", Unit::Ns, spinning).with_budget(BUDGET_NS),
        Figure::new("publish to poll, doorbell", Unit::Ns, asleep).with_budget(BUDGET_NS),
    ])
}

/// The median over `rounds` publications, one at a time.
fn latency_ns(sleeps: bool, rounds: u64) -> Result<f64> {
    let (daemon, client) = (Region::heap(DAEMON_SEGMENT_BYTES), Region::heap(CLIENT_SEGMENT_BYTES));
    let mut producer = Producer::create(daemon.clone(), client.clone(), PAYLOAD)?;
    let consumer = Consumer::attach(daemon, client)?;
    let (ours, theirs) = Doorbell::pair()?;
    let started = Instant::now();
    let mut latencies = thread::scope(|scope| -> Result<Vec<f64>> {
        let heard = scope.spawn(|| {
            let hear = consume(consumer, &theirs, sleeps, rounds, started);
            hear.map_err(|error| error.to_string())
        });
        for seq in 0..rounds {
            if sleeps {
                thread::sleep(PAUSE);
            }
            // The ring does not look at this field.
            let descriptor = Descriptor {
                seq,
                read_wait_ns: ns_since(started),
                capacity: 1,
                len: 4096,
                ..Descriptor::default()
            };
            if producer.publish(&descriptor)? {
                ours.ring()?;
            }
            loop {
                let ended = heard.is_finished();
                if !producer.released()?.is_empty() {
                    break;
                }
                if ended {
                    return Err("the consumer ended early".into());
                }
                spin_loop();
            }
        }
        Ok(heard.join().map_err(|_| "the consumer panicked")??)
    })?;
    Ok(median(&mut latencies))
}

/// The trainer's end: takes and releases `rounds` descriptors. Returns the age of each.
fn consume(
    mut consumer: Consumer,
    doorbell: &Doorbell,
    sleeps: bool,
    rounds: u64,
    started: Instant,
) -> Result<Vec<f64>> {
    let releaser = consumer.releaser();
    let mut latencies = Vec::new();
    while (latencies.len() as u64) < rounds {
        let mut found = consumer.poll()?;
        if found.is_none() && sleeps {
            consumer.wait_begin()?;
            found = consumer.poll()?;
            if found.is_none() {
                poll(&mut [PollFd::new(doorbell, PollFlags::IN)], None)?;
                doorbell.answer()?;
            }
            consumer.wait_end()?;
        }
        match found {
            Some(descriptor) => {
                latencies.push(ns_since(started).saturating_sub(descriptor.read_wait_ns) as f64);
                releaser.release(&descriptor)?;
            }
            None => spin_loop(),
        }
    }
    Ok(latencies)
}

fn ns_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
