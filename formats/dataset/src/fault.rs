//! What can go wrong with a read and with a record.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use shade_formats::ContentId;
use shade_store::{Answer, StoreFault};

/// Bytes that differ from the packed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("checksum mismatch: got CRC32C {got:08x}, expected {expected:08x}")]
pub struct Mismatch {
    /// CRC32C of the bytes.
    pub got: u32,
    /// CRC32C in the index.
    pub expected: u32,
}

impl Mismatch {
    /// Compares two checksums. The only place that knows what it means if none is `expected`, as
    /// in an index of places whose files nobody has read yet: any bytes are right.
    ///
    /// # Errors
    ///
    /// When they differ.
    pub fn compare(got: u32, expected: impl Into<Option<u32>>) -> Result<(), Self> {
        match expected.into() {
            Some(expected) if got != expected => Err(Self { got, expected }),
            Some(_) | None => Ok(()),
        }
    }
}

/// Why bytes of a shard could not be read. The caller adds sample, shard, offset and original path.
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
    /// Something else is in the shard's place.
    #[error("cannot open {}: {what}", path.display())]
    NotAFile {
        /// The shard's file.
        path: PathBuf,
        /// What it is: a sentence.
        what: String,
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
    /// An object store answers something else than bytes.
    #[error("{fault}{}", TriedStore(*tried))]
    Store {
        /// Its answer.
        fault: StoreFault,
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
    /// A file of an index of places is not the one that was indexed.
    #[error(
        "{} is not the file that was indexed: {why}; start again with a new index (shade-pack index)",
        path.display()
    )]
    NotAsIndexed {
        /// The file.
        path: PathBuf,
        /// What is different.
        why: String,
    },
    /// The dataset was replaced while in use.
    #[error(
        "{} went stale and the dataset there is another one now: its content id is {got}, it was {expected}; start \
         again",
        path.display()
    )]
    Changed {
        /// The shard's file.
        path: PathBuf,
        /// Content id of the index that is there now.
        got: ContentId,
        /// Content id of the index that was opened.
        expected: ContentId,
    },
    /// The shard ends before the bytes do.
    #[error("the shard ends early: got {got} bytes, expected {expected}")]
    Truncated {
        /// Wanted bytes that exist.
        got: u64,
        /// Bytes wanted.
        expected: u64,
    },
    /// The read failed, more than once where trying again could help.
    #[error("the read failed after {tries} {}: {errno}", if *tries == 1 { "try" } else { "tries" })]
    Failed {
        /// What the system said last.
        errno: Errno,
        /// How often it was tried.
        tries: u32,
    },
    /// The bytes differ from the packed ones.
    #[error(transparent)]
    Checksum(#[from] Mismatch),
    /// The bytes differ from the packed ones, and the shard's file is perhaps not the packed one,
    /// or certainly not the one that was opened first.
    #[error("{mismatch}; {} {why}", path.display())]
    OtherFile {
        /// What the record has and should have.
        mismatch: Mismatch,
        /// The shard's file.
        path: PathBuf,
        /// Another file was opened than at first: what lies in it is not this dataset.
        is_certain: bool,
        /// The evidence: the rest of a sentence that begins with the path.
        why: String,
    },
    /// The memory does not fit the read: a mistake in this program, or more than this machine can
    /// address.
    #[error("no memory for the read: {why}")]
    Memory {
        /// What memory there is, and what is wanted.
        why: String,
    },
    /// The read was stopped, before it began or while it waited.
    #[error("reading was stopped")]
    Stopped,
}

impl ReadFault {
    /// Whether the store or the whole dataset is the trouble, not the record: an error whatever
    /// `on_error` says, as leaving out such records would leave out the dataset.
    #[must_use]
    pub fn is_not_the_record_s(&self) -> bool {
        matches!(
            self,
            Self::Open { .. }
                | Self::Refused { .. }
                | Self::Replaced { .. }
                | Self::Changed { .. }
                | Self::Store { .. }
                | Self::NotAsIndexed { .. }
                | Self::OtherFile { is_certain: true, .. }
        )
    }

