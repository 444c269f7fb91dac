//! Where the log of a private daemon goes: to the standard error of the rank that has been attached
//! longest.
//!
//! The daemon outlives the training that started it. So it keeps that training's standard error
//! only until a rank offers its own, and each rank's only while the rank is attached: nobody who
//! waits for the end of a training's output waits for the daemon.
//!
//! A rank's session has its standard error, and here it is only known of. To close a file may take
//! as long as its file system likes, so only the session's thread and the log's ever do that.
//!
//! A second copy goes to standard output ([`LastWords`]): the rank that started the daemon keeps
//! the last lines for its errors.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::stdio::stdout;
use shade_core::SessionId;

/// Offers by session. A later session has a larger number.
static OFFERS: Mutex<BTreeMap<SessionId, Weak<OwnedFd>>> = Mutex::new(BTreeMap::new());

/// A rank's standard error, which may be written to until this is dropped.
#[derive(Debug)]
pub(crate) struct Offer {
    session: SessionId,
    _stderr: Arc<OwnedFd>,
}

impl Drop for Offer {
    fn drop(&mut self) {
        offers().remove(&self.session);
    }
}

/// Offers a rank's only standard error, and closes the one that this process was started with. Call
/// it on the session's thread, which also drops the offer.
pub(crate) fn offer(session: SessionId, stderr: OwnedFd) -> Offer {
    let stderr = Arc::new(stderr);
    offers().insert(session, Arc::downgrade(&stderr));
    if let Ok(nothing) = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        // If this fails, the first training's standard error stays open.
        let _ = rustix::stdio::dup2_stderr(nothing);
    }
    Offer { session, _stderr: stderr }
}

/// The standard error that the log goes to; `None`: the process's own.
pub(super) fn current() -> Option<Arc<OwnedFd>> {
    offers().values().find_map(Weak::upgrade)
}

/// Writes no more to one that cannot be written to.
pub(super) fn drop_broken(stderr: &Arc<OwnedFd>) {
    offers().retain(|_, known| known.as_ptr() != Arc::as_ptr(stderr));
}

fn offers() -> MutexGuard<'static, BTreeMap<SessionId, Weak<OwnedFd>>> {
    OFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first line on standard output says that the daemon is ready; the log follows it.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// The log's second destination: the process's standard output, which is a pipe to the rank that
/// started the daemon. When the rank is gone or does not read, lines are dropped there; the log
/// itself goes to standard error.
#[derive(Debug)]
pub struct LastWords;

impl LastWords {
    /// Begins to copy the log. From now on the pipe does not block, so that a full one loses lines.
    pub fn begin() {
        let unblocked =
            fcntl_getfl(stdout()).and_then(|flags| fcntl_setfl(stdout(), flags | OFlags::NONBLOCK));
        HAS_BEGUN.store(unblocked.is_ok(), Ordering::Relaxed);
    }

    /// Whether the log is copied, so that whatever else is said there goes through the log.
    #[must_use]
    pub fn has_begun() -> bool {
        HAS_BEGUN.load(Ordering::Relaxed)
    }

    /// Writes a line. The rank may make the pipe block again, so only a thread may call it that
    /// nobody waits for.
    pub(crate) fn write(line: &[u8]) {
        if Self::has_begun() {
            // If the pipe is full or closed, the line is missing in the rank's errors, no more.
            let _ = rustix::io::write(stdout(), line);
        }
    }

    /// Says that this signal ends the process. For a signal's handler: takes no lock and no memory,
    /// and does not wait.
    pub(crate) fn say_signal(number: i32) {
        let output = stdout();
        let has_room = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&output, PollFlags::OUT)], Some(&now)) == Ok(1)
        };
        if Self::has_begun() && has_room() {
            let number = u8::try_from(number).unwrap_or_default();
            let tens = if number < 10 { b' ' } else { b'0' + number / 10 % 10 };
            let digits = [tens, b'0' + number % 10];
            let line = [b"{\"signal\":".as_slice(), &digits, b"}\n"].map(IoSlice::new);
            let _ = rustix::io::writev(output, &line);
        }
    }
}
