//! What reads, workers and the thread aside answer, as events of the core.

use shade_core::AsideResult;
use shade_reads::{Completion, core_fault};

use super::Event;
use crate::batches::{FillFault, Filled};

/// The core's event for a read that has ended.
pub(super) fn read(completion: Completion) -> Event {
    Event::Read(completion.map_fault(core_fault))
}

/// The core's event for what was done aside.
pub(super) fn carried_out(result: AsideResult) -> Event {
    Event::Aside(result)
}

/// The core's event for rows that a worker gives back.
pub(super) fn filled(done: Filled) -> Event {
    Event::Filled(done.map_fault(FillFault::core_fault))
}
