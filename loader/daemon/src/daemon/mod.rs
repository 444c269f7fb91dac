//! Wiring only: builds the stages in the order data flows through them, owns their threads, and
//! stops them.

mod aside;
mod cache_memory;
mod inherited;
mod lifecycle;
mod log_limits;
mod memory;
mod observer;
mod observers;
mod request;
mod resize;
mod serve;
mod sessions;
mod settings;
mod silence;
mod start;
mod status;
#[cfg(test)]
mod tests;
mod tier;

use shade_reads::blocks::FreeList;

pub use inherited::Inherited;
pub(crate) use memory::AutoCache;
#[cfg(test)]
pub(crate) use request::Figures;
pub use settings::ServeConfig;
pub use start::{DaemonError, serve};

/// The core over the daemon's arena, and what goes in and comes out.
type Core = shade_core::Core<FreeList>;
type Event = shade_core::Event<FreeList>;
type Action = shade_core::Action<FreeList>;
