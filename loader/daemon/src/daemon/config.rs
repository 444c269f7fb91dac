//! The validated configuration of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use shade_job::DaemonSpec;

/// A validated configuration of `serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Path of the dataset.
    pub dataset: PathBuf,
    /// How the daemon runs.
    pub settings: DaemonSpec,
    /// Socket file; `None` for the abstract name of the dataset.
    pub socket: Option<PathBuf>,
    /// Whether it was started for trainers, and ends when the last one has left.
    pub is_private: bool,
    /// The process that wanted this daemon, whose job may resize the cache.
    pub started_by: Option<i32>,
}

impl ServeConfig {
    /// Time after which the daemon ends when the last rank has left; `None` runs until stopped.
    #[must_use]
    pub(super) fn linger(&self) -> Option<Duration> {
        self.is_private.then(|| Duration::from_secs_f64(self.settings.linger))
    }
}
