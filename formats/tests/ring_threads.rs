//! Both ends of the ring on two threads over heap memory: everything arrives once, in order, and out-of-order release
//! frees every block; and a client that writes nonsense gets an error out of the producer, never a panic.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::mpsc;

use proptest::prelude::*;
use shade_formats::ring::{
    CLIENT_SEGMENT_BYTES, Consumer, DAEMON_SEGMENT_BYTES, DESCRIPTORS, Descriptor, Kind, Layout, PayloadRing,
    Producer, Region,
};

const PAGE: u64 = 4096;
const PAYLOAD_BYTES: u64 = 40 * PAGE;
const DESCRIPTOR_COUNT: u64 = 1_000_000;

struct Ring {
    producer: Producer,
    consumer: Consumer,
    client: Region,
    payload: Region,
}

fn ring() -> Ring {
    let (daemon, client) = (Region::heap(DAEMON_SEGMENT_BYTES), Region::heap(CLIENT_SEGMENT_BYTES));
    let producer = Producer::create(daemon.clone(), client.clone(), PAYLOAD_BYTES).unwrap();
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
fn a_million_descriptors_arrive_once_and_in_order_whatever_the_release_order() {
    let Ring { mut producer, mut consumer, payload, .. } = ring();
    let daemon_payload = payload.clone();
    let daemon = std::thread::spawn(move || {
        let mut blocks = PayloadRing::new(PAYLOAD_BYTES).unwrap();
        let mut offsets = VecDeque::new();
        let mut freed = 0;
        for seq in 0..DESCRIPTOR_COUNT {
            let offset = loop {
                let released = producer.released().unwrap();
                while freed < released {
                    assert!(blocks.free(offsets.pop_front().unwrap()));
                    freed += 1;
                }
                if producer.has_room()
                    && let Some(offset) = blocks.reserve(PAGE)
                {
                    break offset;
                }
                std::thread::yield_now();
            };
            offsets.push_back(offset);
            daemon_payload.write(offset, &seq.to_le_bytes()).unwrap();
            daemon_payload.write(offset + PAGE - 8, &seq.to_le_bytes()).unwrap();
            producer.publish(&batch(seq, offset)).unwrap();
        }
        while producer.released().unwrap() < DESCRIPTOR_COUNT {
            std::thread::yield_now();
        }
    });

    // A second thread releases, as a garbage collector would; held batches are released youngest first.
    let (held, holder) = mpsc::channel::<Vec<Descriptor>>();
    let releaser = consumer.releaser();
    let client_payload = payload;
    let collector = std::thread::spawn(move || {
        for group in holder {
            for descriptor in group.into_iter().rev() {
                for at in [descriptor.offset, descriptor.offset + PAGE - 8] {
                    let mut stamp = [0; 8];
                    client_payload.read(at, &mut stamp).unwrap();
                    assert_eq!(u64::from_le_bytes(stamp), descriptor.seq, "a live block was overwritten");
                }
                releaser.release(descriptor.seq).unwrap();
            }
        }
    });

    let mut group = Vec::new();
    let mut taken = 0;
    while taken < DESCRIPTOR_COUNT {
        match consumer.poll().unwrap() {
            Some(descriptor) => {
                assert_eq!(descriptor.seq, taken);
                taken += 1;
                group.push(descriptor);
                // Group sizes 1 to 17 take turns, so releases cross the slots' wrap in every phase.
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
fn a_full_ring_takes_nothing_until_the_oldest_is_released() {
    let Ring { mut producer, mut consumer, .. } = ring();
    let releaser = consumer.releaser();
    for seq in 0..DESCRIPTORS as u64 {
        producer.publish(&batch(seq, 0)).unwrap();
        consumer.poll().unwrap().unwrap();
    }
    let next = batch(DESCRIPTORS as u64, 0);
    releaser.release(1).unwrap();
    assert_eq!(producer.released().unwrap(), 0, "descriptors are reused in order");
    assert_eq!(producer.released_later().unwrap(), 0b10, "and blocks in any order");
    assert!(!producer.has_room());
    assert!(producer.publish(&next).is_err());
    releaser.release(0).unwrap();
    assert_eq!(producer.released().unwrap(), 2);
    assert_eq!(producer.released_later().unwrap(), 0);
    producer.publish(&next).unwrap();
}

#[test]
fn the_doorbell_is_asked_for_only_while_the_client_waits() {
    let Ring { mut producer, consumer, .. } = ring();
    assert!(!producer.publish(&batch(0, 0)).unwrap());
    consumer.wait_begin().unwrap();
    assert!(producer.publish(&batch(1, 0)).unwrap());
    consumer.wait_end().unwrap();
    assert!(!producer.publish(&batch(2, 0)).unwrap());
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
    let mut producer = Producer::create(daemon.clone(), client.clone(), PAYLOAD_BYTES).unwrap();
    let mut consumer = Consumer::attach(daemon.clone(), client).unwrap();
    producer.publish(&batch(0, 0)).unwrap();
    daemon.write(4096 + 60, &[9]).unwrap();
    assert_eq!(consumer.poll().unwrap_err().structure, "ring descriptor");
    daemon.store_u64(128, 1000).unwrap();
    assert_eq!(consumer.poll().unwrap_err().structure, "ring head");
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
            prop_assert!(released <= published);
        }
        if producer.has_room() {
            producer.publish(&batch(producer.next_seq(), 0)).unwrap();
        }
    }

    #[test]
    fn a_release_word_is_in_turn_or_an_error(value: u64) {
        let Ring { mut producer, client, .. } = ring();
        producer.publish(&batch(0, 0)).unwrap();
        client.store_u64(512, value).unwrap();
        match value {
            0 => prop_assert_eq!(producer.released().unwrap(), 0),
            1 => prop_assert_eq!(producer.released().unwrap(), 1),
            _ => prop_assert!(producer.released().is_err()),
        }
    }
}
