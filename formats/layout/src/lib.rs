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
mod dtype;
pub mod error;
pub mod ids;
mod image;
pub mod index;
pub mod limits;
pub mod printable;
pub mod ring;
pub mod shard;
pub mod trace;

pub use dtype::Dtype;
pub use error::FormatError;
pub use ids::{ContentId, SampleId, ShardId};
pub use image::{Draw, DrawnRow, EpochDraws, Geometry, MIRRORED, Size, UPSIDE_DOWN, ViewShape};
