//! A rank's first message, checked before it is sent.

use std::path::{Path, PathBuf};

use shade_dataset::{Content, Dataset};
use shade_formats::control::{JobSpec, PROTOCOL, Request, Settings};

use crate::ClientError;
use crate::error::argument;
use crate::fork::Owner;

/// A rank's greeting.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) owner: Owner,
    /// The dataset's folder, canonical.
    pub(crate) dataset: PathBuf,
    pub(crate) job: String,
    rank: u32,
    settings: Settings,
    spec: JobSpec,
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
        Ok(Self { owner, dataset, job, rank, settings, spec })
    }

    /// The message for a dataset that has this content now.
    pub(crate) fn request(&self, content: Content) -> Request {
        Request::Hello {
            protocol: PROTOCOL,
            samples: content.samples,
            content_id: content.id.0,
            dataset: self.dataset.display().to_string(),
            job: self.job.clone(),
            rank: self.rank,
            settings: self.settings.clone(),
            spec: self.spec,
        }
    }
}
