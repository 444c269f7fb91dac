//! What session threads tell the daemon.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::Sender;
use shade_core::{Accepted, Attach, Refusal, SessionId};
use shade_formats::control::Request;
use shade_job::Settings;
use shade_shm::RingEnd;

/// What a rank expects of the daemon.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Samples in the dataset, as its index says now.
    pub(crate) samples: u32,
    /// Content id of the dataset, as its index says now.
    pub(crate) content_id: u128,
    /// The daemon serves this content, or its beginning.
    pub(crate) is_served: bool,
    /// How its trainer would have started the daemon.
    pub(crate) settings: Settings,
    /// It takes the next free name if its job's is taken.
    pub(crate) or_free_name: bool,
}

/// What a rank gets, if the core accepts it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// Name of its job.
    pub(crate) job: String,
    /// The daemon's settings, a JSON object.
    pub(crate) settings: String,
}

/// The answer to a rank that is admitted.
#[derive(Clone, Debug)]
pub(crate) struct Welcomed {
    pub(crate) accepted: Accepted,
    pub(crate) terms: Terms,
}

/// A cache that was resized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resized {
    /// Its capacity before.
    pub(crate) before_bytes: u64,
    /// Its capacity now.
    pub(crate) cache_bytes: u64,
}

/// News of one session.
pub(crate) enum Message {
    /// A rank asks to be served; the verdict goes back to its thread.
    Hello {
        attach: Box<Attach>,
        asked: Asked,
        /// Its socket, for replies and to shut down.
        socket: Arc<OwnedFd>,
        /// Yes with the ring's size, or no with the reason.
        verdict: Sender<Result<Welcomed, Refusal>>,
    },
    /// A recorder asks for a trace of a job; the verdict goes back to its thread.
    Observe {
        session: SessionId,
        job: String,
        socket: Arc<OwnedFd>,
        /// The write end of a pipe.
        pipe: OwnedFd,
        /// Yes, or no with the reason.
        verdict: Sender<Result<(), Refusal>>,
    },
    /// Somebody asks for the daemon's status, as JSON.
    Status(Sender<String>),
    /// Somebody asks how much of which strata is cached.
    Held {
        /// Number of strata; 0: that of the last job that trains.
        strata: u32,
        /// Their number and the bytes, or why there are no such strata.
        answer: Sender<Result<(u32, Vec<u8>), String>>,
    },
    /// The user wants no new job to be taken. Answered when none is.
    Drain(Sender<()>),
    /// The user, who was told so, ends the daemon: now, or with the last rank of a drained one.
    Stop { drain: bool },
    /// The user gives the cache another size.
    Resize {
        /// As `--cache` takes it.
        cache: String,
        /// Done, or why not.
        answer: Sender<Result<Resized, String>>,
    },
    /// The ring exists and the client has its file descriptors.
    Mapped { session: SessionId, ring: Box<RingEnd> },
    /// A request other than the hello.
    Request {
        session: SessionId,
        request: Box<Request>,
        /// The bytes that came with it, of a request that has some.
        state: Vec<u8>,
    },
    /// The client rang: it has released descriptors, or waits for one.
    Rung(SessionId),
    /// The connection has ended.
    Gone(SessionId),
}
