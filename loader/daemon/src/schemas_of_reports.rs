//! What the daemon and its commands print as JSON, and the schemas of it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::daemon::Figures;
use crate::doctor::{Comparison, Diagnosis};
use crate::monitor::DaemonFigures;
use crate::schemas::is_described;
use crate::status::DaemonStatus;

/// What `Loader.stats()` returns in Python.
#[derive(Serialize, JsonSchema)]
struct LoaderStats {
    #[serde(flatten)]
    daemon: Figures<'static>,
    /// Seconds that this process waited for batches.
    stall_seconds: f64,
    /// Daemons that died and were replaced: all else counts since the last of them began.
    successors: u32,
}

#[test]
fn reports_are_described() {
    is_described::<Vec<DaemonStatus>>("shade-load-status", "shade-load status --json");
    is_described::<Vec<DaemonFigures>>("shade-load-top", "shade-load top --once --json");
    is_described::<Diagnosis>("shade-load-doctor", "shade-load doctor --json");
    is_described::<Comparison>("shade-load-doctor-compare", "shade-load doctor --compare --json");
    is_described::<LoaderStats>("loader-stats", "Loader.stats()");
}
