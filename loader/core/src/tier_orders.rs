//! What the core orders from the tier, memory of other machines, and what it answers.

use std::time::Duration;

use shade_formats::SampleId;

use crate::memory::Memory;
use crate::orders::ReadOp;

/// An order to the tier. Those of one sample are carried out in the order given.
pub enum TierOrder<M: Memory> {
    /// Fetch these records into their blocks, in plan order. Each is answered by
    /// [`TierEvent::Got`]. Those of one server travel together.
    Get(Vec<ReadOp<M::Room>>),
    /// Store a record; answered by [`TierEvent::Put`].
    Put {
        /// The sample.
        sample: SampleId,
        /// Stored length in bytes.
        len: u32,
        /// Its bytes, to be given back.
        record: M::Lent,
    },
    /// Remove these samples. Not answered.
    Drop(Vec<SampleId>),
}

/// Why the tier did not bring a record, which is then read from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierMiss {
    /// The server does not have it, or no more: it was restarted, flushed, or evicts by itself.
    Absent,
    /// Its length or checksum is wrong.
    Wrong,
    /// The server does not answer, or another server has the key by now.
    Down,
}

/// What became of a record that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierPut {
    /// It is stored.
    Stored,
    /// The server has no room.
    Full,
    /// The server does not answer or refuses.
    Failed,
}

/// An event of the tier.
pub enum TierEvent<M: Memory> {
    /// Servers were reached. Until the first of these events the tier is not used.
    Room {
        /// Bytes that this daemon may fill, with the servers' overhead ([`TIER_OVERHEAD_BYTES`]).
        bytes: u64,
        /// Time that one record takes from the tier, if it could be measured.
        get: Option<Duration>,
    },
    /// Samples that the servers had before this daemon began, of this node or another. They may be
    /// told again.
    Held(Vec<SampleId>),
    /// A record came, or not.
    Got {
        /// The read as ordered, with its blocks.
        op: ReadOp<M::Room>,
        /// Whether the blocks hold the record's bytes, whose checksum was compared.
        outcome: Result<(), TierMiss>,
        /// Time from the request to the answer.
        latency: Duration,
    },
    /// A record was stored, or not.
    Put {
        /// The sample.
        sample: SampleId,
        /// The record as ordered.
        record: M::Lent,
        /// What became of it.
        outcome: TierPut,
    },
}

/// Bytes that a server takes for a record beside its bytes: key, entry, and what its allocator
/// rounds up to, on average.
pub const TIER_OVERHEAD_BYTES: u64 = 256;
