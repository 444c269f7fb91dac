//! Where the log of a private daemon goes: to the standard error of the rank that has been attached
//! longest.
//!
//! The daemon outlives the training that started it. So it keeps that training's standard error
//! only until a rank offers its own, and each rank's only while the rank is attached: nobody who
//! waits for the end of a training's output waits for the daemon.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use shade_core::SessionId;

/// Offers by session. A later session has a larger number.
static OFFERS: Mutex<BTreeMap<SessionId, Arc<OwnedFd>>> = Mutex::new(BTreeMap::new());

/// Takes a rank's standard error, and closes the one that this process was started with.
pub(crate) fn offer(session: SessionId, stderr: OwnedFd) {
    offers().insert(session, Arc::new(stderr));
    if let Ok(nothing) = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        // If this fails, the first training's standard error stays open.
        let _ = rustix::stdio::dup2_stderr(nothing);
    }
}

/// Closes the standard error of a rank that is gone.
pub(crate) fn withdraw(session: SessionId) {
    offers().remove(&session);
}

/// The standard error that the log goes to; `None`: the process's own.
pub(super) fn current() -> Option<Arc<OwnedFd>> {
    offers().first_key_value().map(|(_, stderr)| Arc::clone(stderr))
}

/// Closes one that cannot be written to.
pub(super) fn drop_broken(stderr: &Arc<OwnedFd>) {
    offers().retain(|_, known| !Arc::ptr_eq(known, stderr));
}

fn offers() -> MutexGuard<'static, BTreeMap<SessionId, Arc<OwnedFd>>> {
    OFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}
