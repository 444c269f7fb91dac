//! What a daemon tells of itself and its jobs.

use serde::Deserialize;
use shade_formats::printable::OneLine;

use super::error::AskError;

/// A daemon.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DaemonStatus {
    pub(super) pid: u32,
    pub(super) dataset: String,
    pub(super) cache_bytes: u64,
    pub(super) cache_used_bytes: u64,
    pub(super) draining: bool,
    pub(crate) jobs: Vec<JobStatus>,
}

/// A job.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct JobStatus {
    pub(crate) name: String,
    /// Attached now.
    pub(super) ranks: u32,
    pub(super) ranks_here: u32,
    pub(crate) admit: bool,
    pub(super) epoch: Option<u32>,
    /// Since the job began, as the hit ratio.
    pub(super) accesses: u64,
    pub(super) hit_ratio: f64,
}

impl DaemonStatus {
    /// Reads an answer; unknown keys are ignored.
    pub(crate) fn parse(json: &str) -> Result<Self, AskError> {
        serde_json::from_str(json).map_err(AskError::Status)
    }

    /// The jobs for people: "jobs: a, b".
    pub(super) fn job_names(&self) -> String {
        let names: Vec<_> = self.jobs.iter().map(|job| job.name.as_str()).collect();
        match names[..] {
            [] => "no job".to_owned(),
            [one] => format!("job {}", OneLine(one)),
            _ => format!("jobs {}", OneLine(names.join(", "))),
        }
    }
}
