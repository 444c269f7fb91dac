//! What a tier is made of, is ordered and answers.

use std::time::Duration;

use shade_core::{TierEvent, TierOrder};
use shade_formats::ContentId;
use shade_reads::blocks::FreeList;

use shade_job::Servers;

/// An order of the core, with blocks of the arena.
pub type Order = TierOrder<FreeList>;
/// What the tier answers.
pub type Event = TierEvent<FreeList>;

/// What a tier is made of.
#[derive(Clone, Debug)]
pub struct TierConfig {
    /// Its servers.
    pub servers: Servers,
    /// Bytes that this daemon may fill, over all servers; `None` for nine tenths of what they say
    /// they have.
    pub bytes: Option<u64>,
    /// The dataset, whose keys no other has.
    pub content_id: ContentId,
    /// Bytes of a record that the tier's speed is measured with.
    pub record_bytes: u32,
    /// Longest wait for a server: [`DEADLINE`](crate::DEADLINE) for a daemon.
    pub deadline: Duration,
}
