//! The configuration of reads.

use std::time::Duration;

use shade_dataset::IoMode;

use crate::depth::DEPTH_MAX;
use crate::store_model::StoreModel;

/// Largest fixed depth. Servers grant far fewer reads at once; more would only wait there.
pub const READS_DEPTH_MAX: u32 = 1024;

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

/// What reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring, or threads where that is not available.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads, each with one read at a time; at most 128.
    Threads,
    /// The simulator: real bytes, read from the page cache, when a simulated store answers.
    Sim,
}

impl EngineChoice {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Uring, Self::Threads, Self::Sim];

    /// The name in options and settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Threads => "threads",
            Self::Sim => "sim",
        }
    }
}

/// How many reads are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As many as the store gains from ([`DepthController`](super::depth::DepthController)).
    Auto,
    /// This number, `1..=READS_DEPTH_MAX`.
    Fixed(u32),
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
