//! `shade-pack`: turns a torchvision ImageFolder into a dataset (shards and an index), checks it, and gives it back.
//!
//! `create` flows through the modules in this order: [`image_folder`] lists the samples, [`plan`] orders them and cuts
//! shards, [`pack`] writes the shards in parallel, [`publish`] makes the whole appear at once.

pub mod cli;
pub mod config;
pub mod create;
pub mod dataset;
pub mod error;
pub mod extract;
pub mod image_folder;
pub mod info;
pub mod interrupt;
pub mod pack;
pub mod plan;
pub mod progress;
pub mod publish;
pub mod report;
pub mod verify;
pub mod workers;

pub use error::Error;