    /// Whether this user may not read the shard.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Open { errno, .. } | Self::Refused { errno, .. } => is_forbidden(*errno),
            Self::Store { fault, .. } => fault.answer == Answer::Forbidden,
            _ => false,
        }
    }

    /// Whether the store has lost the bytes: the file is gone, too short or another one, or its
    /// disk cannot read them. Any other fault means that this user may not read them, or that this
    /// machine cannot now.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Open { errno, .. } | Self::Refused { errno, .. } | Self::Failed { errno, .. } => {
                *errno == Errno::NOENT || LOST.contains(errno)
            }
            Self::Store { fault, .. } => {
                matches!(fault.answer, Answer::NotFound | Answer::Changed | Answer::OutOfRange)
            }
            Self::Missing { .. }
            | Self::NotAFile { .. }
            | Self::NotAsIndexed { .. }
            | Self::Truncated { .. } => true,
            _ => false,
        }
    }

    /// What it is in a few words, for a line that says already that reads wait for the store.
    #[must_use]
    pub fn in_short(&self) -> String {
        match self {
            Self::Open { errno, .. } | Self::Refused { errno, .. } | Self::Failed { errno, .. } => {
                let text = errno.to_string();
                text.split(" (os error").next().unwrap_or_default().to_owned()
            }
            Self::Store { fault, .. } => fault.in_short(),
            other => other.to_string(),
        }
    }

    /// This fault, after tries for this long.
    #[must_use]
    pub fn after(self, tried: Duration) -> Self {
        match self {
            Self::Open { path, errno, .. } => Self::Open { path, errno, tried },
            Self::Refused { path, errno, .. } => Self::Refused { path, errno, tried },
            Self::Store { fault, .. } => Self::Store { fault, tried },
            other => other,
        }
    }
}

/// Errors for bytes that the disk has lost. Direct reads pass on the block layer's errors for bad
/// sectors, where buffered ones give EIO; file systems use the last two for their own damaged
/// structures.
const LOST: [Errno; 6] =
    [Errno::IO, Errno::NODATA, Errno::REMOTEIO, Errno::ILSEQ, Errno::UCLEAN, Errno::BADMSG];

/// Whether the error means that this user may not do it.
pub(crate) fn is_forbidden(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM)
}

/// Text about the time for which something was tried.
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

/// The same for an object store.
struct TriedStore(Duration);

impl fmt::Display for TriedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() { Ok(()) } else { write!(f, ", tried for {:.0} s", self.0.as_secs_f64()) }
    }
}

/// Why a compressed record could not be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZstdFault {
    /// The stored bytes are not one zstd frame of the length that the index states.
    #[error("zstd record of {stored_len} bytes: {text}, expected {raw_len} bytes")]
    Frame {
        /// Bytes stored.
        stored_len: u32,
        /// Bytes that the index says come out.
        raw_len: u32,
        /// In zstd's words, or how many bytes came out.
        text: String,
    },
    /// The record needs a dictionary that the index does not hold, or that zstd refuses.
    #[error(
        "zstd record that needs dictionary {id}: the dataset's index holds no such dictionary, expected one of its \
         own"
    )]
    Dictionary {
        /// The dictionary's id as the record's frame names it; 0 when it names none.
        id: u32,
    },
}

/// Why a record could not be read and decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// Its bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadFault),
    /// Its bytes differ from the packed ones.
    #[error(transparent)]
    Checksum(#[from] Mismatch),
    /// It cannot be decompressed.
    #[error(transparent)]
    Zstd(#[from] ZstdFault),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_has_lost_is_a_loss_and_what_may_not_be_read_is_not() {
        let failed = |errno| ReadFault::Failed { errno, tries: 3 };
        // By number, as the kernel gives them: EIO, EILSEQ, ENODATA, EBADMSG, EUCLEAN, EREMOTEIO;
        // ENOENT.
        assert!(
            [5, 84, 61, 74, 117, 121, 2]
                .map(Errno::from_raw_os_error)
                .map(failed)
                .iter()
                .all(ReadFault::is_loss)
        );
        // EPERM, EACCES, ENOMEM, EMFILE, ESTALE, ETIMEDOUT.
        assert!(
            ![1, 13, 12, 24, 116, 110]
                .map(Errno::from_raw_os_error)
                .map(failed)
                .iter()
                .any(ReadFault::is_loss)
        );
        assert!(ReadFault::Truncated { got: 1, expected: 2 }.is_loss() && !ReadFault::Stopped.is_loss());
        let answered = |answer| {
            let fault = StoreFault { answer, status: None, wait: None, words: String::new() };
            ReadFault::Store { fault, tried: Duration::ZERO }.is_loss()
        };
        assert!([Answer::NotFound, Answer::Changed, Answer::OutOfRange].into_iter().all(answered));
        assert!(![Answer::Forbidden, Answer::SlowDown, Answer::Wrong].into_iter().any(answered));
    }
}
