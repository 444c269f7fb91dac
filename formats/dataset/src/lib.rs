//! `shade-dataset`: a packed dataset's files, read one way by packer, daemon and trainers.
//!
//! `open` opens an index and tells whether it has changed. `files` opens shards, within
//! `descriptors`, and opens them again when they go stale; `slots` has what is known of each, and
//! `identity` says whether a file is still the same one. `direct` decides between direct and
//! buffered reads, by the file system of the mount, and has aligned memory for them. An `attempt`
//! is one read on its way: `rules` judges each of its results, and `outage` tells of trouble that
//! it waits for. `blocking` makes a read's system calls in the calling thread; the daemon's engines
//! make their own. `decompress` checks records and decompresses them. `fault` says what can go
//! wrong. `regular` is how any crate opens a file by its name. `patience` asks a store again, for
//! those who wait for each answer. `signals` is how any program is asked to stop.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attempt;
mod blocking;
mod bucket;
mod decompress;
mod descriptors;
mod direct;
mod error;
mod fault;
mod files;
mod identity;
mod object;
mod open;
mod origin;
mod outage;
mod patience;
mod refusal;
pub mod regular;
mod rules;
mod signals;
mod slots;

pub use attempt::{Attempt, Next};
pub use decompress::{Decompressor, Dictionaries};
pub use descriptors::{connections_max, raise_open_files_limit};
pub use direct::{Choice, NotDirect, ReadMemory, choose};
pub use error::DatasetError;
pub use fault::{Mismatch, ReadFault, RecordFault, ZstdFault};
pub use files::Files;
pub use identity::{changed_ns, version_of};
pub use object::{Object, Room};
pub use open::{Content, Dataset, shard_path, shards_address, shards_folder};
pub use origin::{Origin, cache_folder};
pub use outage::StoreTrouble;
pub use patience::{IsStopped, Patience, patiently};
pub use refusal::Refusal;
pub use rules::PATIENCE;
pub use shade_store::{
    Address, Answer, Found, Looked, Mark, Objects, StoreFault, Upload, UploadFault, Uploads, Url, Version,
    When, Written,
};
pub use signals::on_stop_signal;
pub use slots::{OpenShard, Source};
