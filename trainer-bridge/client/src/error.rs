//! Errors of a trainer's session, each with what to do about it.

use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use shade_dataset::DatasetError;
use shade_formats::FormatError;
use shade_job::SpecError;
use shade_shm::SegmentError;

/// Why a session, or a reader of the dataset, could not be opened or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The options are impossible.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// Nothing answered in time.
    #[error("no daemon serves {socket} after {waited:.1?}: {text}")]
    NoDaemon {
        /// The socket.
        socket: String,
        /// How long we tried.
        waited: Duration,
        /// Result of the last attempt.
        text: String,
    },
    /// The private daemon did not come up.
    #[error("{binary} could not be started for {socket}: {text}")]
    Launch {
        /// The program.
        binary: PathBuf,
        /// The socket that it was started for.
        socket: String,
        /// The daemon's own error, or the system's.
        text: String,
        /// It has told no error: it may have been killed.
        is_silent: bool,
    },
    /// Another user's process holds the socket.
    #[error(
        "{socket} belongs to user {got}, not to user {expected}: nothing was sent; choose a path of your own with \
         Daemon(socket=...)"
    )]
    Foreign {
        /// The socket.
        socket: String,
        /// The peer's user id.
        got: u32,
        /// Ours.
        expected: u32,
    },
    /// The daemon refused to open the session.
    #[error("the daemon at {socket} refuses: {text}")]
    Refused {
        /// The socket.
        socket: String,
        /// One of the `REFUSE_` codes of `shade_formats::control`.
        code: u16,
        /// The daemon's reason.
        text: String,
    },
    /// The daemon has another protocol version.
    #[error(
        "the daemon at {socket} speaks protocol {got}, this client {expected}: use the same version of both; {daemon}"
    )]
    Version {
        /// The socket.
        socket: String,
        /// The daemon's protocol.
        got: u32,
        /// Ours.
        expected: u32,
        /// Its process and program.
        daemon: String,
    },
    /// The daemon hung up on every greeting without a reason.
    #[error(
        "the daemon at {socket} hung up on {times} greetings without a reason: it may be of another version; {daemon}"
    )]
    HungUp {
        /// The socket.
        socket: String,
        /// Number of greetings.
        times: u32,
        /// Its process and program, and the last lines of its log if this process has started it.
        daemon: String,
    },
    /// There is no memory for passing a state to the daemon.
    #[error("making room for the state: {error}")]
    NoState {
        /// What the system said.
        error: std::io::Error,
    },
    /// There is no memory for passing the job's tables to the daemon.
    #[error("making room for weights and indices: {error}")]
    NoTables {
        /// What the system said.
        error: std::io::Error,
    },
    /// The daemon sent memory that is not safe to map, or this process has no room for it.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The daemon ended or closed the session, and was not replaced. Every published batch was
    /// delivered before.
    #[error("the daemon (process {pid}) is gone: {end}")]
    DaemonGone {
        /// Its process id.
        pid: u32,
        /// How it ended, with the last lines of its log, as far as this process can know.
        end: String,
    },
    /// A record could not be read or is damaged, and the job does not tolerate that.
    #[error("{text}")]
    Record {
        /// Names the record by sample, shard, offset and original path.
        text: String,
    },
    /// The dataset does not exist, its index cannot be opened, or it has been replaced.
    #[error(transparent)]
    Index(#[from] DatasetError),
    /// A sample's extra fields could not be read or are damaged.
    #[error("fields of sample {sample} ({path}) in shard {shard} at byte {offset}: {text}")]
    Fields {
        /// The sample.
        sample: u32,
        /// Its original path.
        path: String,
        /// The shard's file name.
        shard: String,
        /// Offset of its fields in the shard.
        offset: u64,
        /// The system's error, or the damage.
        text: String,
    },
    /// The daemon reports a failure of the last request or of the session.
    #[error("the daemon reports: {text}")]
    Failed {
        /// Its reason.
        text: String,
    },
    /// The daemon lives but does not answer.
    #[error("the daemon (process {pid}) did not answer {request} within {waited:.1?}")]
    Timeout {
        /// Its process id.
        pid: u32,
        /// The unanswered request.
        request: &'static str,
        /// How long we waited.
        waited: Duration,
    },
    /// The session was inherited through `fork`.
    #[error(
        "this session belongs to process {owner} and was inherited by process {here} through fork: create the Loader \
         after the fork, in the process that uses it"
    )]
    Forked {
        /// The process that opened the session.
        owner: u32,
        /// The process that uses it.
        here: u32,
    },
    /// No epoch was started.
    #[error("no epoch was started: call start_epoch first")]
    NotStarted,
    /// Another thread has started an epoch since this one began to wait.
    #[error("another epoch was started meanwhile")]
    AnotherStart,
    /// The caller passed an impossible value.
    #[error("{what}: got {got}, expected {expected}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// Its value.
        got: String,
        /// The possible values.
        expected: String,
    },
    /// The daemon breaks the protocol.
    #[error("the daemon breaks the protocol: {0}")]
    Format(#[from] FormatError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The error.
        source: Errno,
    },
}

impl ClientError {
    /// "what failed: why: why that".
    #[must_use]
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(inner) = cause {
            let inner_text = inner.to_string();
            if !text.contains(&inner_text) {
                text.push_str(": ");
                text.push_str(&inner_text);
            }
            cause = inner.source();
        }
        text
    }

    /// Whether an address has no packed dataset, although its store answers.
    #[must_use]
    pub fn is_not_packed(&self) -> bool {
        matches!(self, Self::Index(DatasetError::NotPackedAt { .. }))
    }

    /// For `map_err`: names the failed operation.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::System { what, source }
    }
}

/// The error of an impossible argument.
pub(crate) fn argument(what: &'static str, got: impl Display, expected: impl Display) -> ClientError {
    ClientError::Argument { what, got: got.to_string(), expected: expected.to_string() }
}

/// The error of a sample id that the dataset does not have.
pub(crate) fn unknown_sample(sample: i64, samples: u32) -> ClientError {
    argument("sample", sample, format_args!("an id below {samples}, the samples of the dataset"))
}
