//! The shared-memory ring through which batches reach one trainer process: where everything lies,
//! and the payload's allocator. `shade-shm` has the memory and both ends.
//!
//! One producer (the daemon), one consumer (the client). The spec with its byte diagrams is
//! `RING.md`, in the folder `formats`.

mod batch_layout;
mod descriptor;
mod fields;
mod header;
mod layout;
mod payload_allocator;

pub use batch_layout::{BatchLayout, COLUMN_ALIGN_BYTES, FLAG_PADDING, FLAG_SUBSTITUTED};
pub use descriptor::{Descriptor, Kind, Layout};
pub use fields::{LINE_BYTES, Line};
pub use header::Segment;
pub use layout::{
    CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, DESCRIPTORS, ERROR_TEXT_BYTES_MAX, HEAD, HEADER, HEARTBEAT,
    PayloadSize, RELEASED, RING_VERSION, WAITING, line_of,
};
pub use payload_allocator::PayloadAllocator;
