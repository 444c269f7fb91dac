//! Detects a session that was inherited through `fork`, which this process must not use. Locks that
//! outlive a panic.
//!
//! Parent and child would share one socket and one ring, take the same batches and release them
//! twice. So everything remembers its process; in a child its use is an error and its drop does
//! nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ClientError;

/// The process that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: u32,
}

impl Owner {
    /// This process.
    pub(crate) fn here() -> Self {
        Self { pid: std::process::id() }
    }

    /// Whether this is that process.
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }

    /// Refuses use in a forked child.
    pub(crate) fn check(self) -> Result<(), ClientError> {
        let here = Self::here();
        if self != here {
            return Err(ClientError::Forked { owner: self.pid, here: here.pid });
        }
        Ok(())
    }

    /// Another process, as after a fork.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self { pid: std::process::id() + 1 }
    }
}

/// Locks, also after a panic: no code under this crate's locks panics halfway through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_refused_with_both_ids() {
        let other = Owner::elsewhere();
        assert!(!other.is_here() && Owner::here().is_here());
        Owner::here().check().unwrap();
        let text = other.check().unwrap_err().to_string();
        assert!(text.contains(&other.pid.to_string()) && text.contains("after the fork"), "{text}");
    }
}
