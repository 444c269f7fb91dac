//! The daemon's end: publishes descriptors, and learns which of them the client has released.
//!
//! Its counterpart is `consumer.rs`; read them side by side. Each ordering below is named with the one it pairs with.

use super::layout::{DESCRIPTORS, DESCRIPTORS_START, HEAD, HEARTBEAT, RELEASED, Segment, WAITING, slot};
use super::sync::{Ordering, fence};
use super::{Descriptor, Region};
use crate::FormatError;

/// Publishes into one ring.
#[derive(Debug)]
pub struct Producer {
    daemon: Region,
    client: Region,
    payload_bytes: u64,
    /// Descriptors published; the next one's number. Kept here: shared memory is never asked for what we know.
    head: u64,
    /// Descriptors released in order.
    released: u64,
}

impl Producer {
    /// Writes the headers of two fresh, zeroed segments, before the client gets to see them.
    ///
    /// # Errors
    /// When a segment has the wrong length, or `payload_bytes` is no possible payload length.
    pub fn create(daemon: Region, client: Region, payload_bytes: u64) -> Result<Self, FormatError> {
        Segment::Daemon.write_header(&daemon, payload_bytes)?;
        Segment::Client.write_header(&client, payload_bytes)?;
        Ok(Self { daemon, client, payload_bytes, head: 0, released: 0 })
    }

    /// Number that the next descriptor must bear.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.head
    }

    /// Whether a descriptor is free, as of the last call of [`Producer::released`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.head - self.released < DESCRIPTORS as u64
    }

    /// Publishes a descriptor whose block in the payload is complete. True when the client is (about to be) asleep:
    /// ring its doorbell.
    ///
    /// # Errors
    /// When the ring is full, or `descriptor` bears the wrong number or promises what the payload cannot hold. All are
    /// faults of the caller, and nothing is published.
    pub fn publish(&mut self, descriptor: &Descriptor) -> Result<bool, FormatError> {
        if !self.has_room() {
            return Err(FormatError::new(
                "ring descriptor",
                0,
                format_args!("descriptor {} with {DESCRIPTORS} unreleased", self.head),
                "a released descriptor",
            ));
        }
        if descriptor.seq != self.head {
            return Err(FormatError::new("ring descriptor number", 0, descriptor.seq, self.head));
        }
        descriptor.check(self.payload_bytes)?;
        let line = descriptor.encode();
        // The slot is ours: `released` saw its last user's release (acquire, pairs with the release in `Releaser`).
        self.daemon.write(DESCRIPTORS_START + slot(self.head) * line.len() as u64, &line)?;
        self.head += 1;
        // Release: pairs with the acquire of the head in `Consumer::poll`. Whoever sees the new head sees the
        // descriptor, and the payload that this or another thread wrote before this call.
        self.daemon.store_u64(HEAD, self.head)?;
        // Dekker with `Consumer::wait_begin`: head before waiting here, waiting before head there, a SeqCst fence
        // between the two on both sides. So either we see the flag, or the client's recheck sees the head.
        fence(Ordering::SeqCst);
        Ok(self.client.load_u32(WAITING)? != 0)
    }

    /// Descriptors released since the start, counted up to the first that is not: those blocks may be reused.
    ///
    /// The client's words are read once each, and only those that decide the count.
    ///
    /// # Errors
    /// When a release word holds what no client following the rules writes: end the session.
    pub fn released(&mut self) -> Result<u64, FormatError> {
        while self.released < self.head && self.is_released(self.released)? {
            self.released += 1;
        }
        Ok(self.released)
    }

    /// Descriptors released out of order, as of the last call of [`Producer::released`]: bit i stands for the one i after
    /// that count. Their blocks may be reused; the descriptors only in order.
    ///
    /// # Errors
    /// As for [`Producer::released`].
    pub fn released_later(&self) -> Result<u64, FormatError> {
        let mut later = 0;
        for (bit, seq) in (self.released..self.head).enumerate() {
            // At most 64 are unreleased.
            later |= u64::from(self.is_released(seq)?) << bit;
        }
        Ok(later)
    }

    /// Whether the client has released `seq`, one of those that it may hold.
    fn is_released(&self, seq: u64) -> Result<bool, FormatError> {
        let at = RELEASED + slot(seq) * 8;
        // Acquire: pairs with the release in `Releaser::release`. The client's reads of the block are over.
        let word = self.client.load_u64(at)?;
        let done = seq + 1;
        // What the slot held before: the release of its user one round ago, or 0 in the first round.
        let before = done.saturating_sub(DESCRIPTORS as u64);
        if word != before && word != done {
            let expected = format_args!("{before} or {done}");
            return Err(FormatError::new("ring release word", at, word, expected));
        }
        Ok(word == done)
    }

    /// Tells the client that the daemon was alive at `now_ns` (CLOCK_MONOTONIC).
    ///
    /// # Errors
    /// Never for the segments given to [`Producer::create`].
    pub fn beat(&self, now_ns: u64) -> Result<(), FormatError> {
        self.daemon.store_u64(HEARTBEAT, now_ns)
    }
}
