//! What can go wrong for a trainer, each with what one can do about it.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use shade_dataset::DatasetError;
use shade_formats::FormatError;
use shade_formats::control::SpecError;
use shade_shm::SegmentError;

/// Why a session could not be opened or cannot go on.
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
        /// What the last try met.
        text: String,
    },
    /// The private daemon did not come up.
    #[error("{binary} could not be started for {socket}: {text}")]
    Launch {
        /// The program.
        binary: PathBuf,
        /// The socket that it was to serve.
        socket: String,
        /// The daemon's own error, or the system's.
        text: String,
    },
    /// Another user's process holds the socket.
    #[error(
        "{socket} belongs to user {got}, not to user {expected}: not sending it anything; name a file of your own with socket="
    )]
    Foreign {
        /// The socket.
        socket: String,
        /// The peer's user id.
        got: u32,
        /// Ours.
        expected: u32,
    },
    /// The daemon does not open the session.
    #[error("the daemon at {socket} refuses: {text}")]
    Refused {
        /// The socket.
        socket: String,
        /// One of the `REFUSE_` codes of `shade_formats::control`.
        code: u16,
        /// The daemon's reason.
        text: String,
    },
    /// The daemon is of another version.
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
        /// Which process it is, and of which program.
        daemon: String,
    },
    /// The daemon ends our greeting without a word, again and again.
    #[error(
        "the daemon at {socket} hung up on {times} greetings without a reason: it may be of another version; {daemon}"
    )]
    HungUp {
        /// The socket.
        socket: String,
        /// How often.
        times: u32,
        /// Which process it is, of which program, and the last lines of its log if this process has started it.
        daemon: String,
    },
    /// There is no room for a state on its way to the daemon.
    #[error("making room for the state: {error}")]
    NoState {
        /// What the system said.
        error: std::io::Error,
    },
    /// The daemon handed over memory that is not safe to map, or this process has no room for it.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The daemon ended or closed the session; every batch it had published was delivered before this.
    #[error("the daemon (process {pid}) is gone: {end}")]
    DaemonGone {
        /// Its process id.
        pid: u32,
        /// How it ended, with the last lines of its log, as far as this process can know.
        end: String,
    },
    /// A record could not be read, or is damaged, and the job or the reader asked to be told.
    #[error("{text}")]
    Record {
        /// Names the record by sample, shard, offset and original path.
        text: String,
    },
    /// The dataset's path leads nowhere, or its index cannot be opened here or is another one by now.
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
        /// Where in the shard its fields begin.
        offset: u64,
        /// What the system says, or what is wrong with the bytes.
        text: String,
    },
    /// The daemon reports a failure: of the request just made, or of the session.
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
        /// What was asked.
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
        /// Who opened the session.
        owner: u32,
        /// Who uses it.
        here: u32,
    },
    /// No epoch was started.
    #[error("no epoch was started: call start_epoch first")]
    NotStarted,
    /// The caller passes what no message can hold.
    #[error("{what}: got {got}, expected {expected}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// Its value.
        got: String,
        /// What it may be.
        expected: String,
    },
    /// The daemon breaks the format.
    #[error("the daemon breaks the protocol: {0}")]
    Format(#[from] FormatError),
    /// The system refuses something that should work.
    #[error("{what}: {source}")]
    System {
        /// What we were doing.
        what: &'static str,
        /// The error.
        source: Errno,
    },
}

impl ClientError {
    /// For `map_err`: names what the system refused.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::System { what, source }
    }
}

/// The error of an argument that no message can hold.
pub(crate) fn argument(what: &'static str, got: impl Display, expected: impl Display) -> ClientError {
    ClientError::Argument { what, got: got.to_string(), expected: expected.to_string() }
}
