//! The figures that `stats()` returns.

use serde::Serialize;
use shade_core::Stats;
use shade_reads::Reads;

#[derive(Serialize)]
struct Figures<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    /// Which engine reads, how, and why; names a simulated store as such.
    engine: &'a str,
    /// Reads that may be in flight now.
    depth: u32,
    /// Process id of the daemon.
    pid: u32,
    /// Version of the daemon.
    version: &'static str,
}

/// One JSON object.
pub(super) fn report(stats: &Stats, reads: &Reads) -> String {
    let figures = Figures {
        stats,
        engine: reads.description(),
        depth: reads.depth(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION"),
    };
    // Numbers, strings and lists with string keys always have a JSON form.
    serde_json::to_string(&figures).unwrap_or_default()
}
