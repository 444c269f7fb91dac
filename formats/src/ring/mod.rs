//! The shared-memory ring through which batches reach one trainer process: layout, both ends, and
//! the payload's allocator.
//!
//! One producer (the daemon), one consumer (the client). The spec with its byte diagrams is
//! `RING.md`, two folders up.

mod batch_layout;
mod consumer;
mod descriptor;
mod fields;
mod layout;
#[cfg(loom)]
mod loom_region;
mod payload_ring;
mod producer;
#[cfg(not(loom))]
mod region;
mod sync;

pub use batch_layout::{BatchLayout, FLAG_PADDING, FLAG_SUBSTITUTED};
pub use consumer::{Consumer, Releaser};
pub use descriptor::{Descriptor, Kind, Layout};
pub use layout::{
    CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, DESCRIPTORS, ERROR_TEXT_BYTES_MAX, PayloadSize, RING_VERSION,
};
#[cfg(loom)]
pub use loom_region::Region;
pub use payload_ring::PayloadRing;
pub use producer::Producer;
#[cfg(not(loom))]
pub use region::Region;
