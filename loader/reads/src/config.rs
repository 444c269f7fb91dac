//! The configuration of reads.

use std::time::Duration;

use shade_job::{EngineChoice, IoMode, StoreModel};

use crate::depth::DEPTH_MAX;

/// How records are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadsConfig {
    /// What reads.
    pub engine: EngineChoice,
    /// Past the page cache or through it.
    pub io: IoMode,
    /// Reads in flight; more may be submitted, they wait for their turn.
    pub depth: Depth,
    /// The store that the simulator pretends to read from; only with [`EngineChoice::Sim`] or
    /// [`Auto`](EngineChoice::Auto), which then is the simulator.
    pub store: Option<StoreModel>,
    /// How long a shard that cannot be opened or may not be read is tried again
    /// ([`PATIENCE`](super::PATIENCE)): trouble of the store, which may pass, not of a record.
    /// Zero: not at all.
    pub patience: Duration,
}

/// How many reads are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As many as the store gains from ([`DepthController`](super::depth::DepthController)).
    Auto,
    /// This number, 1 to [`READS_DEPTH_MAX`](shade_formats::limits::READS_DEPTH_MAX).
    Fixed(u32),
}

impl From<Option<u32>> for Depth {
    /// As a daemon's settings have it.
    fn from(depth: Option<u32>) -> Self {
        depth.map_or(Self::Auto, Self::Fixed)
    }
}

impl Depth {
    /// Most reads worth submitting at a time: twice as many as can be in flight.
    #[must_use]
    pub fn submitted_max(self) -> u32 {
        2 * match self {
            Self::Auto => DEPTH_MAX,
            Self::Fixed(depth) => depth,
        }
    }
}
