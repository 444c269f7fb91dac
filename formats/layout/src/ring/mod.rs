//! The layout of the shared-memory ring through which batches reach one trainer process, and its
//! payload's allocator. `shade-shm` has the memory and both ends.
//!
//! One producer (the daemon), one consumer (the client). `RING.md` has the byte diagrams.

mod batch_layout;
mod descriptor;
mod field_columns;
mod fields;
mod header;
mod layout;
mod payload_allocator;
mod view_table;
mod working;

pub use batch_layout::{BatchLayout, COLUMN_ALIGN_BYTES, FLAG_PADDING, FLAG_SUBSTITUTED, Layout};
pub use descriptor::{Descriptor, Kind};
pub use field_columns::{FieldColumn, FieldColumns, FieldWidth, NO_FIELD};
pub use fields::{LINE_BYTES, Line};
pub use header::Segment;
pub use layout::{
    CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, DESCRIPTORS, ERROR_TEXT_BYTES_MAX, HEAD, HEADER, HEARTBEAT,
    PayloadSize, RELEASED, RESIZED, RING_VERSION, WAITING, WORKING, WORKING_MAX, line_of,
};
pub use payload_allocator::PayloadAllocator;
pub use working::{Working, ended_by};
