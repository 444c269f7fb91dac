//! The ring's index protocol under every order that the memory model allows: no lost wake-up, no
//! torn or stale descriptor, no reuse of a line that is still being read, and a descriptor kept for
//! good stops nothing.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p shade-shm --test ring_loom --release --target-dir
//! target/loom`
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use shade_formats::ring::{CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, Descriptor, Kind, PayloadSize};
use shade_shm::{Consumer, Producer, Region};

fn ring() -> (Producer, Consumer) {
    let (daemon, client) = (Region::heap(DAEMON_SEGMENT_BYTES), Region::heap(CLIENT_SEGMENT_BYTES));
    let payload = PayloadSize { bytes: 4096, gap_bytes: 4096 };
    let producer = Producer::create(daemon.clone(), client.clone(), payload).unwrap();
    (producer, Consumer::attach(daemon, client).unwrap())
}

fn end(seq: u64, mark: u32) -> Descriptor {
    let batch = u32::try_from(seq).unwrap() + 7;
    Descriptor { seq, kind: Kind::EpochEnd, batch, mark, ..Descriptor::default() }
}

/// Until there is one; loom reports a wait that nothing can end.
fn poll(consumer: &mut Consumer) -> Descriptor {
    loop {
        match consumer.poll().unwrap() {
            Some(descriptor) => break descriptor,
            None => thread::yield_now(),
        }
    }
}

/// Until there is one.
fn released(producer: &mut Producer) -> Vec<u64> {
    loop {
        let released = producer.released().unwrap();
        if !released.is_empty() {
            break released;
        }
        thread::yield_now();
    }
}

/// An eventfd: a counter that a read waits for and resets.
#[derive(Default)]
struct Doorbell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Doorbell {
    fn ring(&self) {
        *self.rings.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    /// loom reports a wait that nothing can end.
    fn wait(&self) {
        let mut rings = self.rings.lock().unwrap();
        while *rings == 0 {
            rings = self.rung.wait(rings).unwrap();
        }
        *rings = 0;
    }
}

/// `next()` of the client, without the spinning.
fn take(consumer: &mut Consumer, doorbell: &Doorbell) -> Descriptor {
    loop {
        if let Some(descriptor) = consumer.poll().unwrap() {
            return descriptor;
        }
        consumer.wait_begin().unwrap();
        let again = consumer.poll().unwrap();
        if again.is_none() {
            doorbell.wait();
        }
        consumer.wait_end().unwrap();
        if let Some(descriptor) = again {
            return descriptor;
        }
    }
}

#[test]
fn no_wake_up_is_lost() {
    // Three involuntary switches show every lost wake-up known (remove either fence to see one);
    // all orders take a minute.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut producer, mut consumer) = ring();
        let doorbell = Arc::new(Doorbell::default());
        let theirs = Arc::clone(&doorbell);
        let daemon = thread::spawn(move || {
            for seq in 0..2 {
                if producer.publish(&end(seq, 0)).unwrap() {
                    theirs.ring();
                }
            }
        });
        for (seq, mark) in [(0, 0), (1, 1)] {
            assert_eq!(take(&mut consumer, &doorbell), end(seq, mark));
        }
        daemon.join().unwrap();
    });
}

#[test]
fn a_line_is_reused_only_after_a_release_and_is_read_whole() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring();
        for seq in 0..2 {
            producer.publish(&end(seq, 0)).unwrap();
        }
        // Both marks are taken. The client releases out of order while the daemon waits for room
        // for a third.
        let client = thread::spawn(move || {
            let releaser = consumer.releaser();
            let first = consumer.poll().unwrap().unwrap();
            let second = consumer.poll().unwrap().unwrap();
            releaser.release(&second).unwrap();
            releaser.release(&first).unwrap();
            let third = poll(&mut consumer);
            // Under the mark of whichever release was seen.
            assert_eq!(third, end(2, third.mark));
        });
        released(&mut producer);
        producer.publish(&end(2, 0)).unwrap();
        client.join().unwrap();
    });
}

#[test]
fn a_descriptor_kept_for_good_stops_nothing() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut producer, mut consumer) = ring();
        for seq in 0..2 {
            producer.publish(&end(seq, 0)).unwrap();
        }
        // The third takes the line of the first, which is never released, and the fourth that of
        // the second.
        let client = thread::spawn(move || {
            let releaser = consumer.releaser();
            assert_eq!(poll(&mut consumer), end(0, 0));
            for seq in 1..4 {
                let next = poll(&mut consumer);
                assert_eq!(next, end(seq, 1));
                releaser.release(&next).unwrap();
            }
        });
        for seq in 1..3 {
            assert_eq!(released(&mut producer), [seq]);
            assert!(producer.has_room());
            producer.publish(&end(seq + 1, 0)).unwrap();
        }
        client.join().unwrap();
        assert_eq!(producer.released().unwrap(), [3]);
    });
}

#[test]
fn releases_of_two_threads_free_the_line_of_the_oldest() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut producer, mut consumer) = ring();
        for seq in 0..2 {
            producer.publish(&end(seq, 0)).unwrap();
        }
        let daemon = thread::spawn(move || {
            assert_eq!(released(&mut producer), [1]);
            producer.publish(&end(2, 0)).unwrap();
        });
        // One thread takes both and another gives the younger back, as a tensor's deleter may.
        let releaser = consumer.releaser();
        assert_eq!(consumer.poll().unwrap(), Some(end(0, 0)));
        let second = consumer.poll().unwrap().unwrap();
        let deleter = thread::spawn(move || releaser.release(&second).unwrap());
        daemon.join().unwrap();
        deleter.join().unwrap();
        assert_eq!(consumer.poll().unwrap(), Some(end(2, 1)));
    });
}
