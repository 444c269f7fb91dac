//! Both ends of the ring on two threads over heap memory: everything arrives once, in order, and
//! out-of-order release frees every block, whatever else is kept; and a client that writes nonsense
//! gets an error out of the producer, never a panic.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use proptest::prelude::*;
use shade_formats::ring::{
    CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, DESCRIPTORS, Descriptor, Kind, Layout, PayloadAllocator,
    PayloadSize,
};
use shade_shm::{Consumer, Producer, Region};

const PAGE: u64 = 4096;
const PAYLOAD_BYTES: u64 = 40 * PAGE;
const PAYLOAD: PayloadSize = PayloadSize { bytes: PAYLOAD_BYTES, gap_bytes: 2 * PAGE };
const DESCRIPTOR_COUNT: u64 = 1_000_000;
/// Every 50,000th of these is kept to the end.
const KEPT_EVERY: u64 = 50_000;

struct Ring {
    producer: Producer,
    consumer: Consumer,
    client: Region,
    payload: Region,
}

fn ring() -> Ring {
    let (daemon, client) = (Region::heap(DAEMON_SEGMENT_BYTES), Region::heap(CLIENT_SEGMENT_BYTES));
    let producer = Producer::create(daemon.clone(), client.clone(), PAYLOAD).unwrap();
    let consumer = Consumer::attach(daemon, client.clone()).unwrap();
    Ring { producer, consumer, client, payload: Region::heap(PAYLOAD_BYTES) }
}

/// A raw batch of one row whose first payload byte range is stamped with its number.
fn batch(seq: u64, offset: u64) -> Descriptor {
    Descriptor {
        seq,
        kind: Kind::Batch,
        layout: Layout::Raw,
        offset,
        len: PAGE,
        records: 1,
        capacity: 1,
        ..Descriptor::default()
    }
}

#[test]
fn a_million_descriptors_arrive_once_and_in_order_whatever_is_released_when() {
    let Ring { mut producer, mut consumer, payload, .. } = ring();
    let daemon_payload = payload.clone();
    let daemon = std::thread::spawn(move || {
        let mut blocks = PayloadAllocator::new(PAYLOAD_BYTES).unwrap();
        let mut offsets = BTreeMap::new();
        for seq in 0..DESCRIPTOR_COUNT {
            let offset = loop {
                for released in producer.released().unwrap() {
                    assert!(blocks.free(offsets.remove(&released).unwrap()));
                }
                if producer.has_room()
                    && let Some(offset) = blocks.reserve(PAGE)
                {
                    break offset;
                }
                std::thread::yield_now();
            };
            offsets.insert(seq, offset);
            daemon_payload.write(offset, &seq.to_le_bytes()).unwrap();
            daemon_payload.write(offset + PAGE - 8, &seq.to_le_bytes()).unwrap();
            producer.publish(&batch(seq, offset)).unwrap();
        }
        while !offsets.is_empty() {
            for released in producer.released().unwrap() {
                assert!(blocks.free(offsets.remove(&released).unwrap()));
            }
            std::thread::yield_now();
        }
        assert_eq!(blocks.live(), 0);
    });

    // A second thread releases, as a garbage collector would; held batches are released youngest
    // first, and some at the end.
    let (held, holder) = mpsc::channel::<Vec<Descriptor>>();
    let releaser = consumer.releaser();
    let client_payload = payload;
    let collector = std::thread::spawn(move || {
        let release = |descriptor: Descriptor| {
            for at in [descriptor.offset, descriptor.offset + PAGE - 8] {
                let mut stamp = [0; 8];
                client_payload.read(at, &mut stamp).unwrap();
                assert_eq!(u64::from_le_bytes(stamp), descriptor.seq, "a live block was overwritten");
            }
            releaser.release(&descriptor).unwrap();
        };
        let mut kept = Vec::new();
        for group in holder {
            let (keep, give): (Vec<_>, Vec<_>) = group.into_iter().partition(|d| d.seq % KEPT_EVERY == 0);
            kept.extend(keep);
            give.into_iter().rev().for_each(release);
        }
        assert_eq!(kept.len() as u64, DESCRIPTOR_COUNT / KEPT_EVERY);
        kept.into_iter().for_each(release);
    });

    let mut group = Vec::new();
    let mut taken = 0;
    while taken < DESCRIPTOR_COUNT {
        match consumer.poll().unwrap() {
            Some(descriptor) => {
                assert_eq!(descriptor.seq, taken);
                taken += 1;
                group.push(descriptor);
                // Group sizes 1 to 17 take turns, so releases cross the lines' wrap in every phase.
                if group.len() as u64 > taken % 17 || taken == DESCRIPTOR_COUNT {
                    held.send(std::mem::take(&mut group)).unwrap();
                }
            }
            None => std::thread::yield_now(),
        }
    }
    drop(held);
    collector.join().unwrap();
    daemon.join().unwrap();
}

