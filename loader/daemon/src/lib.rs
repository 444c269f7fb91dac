//! `shade-load`: the daemon, one per node. It gives the core (`shade-core`) hands: reads
//! (`shade-reads`), workers that fill batches, and sessions with trainers.
//!
//! `daemon` wires everything. ARCHITECTURE.md draws the picture.

pub mod batches;
pub mod cli;
pub mod control;
pub mod daemon;
pub mod doctor;
pub mod last_words;
pub mod log;
mod names;
pub mod panics;
mod proc;
pub mod trace;
