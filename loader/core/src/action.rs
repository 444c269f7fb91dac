//! What the core wants done.

use shade_formats::ring::{Descriptor, PayloadSize};
use shade_formats::trace::Line;

use crate::event::SessionId;
use crate::memory::Memory;
use crate::orders::ReadOp;
use crate::orders::{FillOrder, SealOrder};

/// What a rank is told when it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Batches each rank gets per epoch.
    pub batches_per_epoch: u32,
    /// What its ring has room for.
    pub payload: PayloadSize,
}

/// Why a rank is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One of [`shade_formats::control`]'s `REFUSE_` codes.
    pub code: u16,
    /// Why, and what to do, for people.
    pub text: String,
}

/// One thing to do. Order matters: carry actions out in the order given.
pub enum Action<M: Memory> {
    /// Answer a hello with yes: make the ring, then send [`super::Event::Ready`].
    Accept(SessionId, Accepted),
    /// Answer a hello with no.
    Refuse(SessionId, Refusal),
    /// Read a record into its blocks.
    Read(ReadOp<M::Room>),
    /// Read records of one shard that lie close to each other, in the order of their offsets.
    ReadTogether(Vec<ReadOp<M::Room>>),
    /// Fill rows of a batch.
    Fill(FillOrder<M::Lent>),
    /// Write a batch's columns; it is complete then.
    Seal(Box<SealOrder>),
    /// Publish a descriptor in the session's ring.
    Publish(SessionId, Box<Descriptor>),
    /// Write `text` at the descriptor's payload offset, then publish it.
    PublishError(SessionId, Box<Descriptor>, String),
    /// Hand the saved state to the session.
    State(SessionId, Vec<u8>),
    /// Tell the session that its state is loaded.
    StateLoaded(SessionId),
    /// Tell the session that what it asked for failed.
    Fail(SessionId, String),
    /// Tell the session unasked that the epoch it wants does not go on.
    Interrupt(SessionId, String),
    /// Drop the session: it broke the protocol.
    Close(SessionId, String),
    /// Hand a line of the trace to the observer.
    Trace(Box<Line>),
    /// Say once what a user should know.
    Warn(String),
    /// Something to tell the user about a record: there may be as many as the dataset has.
    BadRecord(String),
}
