//! `shade-client`: one rank's side of a session with `shade-load`: connects, takes batches,
//! releases them, reports losses.
//!
//! Pure Rust, no Python: the bindings are thin layers over this. Threads may share a session, and a
//! batch may outlive it. After a `fork` the child gets an error. Extra fields and records are read
//! from the dataset itself, without a daemon.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attach;
mod batch;
mod connect;
mod dataset;
mod deaths;
mod dialogue;
pub mod dlpack;
mod error;
mod fields;
mod fork;
mod held;
mod hello;
mod launch;
mod life;
mod link;
mod memory_kills;
mod open;
mod part;
mod records;
mod redo;
mod session;
mod state;
mod succession;
mod wire;

pub use batch::{Batch, BatchId, Column};
pub use connect::Options;
pub use error::ClientError;
pub use fields::{Field, FieldsReader};
pub use held::InRing;
pub use launch::Launch;
pub use link::Next;
pub use open::{content, folder, held, image_size};
pub use part::{BatchPart, DataType, Located, PartError};
pub use records::RecordReader;
pub use session::Session;
pub use shade_dataset::Content;
pub use shade_formats::limits::{BATCH_SAMPLES_MAX, VIEWS_MAX};
pub use shade_formats::ring::{Descriptor, FLAG_PADDING, FLAG_SUBSTITUTED, Layout};
pub use shade_formats::{MIRRORED, UPSIDE_DOWN, ViewShape};
pub use shade_job::{
    Decode, FieldKind, Fields, JobSpec, NumberType, OnError, Order, PlanSpec, Sampler, Settings, SpecError,
    Subset, Tables, Tail, WeightTable,
};
pub use state::Resumed;
