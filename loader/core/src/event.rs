//! The events that the core takes in.

use shade_job::{JobSpec, Tables};

use crate::aside::AsideResult;
pub use crate::ids::SessionId;
use crate::importance::Importance;
use crate::memory::Memory;
use crate::orders::{Completion, Filled, Ticket};
use crate::plan::Plan;
use crate::tier_orders::TierEvent;
use crate::training::BaseVersion;

/// A rank asks to attach.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The session the listener gave to the connection.
    pub session: SessionId,
    /// Name of the job; every rank of a job gives the same.
    pub job: String,
    /// The rank it speaks for, `0 .. spec.world_size`.
    pub rank: u32,
    /// The job it wants; every rank of a job sends the same.
    pub spec: JobSpec,
    /// What the job says of single samples.
    pub tables: Tables,
    /// It goes on with a successor of this daemon: it is given what that needs.
    pub survives: bool,
}

/// An event.
pub enum Event<M: Memory> {
    /// A rank said hello.
    Attach(Box<Attach>),
    /// The ring of an accepted session is mapped on both sides.
    Ready(SessionId),
    /// A session is gone: closed, killed, or dropped for a violation.
    Detach(SessionId),
    /// A rank wants an epoch from its batch `first_batch` on. Older generations are void.
    StartEpoch {
        /// The rank's session.
        session: SessionId,
        /// Counts the starts of this session; descriptors carry it.
        generation: u32,
        /// The epoch wanted.
        epoch: u32,
        /// The rank's first batch of it.
        first_batch: u32,
        /// The rank took a batch since its start before.
        has_taken: bool,
    },
    /// Losses of one delivered batch, in the batch's order.
    Report {
        /// The rank's session.
        session: SessionId,
        /// The batch's epoch.
        epoch: u32,
        /// The batch's number within the epoch.
        batch: u32,
        /// One loss per delivered row; fewer are a partial report.
        losses: Vec<f32>,
    },
    /// A validation score, higher is better: steers the adaptive part of PADS.
    Validation {
        /// The rank's session. One rank's score counts for each epoch.
        session: SessionId,
        /// The score.
        score: f64,
    },
    /// A rank asks for the state to resume from: before this batch.
    SaveState {
        /// The rank's session.
        session: SessionId,
        /// The batch's epoch.
        epoch: u32,
        /// Its number within the epoch.
        batch: u32,
    },
    /// A rank hands in a saved state.
    LoadState {
        /// The rank's session.
        session: SessionId,
        /// How many strata its plan must have; 0: any number.
        strata: u32,
        /// The bytes of an [`Action::State`](super::Action::State). Untrusted.
        bytes: Vec<u8>,
    },
    /// A rank asks for what other nodes need to know of the lists and scores here, once this epoch
    /// is drawn.
    TellScores {
        /// The rank's session.
        session: SessionId,
        /// The epoch.
        epoch: u32,
    },
    /// A rank hands in what another node has told.
    TakeScores {
        /// The rank's session.
        session: SessionId,
        /// The bytes of [`Scores`](shade_formats::control::Scores). Untrusted.
        bytes: Vec<u8>,
    },
    /// A rank hands in a base that a daemon gave it that died, or a state that it loaded there.
    TakeBase {
        /// The rank's session.
        session: SessionId,
        /// How new it is.
        version: BaseVersion,
        /// The bytes of an [`Action::Base`](super::Action::Base), or of a saved state. Untrusted.
        bytes: Vec<u8>,
    },
    /// A rank hands in what happened to it since that.
    TakeRedo {
        /// The rank's session.
        session: SessionId,
        /// The bytes of [`redo_to_bytes`](shade_formats::control::redo_to_bytes). Untrusted.
        bytes: Vec<u8>,
    },
    /// A rank tells which stratum each seat of its job's plans has.
    Seat {
        /// The rank's session.
        session: SessionId,
        /// The bytes of [`Seats`](shade_job::Seats). Untrusted.
        bytes: Vec<u8>,
    },
    /// An order was carried out aside.
    Aside(AsideResult),
    /// The engine keeps this many reads in flight.
    Depth(u32),
    /// A read ended.
    Read(Completion<M::Room>),
    /// The tier answered.
    Tier(TierEvent<M>),
    /// Workers filled rows.
    Filled(Filled<M::Lent>),
    /// A batch's columns are written: it may be published.
    Finalized(Ticket),
    /// A trainer waits for a descriptor.
    Waits {
        /// The rank's session.
        session: SessionId,
        /// The descriptor's number. Untrusted.
        seq: u64,
    },
    /// A client has released descriptors.
    Released {
        /// The rank's session.
        session: SessionId,
        /// Their numbers, in any order.
        seqs: Vec<u64>,
    },
    /// The plan of the next epoch of a session's job, which then is not drawn, and the one after it
    /// if that is known as early (`draw_ahead`). For replays.
    Plan(SessionId, Box<Plan>, Option<Box<Plan>>),
    /// The importance table of a session's job between two epochs, in place of its own: what it has
    /// learned elsewhere. For simulations.
    Importance(SessionId, Box<Importance>),
    /// The cache has another capacity from now on. A larger one needs more memory first
    /// ([`Core::memory_mut`](super::Core::memory_mut)).
    Resize {
        /// As [`CoreConfig::cache_bytes`](super::CoreConfig::cache_bytes).
        cache_bytes: u64,
        /// As [`CoreConfig::window_bytes`](super::CoreConfig::window_bytes).
        window_bytes: u32,
    },
    /// An observer has come or gone. It is told by [`Action::Trace`](super::Action::Trace).
    Observe {
        /// The observer.
        session: SessionId,
        /// The job that it wants a trace of, which need not have begun; `None`: it has gone.
        job: Option<String>,
    },
}
