//! The cache becomes larger or smaller while trainings go on, and its memory with it.
//!
//! Memory comes before the cache grows, and goes as it shrinks: a part after the other. Residents
//! that have no room any more leave, and others move out of the blocks that go, a few between any
//! two bursts of events. When the last block of a part is free, its memory goes back to the system.

use std::collections::BTreeSet;
use std::io;

use indicatif::BinaryBytes;
use shade_core::SessionId;
use shade_formats::control::{PROTOCOL, Reply};
use shade_job::{DaemonSpec, Declared, SpecError};

use super::Event;
use super::cache_memory::GivingBack;
use super::memory::{NoRoomToGrow, check_growth};
use super::serve::Daemon;
use crate::ask::target_of;
use crate::control::Resized;

/// Bytes of records that move before events are taken in again: 2 ms or so.
const MOVED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of memory that go before events are taken in again: 10 ms or so, in small pages.
const FREED_BYTES_MAX: u64 = 128 << 20;
/// A part of the memory is this share of what is still to go, unless that is small: the search for
/// the records that must move goes through the whole cache for each part.
const PARTS: u64 = 16;
const PART_BYTES_MIN: u64 = 64 << 20;

/// Why the cache keeps its size.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    /// The text is no size.
    #[error(transparent)]
    Size(#[from] SpecError),
    /// There is too little memory.
    #[error(transparent)]
    Memory(#[from] NoRoomToGrow),
    /// The system does not give the memory.
    #[error(
        "no more memory for the cache of process {}: {source}; if `ulimit -v` or vm.overcommit_memory limit it, raise \
         them, and start the daemon again",
        std::process::id()
    )]
    System {
        /// What it says.
        source: io::Error,
    },
    /// Another job owns the cache.
    #[error("the cache is shared by jobs {jobs}, and {owner}: {or}use shade-load resize SIZE {target}")]
    NotOwner {
        /// All jobs.
        jobs: String,
        /// Who started the daemon.
        owner: String,
        /// Where else to do it.
        or: &'static str,
        /// The daemon, for a command line.
        target: String,
    },
}

impl Daemon {
    /// Answers a rank that wants the cache to have another size.
    pub(super) fn resize_for(&mut self, session: SessionId, cache: &str) -> Reply {
        match self.check_owner(session).and_then(|()| self.resize(cache)) {
            Ok(Resized { before_bytes, cache_bytes }) => {
                Reply::Resized { protocol: PROTOCOL, before_bytes, cache_bytes }
            }
            Err(error) => Reply::Failed { text: error.to_string() },
        }
    }

    /// Gives the cache the size that `--cache` would give it.
    pub(super) fn resize(&mut self, cache: &str) -> Result<Resized, ResizeError> {
        let mut asked = DaemonSpec::default();
        asked.set("cache", cache)?;
        let cache = asked.cache;
        let (before_bytes, cache_bytes) = (self.settings.cache_bytes(), self.settings.bytes_of(cache));
        let memory = &mut self.cache_memory;
        let arena_bytes = cache_bytes.saturating_add(memory.staging_bytes);
        let missing = arena_bytes.saturating_sub(memory.arena.bytes());
        if cache_bytes > before_bytes && missing > 0 {
            check_growth(cache_bytes, missing.saturating_add(memory.arena.unfound_bytes()))?;
            let grown = memory.pause().grow(arena_bytes);
            memory.go_on();
            self.core.memory_mut().add(grown.map_err(|source| ResizeError::System { source })?);
        }
        let free = self.core.memory_mut();
        // What a smaller one has not given back yet is at hand.
        free.set_limit(arena_bytes.max(free.total_bytes()));
        memory.target_bytes = arena_bytes;
        memory.giving_back = GivingBack::Moves(0);
        let window_bytes = memory.window_bytes(cache_bytes);
        self.events.push(Event::Resize { cache_bytes, window_bytes });
        self.settings.resized(cache, cache_bytes);
        self.observers.resized(cache_bytes);
        self.turn();
        let (before, now) = (BinaryBytes(before_bytes), BinaryBytes(cache_bytes));
        tracing::info!("the cache has {now} now, {before} before, as its user asked");
        Ok(Resized { before_bytes, cache_bytes })
    }

    /// Goes on with giving back memory, if there is any to give back.
    pub(super) fn give_back(&mut self) {
        let memory = &mut self.cache_memory;
        if memory.giving_back == GivingBack::Done {
            return;
        }
        let free = self.core.memory_mut();
        if let Some(last) = free.cut(FREED_BYTES_MAX) {
            if let Err((last, error)) = memory.pause().shrink(last) {
                self.core.memory_mut().add(last);
                tracing::warn!("the memory of a smaller cache is kept: {error}");
                memory.giving_back = GivingBack::Done;
                memory.go_on();
            }
        } else if memory.arena.bytes() == free.total_bytes() {
            // A part has gone, and the next one follows.
            let block_bytes = u64::from(memory.arena.block_bytes());
            let target_bytes = memory.target_bytes / block_bytes * block_bytes;
            let left_bytes = free.total_bytes().saturating_sub(target_bytes);
            let part_bytes = (left_bytes / PARTS).max(PART_BYTES_MIN).min(left_bytes);
            free.set_limit(free.total_bytes() - part_bytes);
            memory.giving_back = if left_bytes > 0 { GivingBack::Moves(0) } else { GivingBack::Done };
            if left_bytes == 0 {
                memory.go_on();
            }
        } else if let GivingBack::Moves(from) = memory.giving_back {
            let arena = &memory.arena;
            let next =
                self.core.move_records(from, MOVED_BYTES_MAX, |free, record| arena.move_record(free, record));
            memory.giving_back = next.map_or(GivingBack::Waits, GivingBack::Moves);
        }
    }

    /// Whether a rank may resize the cache: its job has the cache alone, or a process of the job
    /// has started this daemon.
    fn check_owner(&mut self, session: SessionId) -> Result<(), ResizeError> {
        // Ranks that said hello before have their jobs then.
        self.turn();
        let jobs: Vec<String> = self.core.jobs().into_iter().map(|job| job.name).collect();
        let started_by = self.settings.started_by();
        let owner_sessions = self.sessions.of_process(started_by);
        let owners: BTreeSet<&str> =
            owner_sessions.into_iter().filter_map(|session| self.core.job_name(session)).collect();
        let is_owner = self.core.job_name(session).is_some_and(|job| owners.contains(job));
        if is_owner || jobs.len() < 2 {
            return Ok(());
        }
        let (owner, or) = match (owners.first(), started_by) {
            (Some(job), Some(process)) => {
                (format!("process {process} of job {job} has started its daemon"), "do it there, or ")
            }
            _ => (format!("none of them has started its daemon (process {})", std::process::id()), ""),
        };
        let target = target_of(&self.served.address, &self.served.folder);
        Err(ResizeError::NotOwner { jobs: jobs.join(", "), owner, or, target })
    }
}
