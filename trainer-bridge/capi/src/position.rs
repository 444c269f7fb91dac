//! How far a session is, for its saved state. Threads may share a session.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How far a session is.
#[derive(Debug, Default)]
pub(crate) struct Position(Mutex<At>);

#[derive(Clone, Copy, Debug, Default)]
struct At {
    /// The epoch that was begun last.
    epoch: u32,
    /// Epoch and number of the batch that a state goes on with.
    next: (u32, u32),
}

impl Position {
    /// Epoch and number of the batch that a state goes on with.
    pub(crate) fn next(&self) -> (u32, u32) {
        self.locked().next
    }

    /// An epoch is begun.
    pub(crate) fn stand_at(&self, epoch: u32, batch: u32) {
        *self.locked() = At { epoch, next: (epoch, batch) };
    }

    /// A thread has taken a batch. Another one may have told a later one before.
    pub(crate) fn took(&self, epoch: u32, batch: u32) {
        let mut at = self.locked();
        if at.next.0 == epoch {
            at.next.1 = at.next.1.max(batch.saturating_add(1));
        }
    }

    /// The epoch's end was told, as it is each time that a thread asks for more.
    pub(crate) fn ended(&self) {
        let mut at = self.locked();
        at.next = (at.epoch.saturating_add(1), 0);
    }

    fn locked(&self) -> MutexGuard<'_, At> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_tell_late_or_twice_moves_nothing() {
        let position = Position::default();
        position.stand_at(3, 2);
        position.took(3, 5);
        position.took(3, 4);
        position.took(2, 9);
        assert_eq!(position.next(), (3, 6));
        position.ended();
        position.ended();
        position.took(3, 6);
        assert_eq!(position.next(), (4, 0));
    }
}
