//! `shade-client`: one rank's side of a session with `shade-load`: connect, take batches, release them, report losses.
//!
//! Pure Rust, no Python: the bindings are thin layers over this. A session is shared by threads as it is; a batch may
//! outlive it. Nothing here survives a `fork`, and says so. Besides, extra fields and records can be read from a dataset
//! itself, past any daemon.

mod attach;
mod batch;
mod connect;
mod dataset;
mod dialogue;
mod error;
mod fields;
mod fork;
mod held;
mod hello;
mod launch;
mod life;
mod records;
mod session;
mod state;
mod wire;

pub use batch::{Batch, Column};
pub use connect::Options;
pub use error::ClientError;
pub use fields::{Field, FieldsReader};
pub use held::InRing;
pub use launch::Launch;
pub use records::RecordReader;
pub use session::{Next, Session};
pub use shade_formats::control::{
    Framing, ImageSpec, JobSpec, OnError, Order, Output, PlanSpec, Sampler, Settings, Tail,
};
pub use shade_formats::limits::BATCH_SAMPLES_MAX;
pub use shade_formats::ring::{Descriptor, FLAG_PADDING, FLAG_SUBSTITUTED, Layout};