#[test]
fn a_full_ring_takes_as_many_as_are_released_whichever_they_are() {
    let Ring { mut producer, mut consumer, .. } = ring();
    let releaser = consumer.releaser();
    let mut held = Vec::new();
    for seq in 0..DESCRIPTORS as u64 {
        producer.publish(&batch(seq, 0)).unwrap();
        held.push(consumer.poll().unwrap().unwrap());
    }
    assert!(producer.released().unwrap().is_empty());
    assert!(!producer.has_room());
    assert!(producer.publish(&batch(DESCRIPTORS as u64, 0)).is_err());
    // The oldest stays, and hundreds go past it.
    let youngest = held.pop().unwrap();
    releaser.release(&youngest).unwrap();
    let mut given_back = youngest.seq;
    for seq in DESCRIPTORS as u64..10 * DESCRIPTORS as u64 {
        assert_eq!(producer.released().unwrap(), [given_back]);
        producer.publish(&batch(seq, 0)).unwrap();
        assert!(!producer.has_room());
        let next = consumer.poll().unwrap().unwrap();
        assert_eq!(next, Descriptor { mark: youngest.mark, ..batch(seq, 0) });
        releaser.release(&next).unwrap();
        given_back = next.seq;
    }
    held.iter().rev().for_each(|descriptor| releaser.release(descriptor).unwrap());
    assert_eq!(producer.released().unwrap().len(), DESCRIPTORS);
    assert!(producer.released().unwrap().is_empty(), "each is told of once");
}

#[test]
fn the_doorbell_is_asked_for_only_while_the_client_waits() {
    let Ring { mut producer, mut consumer, .. } = ring();
    assert!(!producer.publish(&batch(0, 0)).unwrap());
    consumer.wait_begin().unwrap();
    assert!(producer.publish(&batch(1, 0)).unwrap());
    consumer.wait_end().unwrap();
    assert!(!producer.publish(&batch(2, 0)).unwrap());
}

#[test]
fn the_daemon_is_told_once_of_each_descriptor_that_is_waited_for() {
    let Ring { mut producer, mut consumer, .. } = ring();
    assert_eq!(producer.awaited().unwrap(), None);
    assert!(consumer.wait_begin().unwrap(), "news");
    assert_eq!(producer.awaited().unwrap(), Some(0));
    consumer.wait_end().unwrap();
    assert_eq!(producer.awaited().unwrap(), None);
    assert!(!consumer.wait_begin().unwrap(), "a second sleep for the same one");
    consumer.wait_end().unwrap();
    producer.publish(&batch(0, 0)).unwrap();
    consumer.poll().unwrap().unwrap();
    assert!(consumer.wait_begin().unwrap(), "the next one");
    assert_eq!(producer.awaited().unwrap(), Some(1));
}

#[test]
fn the_heartbeat_is_seen() {
    let Ring { producer, consumer, .. } = ring();
    assert_eq!(consumer.heartbeat_ns().unwrap(), 0);
    producer.beat(123).unwrap();
    assert_eq!(consumer.heartbeat_ns().unwrap(), 123);
}

#[test]
fn wrong_numbers_and_impossible_descriptors_are_not_published() {
    let Ring { mut producer, mut consumer, .. } = ring();
    assert!(producer.publish(&batch(1, 0)).is_err());
    assert!(producer.publish(&batch(0, PAYLOAD_BYTES)).is_err());
    assert_eq!(consumer.poll().unwrap(), None);
}

#[test]
fn a_descriptor_torn_by_the_daemon_is_an_error() {
    let (daemon, client) = (Region::heap(DAEMON_SEGMENT_BYTES), Region::heap(CLIENT_SEGMENT_BYTES));
    let mut producer = Producer::create(daemon.clone(), client.clone(), PAYLOAD).unwrap();
    let mut consumer = Consumer::attach(daemon.clone(), client).unwrap();
    producer.publish(&batch(0, 0)).unwrap();
    daemon.write(4096 + 60, &[9]).unwrap();
    assert_eq!(consumer.poll().unwrap_err().structure, "ring descriptor");
    daemon.store_u64(128, 1000).unwrap();
    assert_eq!(consumer.poll().unwrap_err().structure, "ring head");
}

