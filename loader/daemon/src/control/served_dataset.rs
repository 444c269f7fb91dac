//! The dataset that a daemon serves, and where.

use std::path::PathBuf;

use shade_dataset::{Content, Dataset};
use shade_formats::control::PROTOCOL;
use shade_formats::ids::ContentId;

/// The dataset that a daemon serves, and where. Every client is told of it and checked against it.
#[derive(Clone, Debug)]
pub(crate) struct ServedDataset {
    /// Canonical path of the dataset.
    pub(crate) folder: String,
    /// The socket's address.
    pub(crate) address: String,
    pub(crate) samples: u32,
    pub(crate) classes: u32,
    pub(crate) content_id: u128,
    /// The log goes to the ranks' standard errors, as no user started the daemon by hand.
    pub(crate) is_private: bool,
}

impl ServedDataset {
    /// The answer to a client of another protocol.
    pub(super) fn other_version(&self, protocol: u32) -> String {
        let program = std::env::current_exe();
        let program = program.map_or_else(|error| error.to_string(), |path| path.display().to_string());
        format!(
            "the daemon speaks protocol {PROTOCOL}, the client {protocol}: use the same version of both; the daemon is \
             process {}, started from {program}",
            std::process::id()
        )
    }

    /// Whether a client may attach whose dataset's index now has the content `content_id`: the one
    /// that is served, perhaps with more at its end, as `shade-pack append` adds it. Such a client
    /// gets what is served. Reads the whole index unless the contents are equal.
    pub(super) fn goes_on_in(&self, content_id: u128) -> bool {
        let served = Content { samples: self.samples, classes: self.classes, id: ContentId(self.content_id) };
        let same = || Dataset::open_same(PathBuf::from(&self.folder), served);
        content_id == self.content_id || same().is_ok_and(|now| now.index.content_id().0 == content_id)
    }

    /// The answer to a client whose dataset's index now has another content. The caller adds what
    /// to do.
    pub(crate) fn other_content(&self, samples: u32, content_id: u128) -> String {
        format!(
            "the dataset at {} has changed: its index now says {samples} samples, content id {}; this daemon (process {}) \
             serves {} samples, content id {}",
            self.folder,
            ContentId(content_id),
            std::process::id(),
            self.samples,
            ContentId(self.content_id)
        )
    }
}
