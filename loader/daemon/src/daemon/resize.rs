//! The cache becomes larger or smaller while trainings go on, for those who may say so.

use std::collections::BTreeSet;

use indicatif::BinaryBytes;
use shade_core::SessionId;
use shade_formats::control::{PROTOCOL, Reply};
use shade_job::{Capacity, SpecError};

use super::Event;
use super::cache_memory::CannotGrow;
use super::serve::Daemon;
use crate::ask::target_of;
use crate::control::Resized;

/// Why the cache keeps its size.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    /// The text is no size.
    #[error(transparent)]
    Size(#[from] SpecError),
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] CannotGrow),
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
        answer(self.check_owner(session).and_then(|()| self.resize(cache)))
    }

    /// Answers a rank whose daemon before this one had died with a cache of this size, which it was
    /// given. Any rank may ask, as that daemon has judged who may. A size that this daemon was
    /// given is newer, and stays.
    pub(super) fn resize_again(&mut self, cache_bytes: u64) -> Reply {
        if self.sessions.has_resized() {
            let now_bytes = self.lifecycle.settings.cache_bytes();
            return answer(Ok(Resized { before_bytes: now_bytes, cache_bytes: now_bytes }));
        }
        answer(self.resize_to(Capacity::Bytes(cache_bytes), "as a daemon before this one had"))
    }

    /// Gives the cache the size that `--cache` would give it.
    pub(super) fn resize(&mut self, cache: &str) -> Result<Resized, ResizeError> {
        self.resize_to(Capacity::given(cache)?, "as its user asked")
    }

    fn resize_to(&mut self, asked: Capacity, why: &str) -> Result<Resized, ResizeError> {
        let settings = &mut self.lifecycle.settings;
        let (before_bytes, cache_bytes) = (settings.cache_bytes(), settings.bytes_of(asked));
        let window_bytes = self.cache_memory.resize(&mut self.core, before_bytes, cache_bytes)?;
        self.events.push(Event::Resize { cache_bytes, window_bytes });
        settings.resized(asked, cache_bytes);
        self.sessions.note_resized(cache_bytes);
        self.observers.resized(cache_bytes);
        self.turn();
        let (before, now) = (BinaryBytes(before_bytes), BinaryBytes(cache_bytes));
        tracing::info!("the cache has {now} now, {before} before, {why}");
        Ok(Resized { before_bytes, cache_bytes })
    }

    /// Whether a rank may resize the cache: its job has the cache alone, or a process of the job
    /// has started this daemon.
    fn check_owner(&mut self, session: SessionId) -> Result<(), ResizeError> {
        // Ranks that said hello before have their jobs then.
        self.turn();
        let jobs: Vec<String> = self.core.jobs().into_iter().map(|job| job.name).collect();
        let started_by = self.lifecycle.settings.started_by();
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
        let target = target_of(&self.lifecycle.served.address, &self.lifecycle.served.folder);
        Err(ResizeError::NotOwner { jobs: jobs.join(", "), owner, or, target })
    }
}

fn answer(resized: Result<Resized, ResizeError>) -> Reply {
    match resized {
        Ok(Resized { before_bytes, cache_bytes }) => {
            Reply::Resized { protocol: PROTOCOL, before_bytes, cache_bytes }
        }
        Err(error) => Reply::Failed { text: error.to_string() },
    }
}
