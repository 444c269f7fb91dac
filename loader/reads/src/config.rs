//! How records are to be read.

use std::time::Duration;

use shade_dataset::IoMode;

use crate::depth::DEPTH_MAX;
use crate::store_model::StoreModel;

/// Most reads in flight that may be asked for. Servers grant far fewer at once; more would only wait there.
pub const READS_DEPTH_MAX: u32 = 1024;

/// How records are to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadsConfig {
    /// Who reads.
    pub engine: EngineChoice,
    /// Past the page cache or through it.
    pub io: IoMode,
    /// Reads in flight; more may be submitted, they wait for their turn.
    pub depth: Depth,
    /// The store that the simulator pretends to read from; only with [`EngineChoice::Sim`] or
    /// [`Auto`](EngineChoice::Auto), which then is the simulator.
    pub store: Option<StoreModel>,
    /// How long a shard that cannot be opened or may not be read is tried again
    /// ([`PATIENCE`](super::PATIENCE)): trouble of the store, which
    /// somebody mends, and not of a record. Zero is not at all.
    pub patience: Duration,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring, or threads where that cannot be had.
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads, each with one read at a time; at most 128.
    Threads,
    /// The simulator: real bytes, read from the page cache, when a simulated store answers.
    Sim,
}

/// How many reads are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As many as the store gains from ([`DepthController`](super::depth::DepthController)).
    Auto,
    /// So many, `1..=READS_DEPTH_MAX`.
    Fixed(u32),
}

impl Depth {
    /// Reads worth submitting at a time at the most depth there is: as many again as can be in flight.
    #[must_use]
    pub fn submitted_max(self) -> u32 {
        2 * match self {
            Self::Auto => DEPTH_MAX,
            Self::Fixed(depth) => depth,
        }
    }
}
