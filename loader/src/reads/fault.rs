//! What can go wrong with a read, with the reads' start, and with a shard seen from afar.

use super::config::READS_DEPTH_MAX;
use crate::blocks::{BlocksError, Mismatch};
use rustix::io::Errno;
use shade_formats::ContentId;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why a record could not be had. The caller knows sample, shard, offset and original path, and names them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFault {
    /// The index has no such shard.
    #[error("the index has no such shard")]
    UnknownShard,
    /// The shard, which was there before or may not be opened, cannot be opened.
    #[error("cannot open {}: {errno}{}", path.display(), Tried(*tried))]
    Open {
        /// The shard's file.
        path: PathBuf,
        /// What the system said.
        errno: Errno,
        /// How long it was tried.
        tried: Duration,
    },
    /// The shard has been missing since the start.
    #[error("cannot open {}: {}; it was not there at the start either", path.display(), Errno::NOENT)]
    Missing {
        /// The shard's file.
        path: PathBuf,
    },
    /// The store refuses to read a shard that is open.
    #[error("cannot read {}: {errno}{}", path.display(), Tried(*tried))]
    Refused {
        /// The shard's file.
        path: PathBuf,
        /// What the system said.
        errno: Errno,
        /// How long it was tried.
        tried: Duration,
    },
    /// The shard was replaced while in use.
    #[error("{} was replaced: it has {got} bytes, the index says {expected}", path.display())]
    Replaced {
        /// The shard's file.
        path: PathBuf,
        /// Its size in bytes now.
        got: u64,
        /// Its size in bytes according to the index.
        expected: u64,
    },
    /// The dataset was replaced while in use.
    #[error(
        "{} went stale and the dataset there is another one now: its content id is {got}, it was {expected}; start again",
        path.display()
    )]
    Changed {
        /// The shard's file.
        path: PathBuf,
        /// Content id of the index that is there now.
        got: ContentId,
        /// Content id of the index that is being served.
        expected: ContentId,
    },
    /// The shard ends before the record does.
    #[error("the shard ends inside the record: got {got} bytes, expected {expected}")]
    Truncated {
        /// Bytes of the record that exist.
        got: u32,
        /// Its stored length in bytes.
        expected: u32,
    },
    /// The read failed, more than once where trying again could help.
    #[error("the read failed after {tries} {}: {errno}", if *tries == 1 { "try" } else { "tries" })]
    Failed {
        /// What the system said last.
        errno: Errno,
        /// How often it was tried.
        tries: u32,
    },
    /// The bytes are not those that were packed.
    #[error(transparent)]
    Checksum(#[from] Mismatch),
    /// The same, and the shard's file is perhaps not the one that was packed, or certainly not the
    /// one that was opened first.
    #[error("{mismatch}; {} {why}", path.display())]
    OtherFile {
        /// What the record has and should have.
        mismatch: Mismatch,
        /// The shard's file.
        path: PathBuf,
        /// Another file was opened than at first: what lies in it is not this dataset.
        is_certain: bool,
        /// What tells so: the rest of a sentence that begins with the path.
        why: String,
    },
    /// The blocks do not fit the read: a mistake in this program.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
    /// The reads were stopped before this one began.
    #[error("reading was stopped")]
    Stopped,
}

impl ReadFault {
    /// Whether the store or the dataset as a whole is the trouble, not the record: an error whatever `on_error` says. To
    /// leave such records out would leave out the dataset.
    #[must_use]
    pub fn is_not_the_record_s(&self) -> bool {
        matches!(
            self,
            Self::Open { .. }
                | Self::Refused { .. }
                | Self::Replaced { .. }
                | Self::Changed { .. }
                | Self::OtherFile { is_certain: true, .. }
        )
    }

    /// Whether this user may not read the shard.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Open { errno, .. } | Self::Refused { errno, .. } => {
                matches!(*errno, Errno::ACCESS | Errno::PERM)
            }
            _ => false,
        }
    }

    /// The same fault after it was tried for so long.
    pub(super) fn after(self, tried: Duration) -> Self {
        match self {
            Self::Open { path, errno, .. } => Self::Open { path, errno, tried },
            Self::Refused { path, errno, .. } => Self::Refused { path, errno, tried },
            other => other,
        }
    }
}

/// What is said of the time for which something was tried.
struct Tried(Duration);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return Ok(());
        }
        let seconds = self.0.as_secs_f64();
        write!(f, ", tried for {seconds:.0} s: is its file system mounted and exported as before?")
    }
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
    /// A simulated store was asked for together with an engine that reads for real.
    #[error(
        "only --engine sim (or auto) can read from a simulated store: leave out --store or the other engine"
    )]
    RealStore,
    /// io_uring was asked for and cannot be had.
    #[error("io_uring cannot be used: {source}")]
    Uring {
        /// The step that failed and how.
        source: std::io::Error,
    },
    /// Direct reads were asked for and cannot be had.
    #[error("{} cannot be read with direct I/O: {why}", folder.display())]
    Direct {
        /// The dataset's folder.
        folder: PathBuf,
        /// What stands against it.
        why: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for reading: {source}")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
}

/// A shard that is not as the index says. Its records may fail later, and only then does it matter.
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
}
