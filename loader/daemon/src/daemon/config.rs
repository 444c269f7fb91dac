//! The validated configuration of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use shade_core::{Capacity, PackageBytes};
use shade_images::JpegDecoder;
use shade_job::Policy;
use shade_reads::ReadsConfig;
use shade_tier::Servers;

/// The tier of `serve`.
#[derive(Clone, Debug)]
pub struct TierSettings {
    /// Its servers.
    pub servers: Servers,
    /// Bytes that this daemon may fill; `None` for nine tenths of what the servers have.
    pub bytes: Option<u64>,
}

/// A validated configuration of `serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Path of the dataset.
    pub dataset: PathBuf,
    /// Memory of the cache.
    pub cache: Capacity,
    /// Which records stay in the cache.
    pub policy: Policy,
    /// How far `Policy::Lookahead` sees into the plan, in epochs.
    pub lookahead: f64,
    /// Bytes of a shard that a miss brings along.
    pub package_bytes: PackageBytes,
    /// Memory of other machines behind the cache.
    pub tier: Option<TierSettings>,
    /// How records are read.
    pub reads: ReadsConfig,
    /// Whether late records are requested a second time.
    pub hedge: bool,
    /// Threads that fill batches; `None` for one per core.
    pub workers: Option<usize>,
    /// Limit of the decoded rows that jobs of a group share.
    pub decoded_bytes: u64,
    /// What decodes JPEGs.
    pub jpeg: JpegDecoder,
    /// Socket file; `None` for the abstract name of the dataset.
    pub socket: Option<PathBuf>,
    /// Time after which the daemon ends when the last rank has left; `None` runs until stopped.
    pub linger: Option<Duration>,
    /// The process that wanted this daemon, whose job may resize the cache.
    pub started_by: Option<i32>,
}
