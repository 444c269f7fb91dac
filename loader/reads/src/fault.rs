//! Errors at the start of reads, and warnings about shards.

use std::path::PathBuf;

use rustix::io::Errno;
use shade_core::{Fault, FaultKind};
use shade_dataset::{NotDirect, StoreFault};

use crate::ReadFault;
use crate::blocks::BlocksError;
use shade_formats::limits::READS_DEPTH_MAX;

impl From<BlocksError> for ReadFault {
    fn from(error: BlocksError) -> Self {
        Self::Memory { why: error.to_string() }
    }
}

/// A read's fault as the core sees it.
#[must_use]
pub fn core_fault(fault: &ReadFault) -> Fault {
    let kind = if fault.is_not_the_record_s() { FaultKind::Store } else { FaultKind::Record };
    Fault { kind, text: fault.to_string() }
}

/// Why reading cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ReadsError {
    /// The depth is out of range.
    #[error("depth: got {got}, expected 1 to {READS_DEPTH_MAX}")]
    Depth {
        /// The depth asked for.
        got: u32,
    },
    /// A simulated store was given together with an engine for real reads.
    #[error(
        "only --engine sim (or auto) can read from a simulated store: leave out --store or the other engine"
    )]
    RealStore,
    /// An engine, a way of reading or a simulated store was demanded of an object store.
    #[error(
        "an object store is read by requests alone: leave out --engine, --io and --store for this dataset"
    )]
    ObjectStore,
    /// The settings in the environment make no client of the object store.
    #[error("{fault}")]
    Store {
        /// What is wrong with them.
        fault: StoreFault,
    },
    /// io_uring was demanded and cannot be used.
    #[error("io_uring cannot be used: {source}")]
    Uring {
        /// The step that failed and how.
        source: std::io::Error,
    },
    /// Direct reads were demanded and cannot be used.
    #[error(transparent)]
    Direct(#[from] NotDirect),
    /// A thread could not be started.
    #[error("cannot start a thread for reading: {source}")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
}

/// A shard that is not as the index says. Its records may fail later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardWarning {
    /// It cannot be found or looked at.
    #[error("shard {}: {errno}", path.display())]
    Missing {
        /// The shard's file.
        path: PathBuf,
        /// What the system said.
        errno: Errno,
    },
    /// It has another size.
    #[error("shard {}: got {got} bytes, expected {expected}", path.display())]
    Size {
        /// The shard's file.
        path: PathBuf,
        /// Its size in bytes.
        got: u64,
        /// Its size in bytes according to the index.
        expected: u64,
    },
    /// It is a tar that was written to since it was indexed.
    #[error("shard {}: it was written to since it was indexed", path.display())]
    Changed {
        /// The tar.
        path: PathBuf,
    },
}
