//! The ring's index protocol under every order that the memory model allows: no lost wake-up, no torn or stale
//! descriptor, no reuse of a slot that is still being read.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p shade-formats --test ring_loom --release --target-dir target/loom`
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use shade_formats::ring::{
    CLIENT_SEGMENT_BYTES, Consumer, DAEMON_SEGMENT_BYTES, Descriptor, Kind, Producer, Region,
};

fn ring() -> (Producer, Consumer) {
    let (daemon, client) = (Region::heap(DAEMON_SEGMENT_BYTES), Region::heap(CLIENT_SEGMENT_BYTES));
    let producer = Producer::create(daemon.clone(), client.clone(), 4096).unwrap();
    (producer, Consumer::attach(daemon, client).unwrap())
}

fn end(seq: u64) -> Descriptor {
    Descriptor { seq, kind: Kind::EpochEnd, batch: u32::try_from(seq).unwrap() + 7, ..Descriptor::default() }
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
    // Three involuntary switches show every lost wake-up known (remove either fence to see one); all orders take a minute.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut producer, mut consumer) = ring();
        let doorbell = Arc::new(Doorbell::default());
        let theirs = Arc::clone(&doorbell);
        let daemon = thread::spawn(move || {
            for seq in 0..2 {
                if producer.publish(&end(seq)).unwrap() {
                    theirs.ring();
                }
            }
        });
        for seq in 0..2 {
            assert_eq!(take(&mut consumer, &doorbell), end(seq));
        }
        daemon.join().unwrap();
    });
}

#[test]
fn a_slot_is_reused_only_after_its_release_and_is_read_whole() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring();
        for seq in 0..2 {
            producer.publish(&end(seq)).unwrap();
        }
        // Both slots are taken. The client releases out of order while the daemon waits for room for a third.
        let client = thread::spawn(move || {
            let releaser = consumer.releaser();
            let first = consumer.poll().unwrap().unwrap();
            let second = consumer.poll().unwrap().unwrap();
            releaser.release(second.seq).unwrap();
            releaser.release(first.seq).unwrap();
            let third = loop {
                match consumer.poll().unwrap() {
                    Some(descriptor) => break descriptor,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(third, end(2));
        });
        while producer.released().unwrap() == 0 {
            thread::yield_now();
        }
        producer.publish(&end(2)).unwrap();
        client.join().unwrap();
    });
}
