//! What a daemon serves: every client is told of it, and checked against it.

use shade_formats::control::PROTOCOL;
use shade_formats::ids::ContentId;

/// What every client is told, and checked against.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The dataset served, canonical path.
    pub dataset: String,
    /// The job served.
    pub job: String,
    /// Samples in it.
    pub samples: u32,
    /// Classes in it.
    pub classes: u32,
    /// Which bytes it holds.
    pub content_id: u128,
}

impl Identity {
    /// What a client is told that speaks another protocol.
    pub(super) fn other_version(&self, protocol: u32) -> String {
        let program = std::env::current_exe();
        let program = program.map_or_else(|error| error.to_string(), |path| path.display().to_string());
        format!(
            "the daemon speaks protocol {PROTOCOL}, the client {protocol}: use the same version of both; the daemon is \
             process {}, started from {program}",
            std::process::id()
        )
    }

    /// What a client is told whose dataset has another content, as its index says now. What to do depends on the daemon.
    pub fn other_content(&self, samples: u32, content_id: u128) -> String {
        format!(
            "the dataset at {} has changed: its index now says {samples} samples, content id {}; this daemon (process {}) \
             serves {} samples, content id {}",
            self.dataset,
            ContentId(content_id),
            std::process::id(),
            self.samples,
            ContentId(self.content_id)
        )
    }
}
