//! A rank's first message, checked before it is sent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use shade_dataset::{Content, Dataset};
use shade_formats::control::{JobSpec, PROTOCOL, Request, Settings, WeightTable};
use shade_shm::memfd;

use crate::ClientError;
use crate::error::argument;
use crate::fork::Owner;

/// A rank's greeting.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) owner: Owner,
    /// The dataset's folder, canonical.
    pub(crate) dataset: PathBuf,
    job: String,
    pub(crate) or_free_name: bool,
    rank: u32,
    settings: Settings,
    spec: JobSpec,
    /// The table of weights, and its length in bytes.
    weights: Option<(OwnedFd, u64)>,
}

impl Hello {
    pub(crate) fn new(
        dataset: &Path,
        job: &str,
        rank: u32,
        spec: JobSpec,
        settings: &Settings,
    ) -> Result<Self, ClientError> {
        spec.validate()?;
        if rank >= spec.world_size {
            return Err(argument("rank", rank, format_args!("less than world_size, {}", spec.world_size)));
        }
        let dataset = Dataset::folder(dataset)?;
        if dataset.to_str().is_none() {
            return Err(argument("dataset", dataset.display(), "a path in UTF-8"));
        }
        let (owner, job, settings) = (Owner::here(), job.to_owned(), settings.clone());
        Ok(Self { owner, dataset, job, or_free_name: false, rank, settings, spec, weights: None })
    }

    /// The same, with a table of weights.
    pub(crate) fn with_weights(mut self, table: &WeightTable) -> Result<Self, ClientError> {
        let bytes = table.to_bytes();
        let file = memfd::holding("shade-weights", &bytes);
        let file = file.map_err(|error| ClientError::NoWeights { error })?;
        self.spec.plan.weights_digest = table.digest();
        self.weights = Some((file, bytes.len() as u64));
        Ok(self)
    }

    /// The file that goes with the message.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.weights.as_ref().map(|(file, _)| file.as_fd())
    }

    /// The message for a dataset that has this content now.
    pub(crate) fn request(&self, content: Content) -> Result<Request, ClientError> {
        if let Some((_, bytes)) = self.weights {
            WeightTable::check_len(bytes, content.samples)?;
        }
        Ok(Request::Hello {
            protocol: PROTOCOL,
            samples: content.samples,
            content_id: content.id.0,
            dataset: self.dataset.display().to_string(),
            job: self.job.clone(),
            or_free_name: self.or_free_name,
            rank: self.rank,
            settings: self.settings.clone(),
            spec: self.spec,
        })
    }
}
