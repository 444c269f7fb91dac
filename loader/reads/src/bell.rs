//! Wakes the io_uring thread: an eventfd that is rung only while the thread waits.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

/// Between the submitting threads and the one that waits in the kernel.
pub(super) struct Bell {
    eventfd: OwnedFd,
    waiting: AtomicBool,
    stopping: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { eventfd, waiting: AtomicBool::new(false), stopping: AtomicBool::new(false) })
    }

    /// The waiting thread polls it for reading.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }

    /// Rings if the thread waits or is about to. Call it after queueing something.
    ///
    /// Pairs with [`before_wait`](Self::before_wait): both threads write (the queue here, `waiting`
    /// there), then read the other's write after a SeqCst fence, and at least one sees it. So
    /// either this rings, or the thread finds the queue filled and does not wait.
    pub(super) fn ring_if_waited(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.swap(false, Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Announces that the thread is about to wait. It must check its queue once more afterwards.
    pub(super) fn before_wait(&self) {
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the thread is awake.
    pub(super) fn after_wait(&self) {
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// Resets the eventfd after it was readable.
    pub(super) fn silence(&self) {
        // Fails if it is reset already.
        let _ = read(&self.eventfd, &mut [0; 8]);
    }

    /// Asks the thread to end, and rings in any case.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the thread must end.
    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn ring(&self) {
        // Any number except 0 rings. A full counter (EAGAIN) is readable too; otherwise only an
        // interruption can fail here.
        while write(&self.eventfd, &[1; 8]) == Err(Errno::INTR) {}
    }
}
