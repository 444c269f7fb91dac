//! `shade-pack`: turns a torchvision ImageFolder into a dataset (shards and an index), checks it, and gives it back.
//!
//! `create` flows through the modules in this order: [`source`] lists the samples into a [`catalogue`], [`plan`] orders
//! them and cuts shards, [`pack`] writes the shards in parallel, `assemble` puts the index together, [`publish`] makes the
//! whole appear at once. [`changes`] says how a source differs from what was packed, as far as listing shows.
//!
//! [`verify`], [`extract`] and [`diff`] read a dataset in `spans`, past the page cache; [`mod@append`] adds to one
//! by the modules of `create`; [`merge`] makes one of several; [`info`] and [`ls`] look at the index only.

pub mod append;
mod assemble;
pub mod catalogue;
pub mod changes;
mod claim;
pub mod cli;
pub mod config;
pub mod create;
pub mod dataset;
pub mod diff;
pub mod error;
pub mod extract;
mod files;
pub mod info;
pub mod interrupt;
pub mod ls;
pub mod memory;
pub mod merge;
pub mod options;
pub mod pack;
pub mod plan;
pub mod progress;
pub mod publish;
pub mod report;
pub mod source;
mod spans;
mod times;
pub mod verify;
pub mod workers;

pub use error::Error;
