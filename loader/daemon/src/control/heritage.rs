//! The listening socket, which another daemon goes on with that takes this one's place. So there is
//! no moment at which nobody listens.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// See the [module](self).
pub(super) struct Heritage {
    socket: OwnedFd,
    /// Number of daemons that it was sent to: one may give up while the next one asks.
    given: AtomicU32,
}

impl Heritage {
    pub(super) fn of(socket: OwnedFd) -> Self {
        Self { socket, given: AtomicU32::new(0) }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The socket, for the other daemon: its file stays from now on.
    pub(super) fn give(&self) -> BorrowedFd<'_> {
        self.given.fetch_add(1, Ordering::Relaxed);
        self.socket.as_fd()
    }

    /// The other daemon has not got it.
    pub(super) fn keep(&self) {
        self.given.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether another daemon has it.
    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Relaxed) > 0
    }
}
