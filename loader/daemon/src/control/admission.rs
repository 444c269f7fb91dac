//! Limits on the daemon's connections, and on the log lines about those that it refuses.
//!
//! Each connection has a thread with a message buffer. Without a limit, a process that connects and
//! says nothing could have thousands of them.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use shade_formats::limits::{JOBS_MAX, RANKS_MAX};

use crate::log::{LeftOut, Rate, Throttle};

/// Connections that are not admitted yet: ranks of this machine that say hello at the same moment.
pub(super) const GREETINGS_MAX: u32 = 256;
/// All connections: those, all ranks that jobs may have, and as many whose session has ended.
const CONNECTIONS_MAX: u32 = GREETINGS_MAX + 2 * JOBS_MAX * RANKS_MAX;

/// Counts connections.
#[derive(Debug)]
pub(super) struct Admission {
    connections: Arc<AtomicU32>,
    greetings: Arc<AtomicU32>,
    /// For lines about connections that fail.
    throttle: Mutex<Throttle>,
    /// For lines about connections of users who are not served.
    strangers: Mutex<Throttle>,
}

/// A connection's permits. The second is given back when the connection is admitted.
#[derive(Debug)]
pub(super) struct Permits {
    _connection: Permit,
    pub(super) greeting: Option<Permit>,
}

/// One of a limited number of permits. Dropping gives it back.
#[derive(Debug)]
pub(super) struct Permit(Arc<AtomicU32>);

impl Admission {
    pub(super) fn new() -> Self {
        Self {
            connections: Arc::default(),
            greetings: Arc::default(),
            throttle: Mutex::new(Throttle::new(Rate::FAULTS, Instant::now())),
            strangers: Mutex::new(Throttle::new(Rate::STRANGERS, Instant::now())),
        }
    }

    /// Permits for one more connection.
    pub(super) fn permits(&self) -> io::Result<Permits> {
        let too_many = |what: &str, most: u32| io::Error::other(format!("{most} connections {what} already"));
        let connection = Permit::take(&self.connections, CONNECTIONS_MAX)
            .ok_or_else(|| too_many("are open", CONNECTIONS_MAX))?;
        let greeting = Permit::take(&self.greetings, GREETINGS_MAX)
            .ok_or_else(|| too_many("have not been let in", GREETINGS_MAX))?;
        Ok(Permits { _connection: connection, greeting: Some(greeting) })
    }

    /// Logs why a connection failed, unless too many lines did so lately.
    pub(super) fn warn(&self, say: impl FnOnce(LeftOut)) {
        warn(&self.throttle, say);
    }

    /// Warns of a connection that any user of the machine may cause.
    pub(super) fn warn_of_stranger(&self, say: impl FnOnce(LeftOut)) {
        warn(&self.strangers, say);
    }
}

fn warn(throttle: &Mutex<Throttle>, say: impl FnOnce(LeftOut)) {
    let admitted = throttle.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
    if let Some(left_out) = admitted {
        say(left_out);
    }
}

impl Permit {
    fn take(taken: &Arc<AtomicU32>, most: u32) -> Option<Self> {
        let one_more = |count: u32| (count < most).then_some(count + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_admitted_or_ends_makes_room_for_others() {
        let admission = Admission::new();
        let mut all: Vec<_> = (0..GREETINGS_MAX).map(|_| admission.permits().unwrap()).collect();
        assert!(admission.permits().unwrap_err().to_string().contains("have not been let in"));
        all[0].greeting = None;
        all.push(admission.permits().unwrap());
        admission.permits().unwrap_err();
        all.pop();
        admission.permits().unwrap();
        assert_eq!(admission.connections.load(Ordering::Relaxed), GREETINGS_MAX);
    }
}
