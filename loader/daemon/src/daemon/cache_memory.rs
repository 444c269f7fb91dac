//! The cache's memory: found ahead of the reads, and given back when the cache has become smaller.
//!
//! Memory comes before the cache grows, and goes as it shrinks: a part after the other. Residents
//! that have no room any more leave, and others move out of the blocks that go, a few between any
//! two bursts of events. When the last block of a part is free, its memory goes back to the system.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use shade_core::{WholeSamples, window_bytes};
use shade_job::Policy;
use shade_reads::blocks::{Arena, Prefault};

use super::Core;
use super::memory::{NoRoomToGrow, check_growth};

/// Bytes of records that move before events are taken in again: 2 ms or so.
const MOVED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of memory that go before events are taken in again: 10 ms or so, in small pages.
const FREED_BYTES_MAX: u64 = 128 << 20;
/// A part of the memory is this share of what is still to go, unless that is small: the search for
/// the records that must move goes through the whole cache for each part.
const PARTS: u64 = 16;
const PART_BYTES_MIN: u64 = 64 << 20;

/// Why there is no memory for a larger cache.
#[derive(Debug, thiserror::Error)]
pub(super) enum CannotGrow {
    /// There is too little.
    #[error(transparent)]
    NoRoom(#[from] NoRoomToGrow),
    /// The system does not give it.
    #[error(
        "no more memory for the cache of process {}: {source}; if `ulimit -v` or vm.overcommit_memory limit it, raise \
         them, and start the daemon again",
        std::process::id()
    )]
    System {
        /// What it says.
        source: io::Error,
    },
}

/// How far the memory of a smaller cache is on its way to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivingBack {
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
    samples: Arc<WholeSamples>,
    policy: Policy,
    /// Bytes beside the cache, for reads.
    staging_bytes: u64,
    /// `None` while the arena is resized.
    prefault: Option<Prefault>,
    giving_back: GivingBack,
    /// Bytes that the arena will have.
    target_bytes: u64,
}

impl CacheMemory {
    pub(super) fn new(
        arena: Arc<Arena>,
        samples: Arc<WholeSamples>,
        policy: Policy,
        staging_bytes: u64,
    ) -> Self {
        let prefault = Some(Prefault::start(Arc::clone(&arena)));
        let (giving_back, target_bytes) = (GivingBack::Done, arena.bytes());
        Self { arena, samples, policy, staging_bytes, prefault, giving_back, target_bytes }
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

    /// The memory of a cache with another capacity. Returns the bytes of its windows.
    ///
    /// # Errors
    /// There is not enough memory, and the cache stays as it is.
    pub(super) fn resize(
        &mut self,
        core: &mut Core,
        before_bytes: u64,
        cache_bytes: u64,
    ) -> Result<u32, CannotGrow> {
        let arena_bytes = cache_bytes.saturating_add(self.staging_bytes);
        let missing = arena_bytes.saturating_sub(self.arena.bytes());
        if cache_bytes > before_bytes && missing > 0 {
            check_growth(cache_bytes, missing.saturating_add(self.arena.unfound_bytes()))?;
            let grown = self.pause().grow(arena_bytes);
            self.go_on();
            core.memory_mut().add(grown.map_err(|source| CannotGrow::System { source })?);
        }
        let free = core.memory_mut();
        // What a smaller one has not given back yet is at hand.
        free.set_limit(arena_bytes.max(free.total_bytes()));
        self.target_bytes = arena_bytes;
        self.giving_back = GivingBack::Moves(0);
        Ok(self.window_bytes(cache_bytes))
    }

    /// Goes on with giving back memory, if there is any to give back.
    pub(super) fn give_back(&mut self, core: &mut Core) {
        if self.giving_back == GivingBack::Done {
            return;
        }
        let free = core.memory_mut();
        if let Some(last) = free.cut(FREED_BYTES_MAX) {
            if let Err((last, error)) = self.pause().shrink(last) {
                core.memory_mut().add(last);
                tracing::warn!("the memory of a smaller cache is kept: {error}");
                self.giving_back = GivingBack::Done;
                self.go_on();
            }
        } else if self.arena.bytes() == free.total_bytes() {
            // A part has gone, and the next one follows.
            let block_bytes = u64::from(self.arena.block_bytes());
            let target_bytes = self.target_bytes / block_bytes * block_bytes;
            let left_bytes = free.total_bytes().saturating_sub(target_bytes);
            let part_bytes = (left_bytes / PARTS).max(PART_BYTES_MIN).min(left_bytes);
            free.set_limit(free.total_bytes() - part_bytes);
            self.giving_back = if left_bytes > 0 { GivingBack::Moves(0) } else { GivingBack::Done };
            if left_bytes == 0 {
                self.go_on();
            }
        } else if let GivingBack::Moves(from) = self.giving_back {
            let arena = &self.arena;
            let next =
                core.move_records(from, MOVED_BYTES_MAX, |free, record| arena.move_record(free, record));
            self.giving_back = next.map_or(GivingBack::Waits, GivingBack::Moves);
        }
    }

    /// Bytes of the windows of a cache with this capacity.
    fn window_bytes(&self, cache_bytes: u64) -> u32 {
        window_bytes(&*self.samples, cache_bytes, self.arena.block_bytes(), self.policy)
    }

    /// Ends the threads that find memory for the arena, which may now be resized.
    fn pause(&mut self) -> &Arena {
        self.prefault = None;
        &self.arena
    }

    /// The arena has its size: its memory is found from now on.
    fn go_on(&mut self) {
        self.prefault.get_or_insert_with(|| Prefault::start(Arc::clone(&self.arena)));
    }
}
