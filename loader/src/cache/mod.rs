//! The cache: what is resident, who is evicted for whom. No I/O, no clock, no threads.
//!
//! [`Cache`] stores the values and keeps the byte limit; `app` and `lru` each keep one policy's order of eviction. The
//! ghost table, which remembers samples that are not resident, is [`Importance`](crate::importance::Importance).

mod app;
mod foresight;
mod lru;
mod residents;
mod store;

pub use store::{Admission, Cache, Policy};
