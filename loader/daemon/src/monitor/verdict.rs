//! The sentence about the job that waits most: how much, for what, and what to do.

use shade_formats::printable::OneLine;

use super::figures::DaemonFigures;
use super::remedy::Remedy;
use super::shares::Shares;

/// The sentence in its parts.
pub(crate) struct Verdict {
    /// Share of the time that its ranks waited.
    pub(crate) waited: f64,
    /// "default WAITS 41.9 % for storage".
    pub(crate) said: String,
    /// What to do.
    pub(crate) remedy: String,
}

impl Verdict {
    /// About a job of this name, of a daemon that a command line names so.
    pub(crate) fn of(name: &str, waits: &Shares, remedy: Remedy, target: &str) -> Self {
        let waited = waits.all();
        let cause = remedy.cause.map_or_else(String::new, |cause| format!(" for {cause}"));
        // Any text may be a job's name, and this goes to a terminal.
        let said = format!("{} WAITS {:.1} %{cause}", OneLine(name), 100.0 * waited);
        Self { waited, said, remedy: remedy.text_for(target) }
    }
}

/// About the job that waits most; `None` without a job.
pub(crate) fn verdict(daemons: &[DaemonFigures]) -> Option<Verdict> {
    let jobs = daemons.iter().flat_map(|daemon| daemon.jobs.iter().map(move |job| (daemon, job)));
    let (daemon, job) = jobs.max_by(|left, right| left.1.waits.all().total_cmp(&right.1.waits.all()))?;
    Some(Verdict::of(&job.name, &job.waits, job.remedy, &daemon.target))
}
