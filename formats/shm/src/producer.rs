//! The daemon's end: publishes descriptors, and learns which of them the client has released.
//!
//! Read it side by side with its counterpart, `consumer.rs`. Each memory ordering names its
//! partner.

use shade_formats::FormatError;
use shade_formats::ring::{
    DESCRIPTORS, Descriptor, HEAD, HEARTBEAT, PayloadSize, RELEASED, RESIZED, Segment, WAITING, line_of,
};

use crate::sync::{Ordering, fence};
use crate::{Region, WorkBoard, header};

/// Publishes into one ring.
#[derive(Debug)]
pub struct Producer {
    daemon: Region,
    client: Region,
    payload: PayloadSize,
    /// Descriptors published; the next one's number. It is kept here and never read from shared
    /// memory.
    head: u64,
    marks: [Mark; DESCRIPTORS],
}

/// The daemon's knowledge of a release mark.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The descriptor whose release it waits for; `None` while it is free.
    of: Option<u64>,
    /// The word's value until then: that of the release before, or 0.
    before: u64,
}

impl Producer {
    /// Writes the headers of two fresh, zeroed segments, before the client gets to see them.
    ///
    /// # Errors
    /// When a segment has the wrong length, or `payload` is impossible.
    pub fn create(daemon: Region, client: Region, payload: PayloadSize) -> Result<Self, FormatError> {
        header::write(Segment::Daemon, &daemon, payload)?;
        header::write(Segment::Client, &client, payload)?;
        Ok(Self { daemon, client, payload, head: 0, marks: [Mark::default(); DESCRIPTORS] })
    }

    /// Number that the next descriptor must have.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.head
    }

    /// Whether one more can be published, as of the last call of [`Producer::released`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.marks.iter().any(|mark| mark.of.is_none())
    }

    /// Publishes a descriptor whose block in the payload is complete, under a free mark. True when
    /// the client is (about to be) asleep: ring its doorbell.
    ///
    /// # Errors
    /// When all marks are taken, or `descriptor` has the wrong number or a range outside the
    /// payload. All are faults of the caller, and nothing is published.
    pub fn publish(&mut self, descriptor: &Descriptor) -> Result<bool, FormatError> {
        let free = (0..).zip(&mut self.marks).find(|(_, mark)| mark.of.is_none());
        let Some((number, mark)) = free else {
            let got = format_args!("descriptor {} with {DESCRIPTORS} unreleased", self.head);
            return Err(FormatError::new("ring descriptor", 0, got, "a free mark"));
        };
        if descriptor.seq != self.head {
            return Err(FormatError::new("ring descriptor number", 0, descriptor.seq, self.head));
        }
        let descriptor = Descriptor { mark: number, ..*descriptor };
        descriptor.check(self.payload.bytes)?;
        // The line is ours. A mark is free, so of the last `DESCRIPTORS` published one is released,
        // and `released` saw it (acquire, pairs with the release in `Releaser`). The client takes
        // in order: before that one it had taken the oldest of them, which lies in this line.
        self.daemon.write(line_of(self.head), &descriptor.encode())?;
        mark.of = Some(self.head);
        self.head += 1;
        // Release: pairs with the acquire of the head in `Consumer::poll`. A client that sees the
        // new head also sees the descriptor, and the payload that any thread wrote before this
        // call.
        self.daemon.store_u64(HEAD, self.head)?;
        // Dekker with `Consumer::wait_begin`: head before waiting here, waiting before head there,
        // a SeqCst fence between the two on both sides. So either we see the flag, or the client's
        // recheck sees the head.
        fence(Ordering::SeqCst);
        Ok(self.client.load_u64(WAITING)? != 0)
    }

    /// Number of the descriptor that the client says it waits for; `None` while it is awake. It may
    /// be any number.
    ///
    /// # Errors
    /// Never for the segments given to [`Producer::create`].
    pub fn awaited(&self) -> Result<Option<u64>, FormatError> {
        Ok(self.client.load_u64(WAITING)?.checked_sub(1))
    }

    /// Numbers of the descriptors released since the last call, in any order: their blocks may be
    /// reused.
    ///
    /// The client's words are read once each, and only those that are waited for.
    ///
    /// # Errors
    /// When a release mark has a value that no correct client writes: end the session.
    pub fn released(&mut self) -> Result<Vec<u64>, FormatError> {
        let mut released = Vec::new();
        for (at, mark) in (RELEASED..).step_by(size_of::<u64>()).zip(&mut self.marks) {
            let Some(seq) = mark.of else { continue };
            // Acquire: pairs with the release in `Releaser::release`. The client's reads of the
            // block are over.
            let word = self.client.load_u64(at)?;
            let done = seq + 1;
            if word == done {
                *mark = Mark { of: None, before: done };
                released.push(seq);
            } else if word != mark.before {
                let expected = format_args!("{} or {done}", mark.before);
                return Err(FormatError::new("ring release mark", at, word, expected));
            }
        }
        Ok(released)
    }

    /// Where workers say what they do for this ring.
    #[must_use]
    pub fn work_board(&self) -> WorkBoard {
        WorkBoard::new(self.daemon.clone())
    }

    /// Tells the client that the cache was given this size, for the daemon's successor.
    ///
    /// # Errors
    /// Never for the segments given to [`Producer::create`].
    pub fn tell_resized(&self, cache_bytes: u64) -> Result<(), FormatError> {
        self.daemon.store_u64(RESIZED, cache_bytes.saturating_add(1))
    }

    /// Tells the client that the daemon was alive at `now_ns` (CLOCK_MONOTONIC).
    ///
    /// # Errors
    /// Never for the segments given to [`Producer::create`].
    pub fn beat(&self, now_ns: u64) -> Result<(), FormatError> {
        self.daemon.store_u64(HEARTBEAT, now_ns)
    }
}
