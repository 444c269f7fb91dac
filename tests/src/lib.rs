//! Fixtures of the whole-system tests, which are `tests/*.rs`, one file per behaviour.
//!
//! Everything is real: image files, `shade-pack`, `shade-load`, sockets, shared memory, signals. A
//! fixture that fails panics, as a test does.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "fixtures fail by panicking, as tests do")]

mod bucket;
mod bucket_world;
mod cache_servers;
mod cloud;
mod columns;
mod daemon;
mod faulty_store;
mod fields;
mod images;
mod job_process;
mod jobs;
mod key_services;
mod left_out;
mod packed;
mod peer;
mod product;
mod programs;
mod rank_process;
mod recorder;
mod sources;
mod tars;
mod tracer;
mod trainer;
mod trainer_process;

pub use bucket::Bucket;
pub use bucket_world::{BucketWorld, files, names, text};
pub use cache_servers::{CacheServers, CuttingProxy, PATIENCE, cache_server_programs};
pub use cloud::{Cloud, KEY_ID, SECRET};
pub use daemon::Daemon;
pub use faulty_store::FaultyStore;
pub use fields::add_fields;
pub use images::{Source, class_names, jpeg, noise, png};
pub use job_process::JobProcess;
pub use jobs::{JOBS, assert_undisturbed, checksums, job_named, report, train, undisturbed};
pub use key_services::{IDENTITY, KeyServices, SESSION_TOKEN};
pub use left_out::left_out;
pub use packed::Packed;
pub use peer::Peer;
pub use product::Product;
pub use programs::{eventually, is_gone, processes_of, program, settles};
pub use rank_process::{Heard, RankProcess, job_of_nodes};
pub use recorder::{Recorder, recorded_lines};
pub use sources::{code, production, root, sources};
pub use tars::webdataset;
pub use tracer::{Action, Actions, Traced, traced};
pub use trainer::{
    Taken, all_ranks, all_ranks_of, attach, attach_by, attach_to, attach_when_free, copy, next, sorted_ids,
    spec, spec_by_epochs, stats, take_epoch, take_rest, take_with_losses, try_attach,
};
pub use trainer_process::TrainerProcess;
