//! What reads, workers and the drawer of plans answer, as events of the core.

use shade_core::Drawn;
use shade_reads::{Completion, core_fault};

use super::Event;
use crate::batches::{FillFault, Filled};

/// The core's event for a read that has ended.
pub(super) fn read(completion: Completion) -> Event {
    Event::Read(completion.map_fault(core_fault))
}

/// The core's event for a plan that was drawn.
pub(super) fn drawn(drawn: Drawn) -> Event {
    Event::Drawn(Box::new(drawn))
}

/// The core's event for rows that a worker gives back.
pub(super) fn filled(done: Filled) -> Event {
    Event::Filled(done.map_fault(FillFault::core_fault))
}
