//! Detects that this process inherited a session through `fork` and must not use it.
//!
//! Parent and child would share one socket and one ring: both would take the same batches and release them twice. So
//! everything remembers its process, and a child's use is an error, its drops without effect.

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

    /// Whether we still are that process.
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

    /// A process that this one is not, as after a fork.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self { pid: std::process::id() + 1 }
    }
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
