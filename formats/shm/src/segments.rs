//! Makes the three segments and the doorbells of a session, sealed so that neither side can take
//! memory from the other.
//!
//! Every page is allocated here: one that is missing in the middle of an epoch would be a SIGBUS. A
//! limit on this process (RLIMIT_AS, RLIMIT_FSIZE) is an error here. When the memory of the machine
//! or a control group ends, there is no error, and the kernel ends a process. So the daemon
//! compares a ring's size with both before (`daemon/memory`). Sizes are sealed: a file that shrinks
//! under a mapping is a SIGBUS too. The segment that only the daemon writes is sealed against every
//! later writable mapping; the daemon's own is made before.
#![expect(unsafe_code, reason = "a mapping becomes a region; the block has its proof")]

use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use shade_formats::control::WELCOME_FDS;
use shade_formats::ring::{CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, PayloadSize};

use crate::memfd::{self, Writers};
use crate::{Doorbell, Producer, Region};

/// Thread limit: more find memory hardly any faster.
const POPULATING_THREADS_MAX: usize = 4;
/// Least share of a thread.
const POPULATED_BYTES_MIN: usize = 16 << 20;

/// One session's ring, before its client gets it.
#[derive(Debug)]
pub struct RingSegments {
    end: RingEnd,
    /// The client's end.
    doorbell: Doorbell,
    daemon: OwnedFd,
    client: OwnedFd,
    payload: OwnedFd,
}

/// The daemon's end of a ring, which publishes.
#[derive(Debug)]
pub struct RingEnd {
    /// Publishes descriptors and sees their release.
    pub producer: Producer,
    /// Where batches are written. Clones go to the workers; the memory lives until the last is
    /// dropped.
    pub payload: Region,
    /// Wakes the client: [ring](Doorbell::ring) it when publishing says so. It becomes readable
    /// when the client has released descriptors.
    pub doorbell: Arc<Doorbell>,
}

impl RingSegments {
    /// Makes, allocates, maps and seals everything for a ring with such a payload.
    ///
    /// # Errors
    /// When memory or descriptors are lacking, with the limit that forbids them; `InvalidInput`
    /// when `payload` is impossible. Nothing is left behind.
    pub fn create(payload: PayloadSize) -> io::Result<Self> {
        Self::make(payload).map_err(|error| memfd::lacking(error, Some("Daemon(ring=...) or batch_size")))
    }

    fn make(payload: PayloadSize) -> io::Result<Self> {
        let (daemon, daemon_region) = segment("shade-ring-daemon", DAEMON_SEGMENT_BYTES, Writers::Mapped)?;
        let (client, client_region) = segment("shade-ring-client", CLIENT_SEGMENT_BYTES, Writers::All)?;
        // Checks `payload` before anything of that size is asked for.
        let producer = Producer::create(daemon_region, client_region, payload)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (payload_fd, payload) = segment("shade-ring-payload", payload.bytes, Writers::All)?;
        let (ours, theirs) = Doorbell::pair()?;
        Ok(Self {
            end: RingEnd { producer, payload, doorbell: Arc::new(ours) },
            doorbell: theirs,
            daemon,
            client,
            payload: payload_fd,
        })
    }

    /// The descriptors that go with `Welcome`, in order.
    #[must_use]
    pub fn welcome_fds(&self) -> [BorrowedFd<'_>; WELCOME_FDS] {
        [self.daemon.as_fd(), self.client.as_fd(), self.payload.as_fd(), self.doorbell.as_fd()]
    }

    /// Closes the descriptors that only the client needed, once it has them. Returns the publishing
    /// end.
    #[must_use]
    pub fn into_end(self) -> RingEnd {
        self.end
    }
}

/// A memfd of `bytes`, all allocated, mapped for writing and then sealed.
fn segment(name: &str, bytes: u64, writers: Writers) -> io::Result<(OwnedFd, Region)> {
    let fd = memfd::create(name, bytes)?;
    let len = usize::try_from(bytes).map_err(|_| Errno::OVERFLOW)?;
    let mapping = MmapOptions::new().len(len).map_raw(&fd)?;
    // Huge pages, where the system gives them to shared memory on demand: both sides would have to
    // fault in hundreds of MB of small pages one by one.
    let _ = mapping.advise(Advice::HugePage);
    if populate(&mapping).is_err() {
        // Linux before 5.14 cannot. If memory is short, this call tells.
        fallocate(&fd, FallocateFlags::empty(), 0, bytes)?;
    }
    memfd::seal(&fd, writers)?;
    let start = NonNull::new(mapping.as_mut_ptr()).ok_or(Errno::FAULT)?;
    // SAFETY: `mapping` maps its bytes readable and writable until it is dropped, which the region
    // does last. The file is allocated whole and its size sealed, so no access faults. No reference
    // into it is ever made.
    let region = unsafe { Region::from_raw(start, len, mapping) };
    Ok((fd, region))
}