#[test]
fn segments_that_disagree_about_the_payload_are_refused() {
    let (daemon, client) = (Region::heap(DAEMON_SEGMENT_BYTES), Region::heap(CLIENT_SEGMENT_BYTES));
    Producer::create(daemon.clone(), Region::heap(CLIENT_SEGMENT_BYTES), PAYLOAD).unwrap();
    let other = PayloadSize { gap_bytes: PAGE, ..PAYLOAD };
    Producer::create(Region::heap(DAEMON_SEGMENT_BYTES), client.clone(), other).unwrap();
    assert_eq!(Consumer::attach(daemon, client).unwrap_err().structure, "client segment header");
}

#[derive(Clone, Debug)]
enum Op {
    Publish,
    Take,
    /// Releases one of those in hand.
    Release(usize),
    /// The daemon looks for releases.
    Look,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Publish),
        3 => Just(Op::Take),
        2 => any::<usize>().prop_map(Op::Release),
        1 => Just(Op::Look),
    ]
}

proptest! {
    #[test]
    fn a_hostile_client_segment_is_an_error_or_no_progress_never_a_panic(
        writes in prop::collection::vec((0..CLIENT_SEGMENT_BYTES / 8, any::<u64>()), 0..64),
        published in 1..=DESCRIPTORS as u64,
    ) {
        let Ring { mut producer, client, .. } = ring();
        for seq in 0..published {
            producer.publish(&batch(seq, 0)).unwrap();
        }
        for (word, value) in writes {
            client.store_u64(word * 8, value).unwrap();
        }
        if let Ok(released) = producer.released() {
            prop_assert!(released.iter().all(|&seq| seq < published));
        }
        if producer.has_room() {
            producer.publish(&batch(producer.next_seq(), 0)).unwrap();
        }
    }

    #[test]
    fn a_release_mark_is_in_turn_or_an_error(value: u64) {
        let Ring { mut producer, client, .. } = ring();
        producer.publish(&batch(0, 0)).unwrap();
        client.store_u64(512, value).unwrap();
        match value {
            0 => prop_assert!(producer.released().unwrap().is_empty()),
            1 => prop_assert_eq!(producer.released().unwrap(), [0]),
            _ => prop_assert!(producer.released().is_err()),
        }
    }

    #[test]
    fn whatever_is_kept_the_ring_goes_on_while_one_of_its_marks_is_free(
        ops in prop::collection::vec(op(), 1..2000),
    ) {
        let Ring { mut producer, mut consumer, .. } = ring();
        let releaser = consumer.releaser();
        let (mut published, mut taken) = (0, 0);
        let mut in_hand: Vec<Descriptor> = Vec::new();
        let mut given_back = BTreeSet::new();
        // As the daemon knows it: released, but not looked at, is not free.
        let mut unreleased = BTreeSet::new();
        for op in ops {
            match op {
                Op::Publish => {
                    let done = producer.publish(&batch(published, published % 20 * 2 * PAGE)).is_ok();
                    prop_assert_eq!(done, unreleased.len() < DESCRIPTORS);
                    if done {
                        unreleased.insert(published);
                        published += 1;
                    }
                }
                Op::Take => {
                    let next = consumer.poll().unwrap();
                    prop_assert_eq!(next.is_some(), taken < published);
                    if let Some(next) = next {
                        let expected = batch(taken, taken % 20 * 2 * PAGE);
                        prop_assert_eq!(next, Descriptor { mark: next.mark, ..expected });
                        prop_assert!(in_hand.iter().all(|other| other.mark != next.mark));
                        in_hand.push(next);
                        taken += 1;
                    }
                }
                Op::Release(_) if in_hand.is_empty() => {}
                Op::Release(at) => {
                    let descriptor = in_hand.swap_remove(at % in_hand.len());
                    releaser.release(&descriptor).unwrap();
                    given_back.insert(descriptor.seq);
                }
                Op::Look => {
                    let released: BTreeSet<u64> = producer.released().unwrap().into_iter().collect();
                    unreleased.retain(|seq| !released.contains(seq));
                    prop_assert_eq!(released, std::mem::take(&mut given_back));
                }
            }
            prop_assert_eq!(producer.has_room(), unreleased.len() < DESCRIPTORS);
        }
    }
}
