//! The job of every bench: one rank that takes each sample once an epoch, in batches of 256. The
//! core of those that measure a core alone.

use shade_core::{Action, Core, CoreConfig, Event};
use shade_job::{Decode, JobSpec, Policy, Tail};
use shade_reads::blocks::FreeList;

/// The job, whose records become this.
pub(crate) fn job(decode: Decode) -> JobSpec {
    // Each epoch delivers the whole dataset, which is divided by the time.
    JobSpec { batch_size: 256, tail: Tail::Even, decode, ..JobSpec::default() }
}

/// A core that reads each record alone, and nothing ahead.
pub(crate) fn core_config(cache_bytes: u64, policy: Policy, reads_max: u32, block_bytes: u32) -> CoreConfig {
    CoreConfig {
        cache_bytes,
        policy,
        lookahead: 1.0,
        reads_max,
        gap_bytes_max: 0,
        window_bytes: 0,
        package_bytes: 0,
        prefetches_max: 0,
        opens_ahead: false,
        block_bytes,
        orders_max: usize::MAX,
        decoded_bytes: 0,
    }
}

/// Lets the core go on until there is nothing left to do. What it orders aside is done at
/// once.
pub(crate) fn go_on(core: &mut Core<FreeList>, actions: &mut Vec<Action<FreeList>>) {
    loop {
        while core.advance(0, actions) {}
        let at = actions.iter().position(|action| matches!(action, Action::Aside(_)));
        let Some(Action::Aside(order)) = at.map(|at| actions.remove(at)) else { return };
        core.step(0, Event::Aside(order.carry_out()), actions);
    }
}
