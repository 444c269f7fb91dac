//! The cache's memory: found ahead of the reads, and given back when the cache has become smaller.

use std::sync::Arc;
use std::time::Duration;

use shade_core::window_bytes;
use shade_formats::index::Index;
use shade_job::Policy;
use shade_reads::blocks::{Arena, Prefault};

/// How far the memory of a smaller cache is on its way to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivingBack {
    /// There is none to give back.
    Done,
    /// Records move out of it; the search for them goes on at this place of the cache.
    Moves(u32),
    /// What rows and reads still have is awaited, until the next heartbeat.
    Waits,
}

/// The cache's memory.
pub(super) struct CacheMemory {
    pub(super) arena: Arc<Arena>,
    index: Arc<Index>,
    policy: Policy,
    /// Bytes beside the cache, for reads.
    pub(super) staging_bytes: u64,
    /// `None` while the arena is resized.
    prefault: Option<Prefault>,
    pub(super) giving_back: GivingBack,
    /// Bytes that the arena will have.
    pub(super) target_bytes: u64,
}

impl CacheMemory {
    pub(super) fn new(arena: Arc<Arena>, index: Arc<Index>, policy: Policy, staging_bytes: u64) -> Self {
        let prefault = Some(Prefault::start(Arc::clone(&arena)));
        let (giving_back, target_bytes) = (GivingBack::Done, arena.bytes());
        Self { arena, index, policy, staging_bytes, prefault, giving_back, target_bytes }
    }

    /// How long the daemon may wait for events.
    pub(super) fn wait_max(&self, heartbeat: Duration) -> Duration {
        match self.giving_back {
            GivingBack::Done => Duration::MAX,
            GivingBack::Moves(_) => Duration::ZERO,
            GivingBack::Waits => heartbeat,
        }
    }

    /// A heartbeat's time has passed.
    pub(super) fn beat(&mut self) {
        if self.giving_back == GivingBack::Waits {
            self.giving_back = GivingBack::Moves(0);
        }
    }

    /// Bytes of the windows of a cache with this capacity.
    pub(super) fn window_bytes(&self, cache_bytes: u64) -> u32 {
        window_bytes(&self.index, cache_bytes, self.arena.block_bytes(), self.policy)
    }

    /// Ends the threads that find memory for the arena, which may now be resized.
    pub(super) fn pause(&mut self) -> &Arena {
        self.prefault = None;
        &self.arena
    }

    /// The arena has its size: its memory is found from now on.
    pub(super) fn go_on(&mut self) {
        self.prefault.get_or_insert_with(|| Prefault::start(Arc::clone(&self.arena)));
    }
}
