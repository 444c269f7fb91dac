//! The observers: recorders of a trace, one a job. They are no ranks, so a private daemon does not
//! stay for them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shade_core::{Refusal, SessionId};
use shade_formats::control::{REFUSE_BUSY, REFUSE_RESOURCES};
use shade_formats::limits::JOBS_MAX;
use shade_formats::trace::{Header, Line};

use super::observer::Observer;

/// All observers.
pub(super) struct Observers {
    /// The first line of a trace, without its job.
    header: Header,
    list: Vec<(String, Observer)>,
}

impl Observers {
    pub(super) fn new(header: Header) -> Self {
        Self { header, list: Vec::new() }
    }

    /// The cache has another capacity, which later traces say.
    pub(super) fn resized(&mut self, cache_bytes: u64) {
        self.header.cache_bytes = cache_bytes;
    }

    /// Begins a trace of `job`, unless one is being recorded.
    pub(super) fn begin(
        &mut self,
        session: SessionId,
        job: &str,
        socket: Arc<OwnedFd>,
        pipe: OwnedFd,
    ) -> Result<(), Refusal> {
        if self.list.iter().any(|(name, _)| name == job) {
            let text = format!("a trace of job {job:?} is being recorded already: one at a time");
            return Err(Refusal { code: REFUSE_BUSY, text });
        }
        if self.list.len() >= JOBS_MAX as usize {
            let text = format!("{JOBS_MAX} traces are being recorded already, as many as there may be jobs");
            return Err(Refusal { code: REFUSE_BUSY, text });
        }
        let header = Header { job: job.to_owned(), ..self.header.clone() };
        let observer = Observer::start(session, socket, pipe, &header)
            .map_err(|error| Refusal { code: REFUSE_RESOURCES, text: error.to_string() })?;
        self.list.push((job.to_owned(), observer));
        Ok(())
    }

    /// Hands a line to its observer, if that is still there.
    pub(super) fn take(&self, session: SessionId, line: Box<Line>) {
        if let Some((_, observer)) = self.list.iter().find(|(_, observer)| observer.session == session) {
            observer.take(line);
        }
    }

    /// A session has ended. Returns whether it was an observer's.
    pub(super) fn leave(&mut self, session: SessionId) -> bool {
        let before = self.list.len();
        self.list.retain(|(_, observer)| observer.session != session);
        self.list.len() < before
    }

    /// Waits until what they took is written, but not for longer than `patience`.
    pub(super) fn finish(self, patience: Duration) {
        let ending: Vec<_> = self.list.into_iter().map(|(_, observer)| observer.end()).collect();
        let deadline = Instant::now() + patience;
        for ended in ending {
            let _ = ended.recv_deadline(deadline);
        }
    }
}
