//! The cache: what is resident, who is evicted for whom. No I/O, no clock, no threads.
//!
//! [`Cache`] stores the values and keeps the byte limit. `eviction` names the policies and gives each its order of
//! eviction, made of `heap` or `queues`; `ranking` is a heap that is not made before it is needed; `worth`, `foresight`,
//! `lfu`, `arc`, `once` (Quiver's) and `regions` (iCACHE's) are what single policies add to these. The ghost table, which
//! remembers samples that are not resident, is [`Importance`](crate::importance::Importance); `arc` has ghosts of its own.
//!
//! The small steps of an admission are inlined by order: left to itself the compiler makes calls of some, and where nothing
//! hits an access under LRU takes a quarter longer.

mod arc;
mod eviction;
mod foresight;
mod heap;
mod lfu;
mod once;
mod queues;
mod ranking;
mod regions;
mod residents;
mod store;
mod worth;

pub use store::{Admission, Cache};
