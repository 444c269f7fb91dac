//! The cache becomes larger or smaller while trainings go on, and its memory with it.
//!
//! Memory comes before the cache grows, and goes after it has shrunk. Residents that have no room
//! any more leave at once. The others move out of the blocks that go, a few between any two bursts
//! of events. When the last of these blocks is free, their memory goes back to the system.

use std::collections::BTreeSet;
use std::io;

use indicatif::BinaryBytes;
use shade_core::{Capacity, CapacityError, SessionId};
use shade_formats::control::{PROTOCOL, Reply};

use super::Event;
use super::cache_memory::GivingBack;
use super::memory::{NoRoomToGrow, check_growth};
use super::serve::Daemon;
use crate::control::Resized;

/// Bytes of records that move before events are taken in again: 2 ms or so.
const MOVED_BYTES_MAX: u64 = 8 << 20;

/// Why the cache keeps its size.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    /// The text is no size.
    #[error(transparent)]
    Size(#[from] CapacityError),
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
        let cache: Capacity = cache.parse()?;
        let (before_bytes, cache_bytes) = (self.settings.cache_bytes(), self.settings.bytes_of(cache));
        let memory = &mut self.cache_memory;
        let arena_bytes = cache_bytes.saturating_add(memory.staging_bytes);
        let missing = arena_bytes.saturating_sub(memory.arena.bytes());
        if cache_bytes > before_bytes && missing > 0 {
            check_growth(cache_bytes, missing.saturating_add(memory.arena.unfound_bytes()))?;
            let grown = memory.resize(|arena| arena.grow(arena_bytes));
            self.core.memory_mut().add(grown.map_err(|source| ResizeError::System { source })?);
        }
        let free = self.core.memory_mut();
        free.set_limit(arena_bytes);
        let has_less = memory.arena.bytes() > free.total_bytes();
        memory.giving_back = if has_less { GivingBack::Moves(0) } else { GivingBack::Done };
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
        if let Some(last) = self.core.memory_mut().cut() {
            memory.giving_back = GivingBack::Done;
            if let Err((last, error)) = memory.resize(|arena| arena.shrink(last)) {
                self.core.memory_mut().add(last);
                tracing::warn!("the memory of a smaller cache is kept: {error}");
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
        let target = match self.served.address.starts_with('@') {
            true => self.served.folder.clone(),
            false => format!("--socket {}", self.served.address),
        };
        Err(ResizeError::NotOwner { jobs: jobs.join(", "), owner, or, target })
    }
}
