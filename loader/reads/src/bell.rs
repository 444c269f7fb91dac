//! Wakes the io_uring thread out of its wait: an eventfd that is rung only while it waits.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

/// Between those who submit and the one thread that waits in the kernel.
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

    /// To be polled for reading by the waiting thread.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }

    /// Call after queueing something: rings if the thread waits or is about to.
    ///
    /// Pairs with [`before_wait`](Self::before_wait): of two threads that each write (the queue here,
    /// `waiting` there) and then, after a SeqCst fence, read what the other wrote, at least one sees the
    /// other's write. So either this rings or the thread finds the queue filled and does not wait.
    pub(super) fn ring_if_waited(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.swap(false, Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Says that the thread is about to wait. It must look at its queue once more afterwards.
    pub(super) fn before_wait(&self) {
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the thread is awake.
    pub(super) fn after_wait(&self) {
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// Makes the eventfd silent again after it was found readable.
    pub(super) fn silence(&self) {
        // Nothing to read means silent already.
        let _ = read(&self.eventfd, &mut [0; 8]);
    }

    /// Asks the thread to end, and rings in any case.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the thread is to end.
    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn ring(&self) {
        // Any number but 0 rings. A full counter (EAGAIN) is readable as well; nothing else can fail on an
        // eventfd but an interruption.
        while write(&self.eventfd, &[1; 8]) == Err(Errno::INTR) {}
    }
}
