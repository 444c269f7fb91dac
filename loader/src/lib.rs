//! `shade-load`: the daemon, one per node. Reads records from shards into an importance-ruled cache and publishes
//! batches in shared memory.
//!
//! The modules in the order data flows; `daemon` alone wires them. ARCHITECTURE.md draws the picture.

pub mod batches;
pub mod blocks;
pub mod cache;
pub mod cli;
pub mod control;
pub mod core;
pub mod daemon;
pub mod doctor;
pub mod importance;
pub mod last_words;
pub mod log;
mod memfd;
mod names;
pub mod panics;
pub mod plan;
mod proc;
pub mod reads;
pub mod ring;
pub mod simulate;
pub mod trace;
