//! The seam between what is read and how.

use crate::flight::Flight;

/// Carries out reads, as many at a time as the gate allows. When it is dropped, reads that have not
/// begun end as stopped, those that have begun are waited for, and its threads are joined. After
/// that no memory of the arena is in the kernel's hands.
pub(super) trait Engine: Send + Sync {
    /// Takes a flight; sooner or later its records are delivered.
    fn submit(&self, flight: Flight);

    /// The engine's name and the settings worth knowing.
    fn description(&self) -> String;
}
