//! Why a dataset cannot be opened.

use std::io;
use std::path::PathBuf;

use shade_formats::index::INDEX_FILE;
use shade_formats::{ContentId, FormatError};
use shade_store::{AddressError, StoreFault};

/// Why a dataset cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// It is missing or cannot be read.
    #[error("cannot open the dataset at {}: {source}", path.display())]
    Io {
        /// What was tried.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// It is no packed dataset.
    #[error(
        "{path} is no dataset: it has no {INDEX_FILE}; pack the ImageFolder first (shade-pack create {path} OUT), \
         or index it where it is (shade-pack index {path} OUT)",
        path = folder.display()
    )]
    NotPacked {
        /// The folder.
        folder: PathBuf,
    },
    /// There is no packed dataset at an address.
    #[error(
        "{url} is no dataset: it has no {INDEX_FILE}; if images or tars lie there, pack them (shade-pack create {url} \
         OUT), or index them where they are (shade-pack index {url} OUT)"
    )]
    NotPackedAt {
        /// The address.
        url: String,
    },
    /// What was given is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An object store does not give the index.
    #[error("cannot open {url}: {fault}")]
    Store {
        /// The index's address.
        url: String,
        /// What the store answers.
        fault: StoreFault,
    },
    /// The index is damaged or of another version.
    #[error("{}: {source}", path.display())]
    Format {
        /// The index file.
        path: PathBuf,
        /// What is wrong and where.
        source: FormatError,
    },
    /// The dataset is not the one that was expected.
    #[error(
        "{}: content id {got}, expected {expected}: the dataset was replaced meanwhile; open it anew",
        path.display()
    )]
    Replaced {
        /// The index file.
        path: PathBuf,
        /// The content id of the dataset that is there.
        got: ContentId,
        /// The content id of the dataset that was opened first.
        expected: ContentId,
    },
}

impl DatasetError {
    /// Whether the index exists and is damaged.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Format { .. })
    }
}