/// Allocates a mapping's memory. For hundreds of MB this takes a tenth of a second, while a trainer
/// waits, so several threads share it.
fn populate(mapping: &MmapRaw) -> io::Result<()> {
    if mapping.len() <= POPULATED_BYTES_MIN {
        return mapping.advise(Advice::PopulateWrite);
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(POPULATING_THREADS_MAX);
    let share = mapping.len().div_ceil(threads).next_multiple_of(POPULATED_BYTES_MIN);
    std::thread::scope(|scope| {
        let shares = (0..mapping.len()).step_by(share).map(|at| (at, share.min(mapping.len() - at)));
        let start = |(at, len)| {
            let thread = std::thread::Builder::new().name("shade-ring".to_owned());
            thread.spawn_scoped(scope, move || mapping.advise_range(Advice::PopulateWrite, at, len))
        };
        let started: Vec<_> = shares.map(start).collect::<io::Result<_>>()?;
        started.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(Errno::NOMEM.into())))
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
    use shade_formats::ring::{Descriptor, Kind};

    use super::*;
    use crate::Consumer;

    const PAYLOAD_BYTES: u64 = 64 * 1024;

    fn segments() -> RingSegments {
        let payload = PayloadSize { bytes: PAYLOAD_BYTES, gap_bytes: PAYLOAD_BYTES / 3 };
        RingSegments::create(payload).unwrap()
    }

    #[test]
    fn the_client_can_neither_resize_nor_unseal_any_segment() {
        let ring = segments();
        for fd in &ring.welcome_fds()[..3] {
            let bytes = u64::try_from(fstat(fd).unwrap().st_size).unwrap();
            assert_eq!(ftruncate(fd, bytes - 4096), Err(Errno::PERM));
            assert_eq!(ftruncate(fd, bytes + 4096), Err(Errno::PERM));
            assert_eq!(fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM));
            assert!(
                fcntl_get_seals(fd).unwrap().contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            );
        }
    }

    #[test]
    fn the_client_cannot_write_the_daemon_segment_by_any_door() {
        let ring = segments();
        let [daemon, client, payload, ..] = ring.welcome_fds();
        assert!(MmapOptions::new().len(4096).map_raw(&daemon).is_err(), "a writable mapping");
        assert!(rustix::io::pwrite(daemon, b"x", 0).is_err());
        assert!(fallocate(daemon, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).is_err());
        assert!(MmapOptions::new().len(4096).map_raw_read_only(&daemon).is_ok());
        assert!(MmapOptions::new().len(4096).map_raw(&client).is_ok());
        assert!(MmapOptions::new().len(4096).map_raw(&payload).is_ok());
    }

    #[test]
    fn the_daemon_still_publishes_after_sealing_and_the_client_sees_it() {
        let mut ring = segments();
        let [daemon, client, ..] = ring.welcome_fds();
        let view = |fd: BorrowedFd<'_>, len: u64| {
            let len = usize::try_from(len).unwrap();
            let mapping = MmapOptions::new().len(len).map_raw_read_only(&fd).unwrap();
            let start = NonNull::new(mapping.as_mut_ptr()).unwrap();
            // SAFETY: as in `segment`, but mapped for reading.
            unsafe { Region::from_raw_read_only(start, len, mapping) }
        };
        let mut consumer =
            Consumer::attach(view(daemon, DAEMON_SEGMENT_BYTES), view(client, CLIENT_SEGMENT_BYTES)).unwrap();
        let end = Descriptor { kind: Kind::EpochEnd, ..Descriptor::default() };
        ring.end.producer.publish(&end).unwrap();
        assert_eq!(consumer.poll().unwrap(), Some(end));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for bytes in [0, 100, u64::MAX, 1 << 62] {
            let payload = PayloadSize { bytes, gap_bytes: 1 };
            assert_eq!(
                RingSegments::create(payload).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{bytes}"
            );
        }
    }
}
