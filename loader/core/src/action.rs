//! The actions that the core orders.

use std::sync::Arc;

use shade_formats::ring::{Descriptor, PayloadSize};
use shade_formats::trace::Line;

use crate::aside::AsideOrder;
use crate::event::SessionId;
use crate::memory::Memory;
use crate::orders::{FillOrder, FinalizeOrder, ReadOp};
use crate::tier_orders::TierOrder;

/// The answer to a rank that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Batches each rank gets per epoch.
    pub batches_per_epoch: u32,
    /// Size of its ring.
    pub payload: PayloadSize,
}

/// Where a loaded state goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The epoch.
    pub epoch: u32,
    /// Its first batch that is not delivered.
    pub first_batch: u32,
    /// Batches each rank gets in it, with those before.
    pub batches: u32,
}

/// The answer to a rank that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One of [`shade_formats::control`]'s `REFUSE_` codes.
    pub code: u16,
    /// The reason, and what to do, for people.
    pub text: String,
}

/// An action. Order matters: carry actions out in the order given.
pub enum Action<M: Memory> {
    /// Answer a hello with yes: make the ring, then send [`super::Event::Ready`].
    Accept(SessionId, Accepted),
    /// Answer a hello with no.
    Refuse(SessionId, Refusal),
    /// Carry an order out on another thread, then send the result as [`super::Event::Aside`].
    Aside(AsideOrder),
    /// Read a record into its blocks.
    Read(ReadOp<M::Room>),
    /// Read records of one shard that lie close to each other, in the order of their offsets.
    ReadTogether(Vec<ReadOp<M::Room>>),
    /// Pass an order to the tier.
    Tier(TierOrder<M>),
    /// Fill rows of a batch.
    Fill(FillOrder<M::Lent>),
    /// Write a batch's columns; it is complete then.
    Finalize(Box<FinalizeOrder>),
    /// Publish a descriptor in the session's ring.
    Publish(SessionId, Box<Descriptor>),
    /// Write `text` at the descriptor's payload offset, then publish it.
    PublishError(SessionId, Box<Descriptor>, String),
    /// Hand the saved state, or the scores that it asked for, to the session.
    State(SessionId, Vec<u8>),
    /// Give the base of an epoch to sessions, before anything of that epoch.
    Base(Vec<SessionId>, u32, Arc<Vec<u8>>),
    /// Tell the session that its state is loaded.
    StateLoaded(SessionId, Resumed),
    /// Tell the session that what it handed in is taken.
    Taken(SessionId),
    /// Tell the session that its request failed.
    Fail(SessionId, String),
    /// Tell the session, unasked, that its epoch does not go on.
    Interrupt(SessionId, String),
    /// Drop the session, which broke the protocol.
    Close(SessionId, String),
    /// Hand a line of the trace to an observer.
    Trace(SessionId, Box<Line>),
    /// Inform the user of an epoch's end.
    Inform(String),
    /// Warn the user, once.
    Warn(String),
    /// Tell the user about a bad record. There may be one for each record of the dataset.
    BadRecord(String),
}
