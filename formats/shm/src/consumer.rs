//! The client's end: takes descriptors in their order, sleeps without missing one, and releases
//! them in any order.
//!
//! Read it side by side with its counterpart, `producer.rs`.

use shade_formats::FormatError;
use shade_formats::ring::{
    DESCRIPTORS, Descriptor, HEAD, HEARTBEAT, LINE_BYTES, Line, PayloadSize, RELEASED, RESIZED, Segment,
    WAITING, Working, line_of,
};

use crate::sync::{Ordering, fence};
use crate::{Region, header, working};

/// Takes descriptors from one ring.
#[derive(Debug)]
pub struct Consumer {
    daemon: Region,
    client: Region,
    payload: PayloadSize,
    /// Number of the next descriptor.
    next: u64,
    /// The daemon was told that this one is waited for.
    told: Option<u64>,
}

impl Consumer {
    /// Attaches to the two segments that the daemon made.
    ///
    /// # Errors
    /// When a segment's length or header is not that of this build's layout.
    pub fn attach(daemon: Region, client: Region) -> Result<Self, FormatError> {
        let payload = header::read(Segment::Daemon, &daemon)?;
        let in_client = header::read(Segment::Client, &client)?;
        if payload != in_client {
            let (got, expected) = (format_args!("{in_client:?}"), format_args!("{payload:?}"));
            return Err(FormatError::new("client segment header", 0, got, expected));
        }
        Ok(Self { daemon, client, payload, next: 0, told: None })
    }

    /// The payload's size, from the header.
    #[must_use]
    pub fn payload(&self) -> PayloadSize {
        self.payload
    }

    /// Takes the next descriptor if one is published. The result is a copy; the block belongs to
    /// the caller until it is released.
    ///
    /// # Errors
    /// When the head or the descriptor is not what a correct daemon writes.
    pub fn poll(&mut self) -> Result<Option<Descriptor>, FormatError> {
        // Acquire: pairs with the release of the head in `Producer::publish`. The descriptor and
        // its block are visible.
        let head = self.daemon.load_u64(HEAD)?;
        if head == self.next {
            return Ok(None);
        }
        if head.checked_sub(self.next).is_none_or(|ahead| ahead > DESCRIPTORS as u64) {
            let expected = format_args!("{} to {DESCRIPTORS} more", self.next);
            return Err(FormatError::new("ring head", HEAD, head, expected));
        }
        let at = line_of(self.next);
        let mut line: Line = [0; LINE_BYTES];
        self.daemon.read(at, &mut line)?;
        let descriptor = Descriptor::decode(&line)?;
        if descriptor.seq != self.next {
            return Err(FormatError::new("ring descriptor number", at, descriptor.seq, self.next));
        }
        descriptor.check(self.payload.bytes)?;
        self.next += 1;
        Ok(Some(descriptor))
    }

    /// Announces that this end goes to sleep. Poll once more afterwards, and sleep only if that
    /// finds nothing. True when the daemon has not been told yet that the next descriptor is waited
    /// for: ring its doorbell before that sleep.
    ///
    /// # Errors
    /// Never for segments that could be attached to.
    pub fn wait_begin(&mut self) -> Result<bool, FormatError> {
        self.client.store_u64(WAITING, self.next.wrapping_add(1))?;
        // Dekker with `Producer::publish`, see there.
        fence(Ordering::SeqCst);
        Ok(self.told.replace(self.next) != Some(self.next))
    }

    /// Announces that this end is awake: the daemon saves its doorbells.
    ///
    /// # Errors
    /// Never for segments that could be attached to.
    pub fn wait_end(&self) -> Result<(), FormatError> {
        self.client.store_u64(WAITING, 0)
    }

    /// Time of the daemon's last heartbeat, CLOCK_MONOTONIC in ns; 0 before the first.
    ///
    /// # Errors
    /// Never for segments that could be attached to.
    pub fn heartbeat_ns(&self) -> Result<u64, FormatError> {
        self.daemon.load_u64(HEARTBEAT)
    }

    /// Bytes that the cache was given while the daemon ran; `None` while it has the size that it
    /// began with.
    ///
    /// # Errors
    /// Never for segments that could be attached to.
    pub fn resized(&self) -> Result<Option<u64>, FormatError> {
        Ok(self.daemon.load_u64(RESIZED)?.checked_sub(1))
    }

    /// The rows that the daemon's workers make for this ring, whose dataset has `samples` samples:
    /// once it is dead, those that it has died at.
    #[must_use]
    pub fn working(&self, samples: u32) -> Vec<Working> {
        working::read(&self.daemon, samples)
    }

    /// A releaser of this ring's descriptors, for any thread.
    #[must_use]
    pub fn releaser(&self) -> Releaser {
        Releaser { client: self.client.clone() }
    }
}

/// Releases descriptors. Each has a mark of its own, so releases need no order and no lock.
#[derive(Clone, Debug)]
pub struct Releaser {
    client: Region,
}

impl Releaser {
    /// Gives a descriptor's mark and block back to the daemon. Call it once for each that
    /// [`Consumer::poll`] returned, when the block is not used any more.
    ///
    /// # Errors
    /// Never for what [`Consumer::poll`] returned.
    pub fn release(&self, descriptor: &Descriptor) -> Result<(), FormatError> {
        // Release: pairs with the acquire in `Producer::released`. Our reads of the block happen
        // before its reuse, and so do those of this descriptor's line and of all before it, which
        // were taken earlier.
        self.client.store_u64(RELEASED + u64::from(descriptor.mark) * 8, descriptor.seq.wrapping_add(1))
    }
}
