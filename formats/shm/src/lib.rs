//! `shade-shm`: the shared memory of a ring, from both ends, with all `unsafe` that a ring needs.
//!
//! The daemon makes the segments ([`RingSegments`]) and publishes ([`Producer`]); the client maps
//! them ([`map_segment`]) and takes ([`Consumer`]). Both reach the memory through a [`Region`]
//! only. [`shade_formats::ring`] has the layout.

mod consumer;
#[cfg(not(loom))]
mod doorbell;
mod header;
#[cfg(loom)]
mod loom_region;
#[cfg(not(loom))]
mod mapped;
#[cfg(not(loom))]
pub mod memfd;
mod producer;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod segments;
mod working;

pub use consumer::{Consumer, Releaser};
#[cfg(not(loom))]
pub use doorbell::{Doorbell, Heard};
#[cfg(loom)]
pub use loom_region::Region;
#[cfg(not(loom))]
pub use mapped::{Access, SegmentError, check_size_is_fixed, map_segment};
pub use producer::Producer;
#[cfg(not(loom))]
pub use region::Region;
#[cfg(not(loom))]
pub use segments::{RingEnd, RingSegments};
pub use working::WorkBoard;

/// The switch between the machine's atomics and loom's, which explores every allowed order.
mod sync {
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{Ordering, fence};
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::{Ordering, fence};
}
