//! `shade-pack`: turns a torchvision ImageFolder into a dataset (shards and an index), checks it,
//! and gives it back.
//!
//! `create` flows through the modules in this order: [`source`] lists the samples into a
//! [`catalogue`], [`plan`] orders them and cuts shards, [`pack`] writes the shards in parallel,
//! `assemble` puts the index together, `publish` makes the dataset appear at once. `changes`
//! compares a listed source with what was packed.
//!
//! With an address as OUT, `bucket` takes shards and index to an object store.
//!
//! `verify`, `extract` and `diff` read a dataset in `spans`, past the page cache. `append` adds to
//! a dataset by the modules of `create`, `merge` makes one dataset of several, and `info` and `ls`
//! read the index only.
//!
//! Public are the command line and what the behaviour tests drive by themselves.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod append;
mod args;
mod assemble;
mod bucket;
pub mod catalogue;
mod changes;
mod claim;
mod classes;
pub mod cli;
pub mod config;
mod create;
pub mod dataset;
mod diff;
pub mod error;
mod extract;
mod files;
mod index;
mod info;
pub mod interrupt;
mod leftovers;
mod ls;
pub mod memory;
mod merge;
mod options;
mod owner;
pub mod pack;
mod pair;
pub mod part;
mod parts;
pub mod plan;
mod plan_file;
pub mod progress;
mod publish;
mod report;
#[cfg(test)]
#[path = "../../tests/src/schemas.rs"]
mod schemas;
#[cfg(test)]
mod schemas_of_reports;
pub mod source;
mod source_bucket;
mod spans;
mod subset;
mod times;
mod verify;
pub mod workers;

pub use bucket::ShardsTo;
pub use error::Error;
