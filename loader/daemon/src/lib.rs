//! `shade-load`: the daemon, one per node. It carries out what the core (`shade-core`) decides:
//! reads (`shade-reads`), workers that fill batches, and sessions with trainers.
//!
//! `daemon` wires everything. ARCHITECTURE.md has the overview.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod ask;
pub mod batches;
pub mod cli;
mod control;
pub mod daemon;
pub mod detach;
pub mod doctor;
pub mod export;
pub mod log;
mod monitor;
mod panics;
mod proc;
pub mod report;
pub mod running;
#[cfg(test)]
#[path = "../../../tests/src/schemas.rs"]
mod schemas;
#[cfg(test)]
mod schemas_of_reports;
mod signals;
mod status;
pub mod terminal;
pub mod top;
pub mod trace;
