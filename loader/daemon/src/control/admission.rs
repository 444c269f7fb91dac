//! How many connections the daemon has at a time, and how often it says that it turns some away.
//!
//! Each has a thread with a buffer for messages. Whoever connects and says nothing could have thousands of them otherwise.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use shade_formats::limits::RANKS_MAX;

use crate::log::{LeftOut, Throttle};

/// Connections that have not been let in: ranks of this machine that say hello at the same moment.
pub(super) const GREETINGS_MAX: u32 = 256;
/// Connections in all: those, all ranks that a job may have, and as many whose session has ended but whose process may still look
/// at records.
const CONNECTIONS_MAX: u32 = GREETINGS_MAX + 2 * RANKS_MAX;

/// Counts connections.
#[derive(Debug)]
pub(super) struct Admission {
    connections: Arc<AtomicU32>,
    greetings: Arc<AtomicU32>,
    /// Of lines about connections that come to nothing.
    throttle: Mutex<Throttle>,
}

/// A connection's places. The second is given back when it is let in.
#[derive(Debug)]
pub(super) struct Places {
    _connection: Place,
    pub(super) greeting: Option<Place>,
}

/// One place of so many, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicU32>);

impl Admission {
    pub(super) fn new() -> Self {
        Self {
            connections: Arc::default(),
            greetings: Arc::default(),
            throttle: Mutex::new(Throttle::new(Instant::now())),
        }
    }

    /// Places for one more connection.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn places(&self) -> io::Result<Places> {
        let too_many = |what: &str, most: u32| io::Error::other(format!("{most} connections {what} already"));
        let connection = Place::take(&self.connections, CONNECTIONS_MAX)
            .ok_or_else(|| too_many("are open", CONNECTIONS_MAX))?;
        let greeting = Place::take(&self.greetings, GREETINGS_MAX)
            .ok_or_else(|| too_many("have not been let in", GREETINGS_MAX))?;
        Ok(Places { _connection: connection, greeting: Some(greeting) })
    }

    /// Logs why a connection comes to nothing, unless that was said too often.
    pub(super) fn warn(&self, say: impl FnOnce(LeftOut)) {
        let admitted = self.throttle.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
        if let Some(left_out) = admitted {
            say(left_out);
        }
    }
}

impl Place {
    fn take(taken: &Arc<AtomicU32>, most: u32) -> Option<Self> {
        let one_more = |count: u32| (count < most).then_some(count + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_let_in_or_has_left_makes_room_for_others() {
        let admission = Admission::new();
        let mut all: Vec<_> = (0..GREETINGS_MAX).map(|_| admission.places().unwrap()).collect();
        assert!(admission.places().unwrap_err().to_string().contains("have not been let in"));
        all[0].greeting = None;
        all.push(admission.places().unwrap());
        admission.places().unwrap_err();
        all.pop();
        admission.places().unwrap();
        assert_eq!(admission.connections.load(Ordering::Relaxed), GREETINGS_MAX);
    }
}
