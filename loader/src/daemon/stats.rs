//! The figures as `stats()` shows them.

use serde::Serialize;

use crate::core::Stats;

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    /// Which engine reads, how, and why; names a simulated store as such.
    engine: &'a str,
    pid: u32,
    version: &'static str,
}

/// One JSON object.
pub(super) fn report(stats: &Stats, engine: &str) -> String {
    let report = Report { stats, engine, pid: std::process::id(), version: env!("CARGO_PKG_VERSION") };
    // Numbers, strings and lists with string keys always have a JSON form.
    serde_json::to_string(&report).unwrap_or_default()
}
