//! The listening socket, which another daemon goes on with that takes this one's place. So there is
//! no moment at which nobody listens.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// See the [module](self).
pub(super) struct Heritage {
    socket: OwnedFd,
    is_given: AtomicBool,
}

impl Heritage {
    pub(super) fn of(socket: OwnedFd) -> Self {
        Self { socket, is_given: AtomicBool::new(false) }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The socket, for the other daemon: its file stays from now on.
    pub(super) fn give(&self) -> BorrowedFd<'_> {
        self.is_given.store(true, Ordering::Relaxed);
        self.socket.as_fd()
    }

    /// The other daemon has not got it.
    pub(super) fn keep(&self) {
        self.is_given.store(false, Ordering::Relaxed);
    }

    /// Whether another daemon has it.
    pub(super) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }
}
