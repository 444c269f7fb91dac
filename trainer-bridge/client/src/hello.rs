//! A rank's first message, checked before it is sent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use shade_dataset::{Content, Dataset};
use shade_formats::control::{PROTOCOL, Request};
use shade_job::{JobSpec, Settings, Tables};
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
    /// See [`Options::survive`](crate::Options::survive).
    pub(crate) survives: bool,
    spec: JobSpec,
    tables: Tables,
    /// The file with the tables, if there are any.
    file: Option<OwnedFd>,
}

impl Hello {
    pub(crate) fn new(dataset: &Path, job: &str, rank: u32, spec: JobSpec) -> Result<Self, ClientError> {
        spec.validate()?;
        if rank >= spec.world_size {
            return Err(argument("rank", rank, format_args!("less than world_size, {}", spec.world_size)));
        }
        let dataset = Dataset::folder(dataset)?;
        if dataset.to_str().is_none() {
            return Err(argument("dataset", dataset.display(), "a path in UTF-8"));
        }
        let (owner, job) = (Owner::here(), job.to_owned());
        let (tables, file) = (Tables::default(), None);
        let (or_free_name, survives) = (false, false);
        Ok(Self { owner, dataset, job, or_free_name, rank, survives, spec, tables, file })
    }

    /// This hello, with tables.
    pub(crate) fn with_tables(mut self, tables: Tables) -> Result<Self, ClientError> {
        tables.name_in(&mut self.spec.plan);
        self.spec.validate()?;
        if !tables.is_empty() {
            let file = memfd::holding("shade-tables", &tables.to_bytes());
            self.file = Some(file.map_err(|error| ClientError::NoTables { error })?);
        }
        self.tables = tables;
        Ok(self)
    }

    /// The job's document.
    pub(crate) fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// From now on the job has the name that a daemon has given it.
    pub(crate) fn name(&mut self, job: &str) {
        job.clone_into(&mut self.job);
    }

    /// The file that goes with the message.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    /// The message for a dataset that has this content now, with the settings that are asked for.
    pub(crate) fn request(&self, content: Content, settings: &Settings) -> Result<Request, ClientError> {
        self.tables.check_within(content.samples)?;
        Ok(Request::Hello {
            protocol: PROTOCOL,
            samples: content.samples,
            content_id: content.id.0,
            dataset: self.dataset.display().to_string(),
            job: self.job.clone(),
            or_free_name: self.or_free_name,
            rank: self.rank,
            survives: self.survives,
            settings: settings.to_text(),
            document: self.spec.to_text(),
        })
    }
}
