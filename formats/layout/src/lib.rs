//! `shade-formats`: every byte layout that two processes share. No I/O, threads, system calls or
//! clock.
//!
//! [`printable`] makes text of strangers safe to print.
//!
//! On disk: [`shard`] (a plain ustar tar) and [`index`] (`dataset.shade`). In shared memory:
//! [`ring`]. On the socket: [`control`]. In the file of a recorded training: [`trace`]. The specs
//! lie beside the code: `SHARD.md`, `INDEX.md`, `RING.md`, `CONTROL.md`, `TRACE.md`.

pub mod checksum;
pub mod control;
pub mod ids;
mod image;
pub mod index;
pub mod limits;
pub mod printable;
pub mod ring;
pub mod shard;
pub mod trace;

pub use ids::{ContentId, SampleId, ShardId};
pub use image::{Draw, DrawnRow, EpochDraws, Geometry, MIRRORED, Size, UPSIDE_DOWN, ViewShape};

/// A structure read from disk, shared memory or a socket breaks its format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure} at byte {offset}: got {got}, expected {expected}")]
pub struct FormatError {
    /// The structure, such as "index header" or "tar header".
    pub structure: &'static str,
    /// Byte offset of the structure or field in its file, segment or message.
    pub offset: u64,
    /// What stands there.
    pub got: String,
    /// What the format demands there.
    pub expected: String,
}

impl FormatError {
    /// Names the broken `structure` at `offset`.
    pub fn new(
        structure: &'static str,
        offset: u64,
        got: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> Self {
        Self { structure, offset, got: got.to_string(), expected: expected.to_string() }
    }
}
