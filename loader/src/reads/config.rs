//! How records are to be read.

use std::time::Duration;

/// Most reads in flight. Servers grant far fewer at once; more would only wait there.
pub const READS_DEPTH_MAX: u32 = 4096;

/// How records are to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadsConfig {
    /// Who reads.
    pub engine: EngineChoice,
    /// Past the page cache or through it.
    pub io: IoMode,
    /// Reads in flight at most, `1..=READS_DEPTH_MAX`; more may be submitted, they wait for their turn.
    pub depth: u32,
    /// Pretend to read from a store like this one, to try out a slower one than there is.
    pub store: Option<StoreModel>,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring, or threads where that cannot be had.
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads, each with one read at a time; at most 128.
    Threads,
}

/// Past the page cache or through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Direct on NFS and Lustre, and on a local file system that names an alignment which shards have.
    Auto,
    /// Direct, or an error where the file system's alignment rules it out.
    Direct,
    /// Through the page cache: where memory outside the arena should act as a second cache.
    Buffered,
}

/// A simulated store: it answers a read after `delay` plus the time its bytes take on one shared link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreModel {
    /// Latency of every read.
    pub delay: Duration,
    /// Bytes a second that pass the link, one read after the other; `None` is no limit.
    pub bandwidth_bytes_per_s: Option<u64>,
}

impl std::fmt::Display for StoreModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SIMULATED store: +{:?} per read", self.delay)?;
        match self.bandwidth_bytes_per_s {
            Some(rate) => write!(f, ", {rate} bytes/s"),
            None => Ok(()),
        }
    }
}
