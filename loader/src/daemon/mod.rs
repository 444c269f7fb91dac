//! Wiring only: builds the stages in the order data flows through them, owns their threads, and stops them.

mod floods;
mod inherited;
mod memory;
mod observer;
mod serve;
mod sessions;
mod settings;
mod start;
mod stats;

pub use inherited::Inherited;
pub use start::{DaemonError, ServeConfig, serve};
