//! The figures that `stats()` returns.

use serde::Serialize;
use shade_core::Stats;
use shade_reads::Reads;

use super::silence::ToldSilence;

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
    /// Longest time for which the daemon's main thread was busy without a look at what had come:
    /// nobody was served meanwhile.
    silence_longest_ns: u64,
    /// The longest since `stats()`, `shade-load status`, `top` or `export` of anybody asked last.
    silence_ns: u64,
}

/// One JSON object.
pub(super) fn report(stats: &Stats, reads: &Reads, silence: ToldSilence) -> String {
    let figures = Figures {
        stats,
        engine: reads.description(),
        depth: reads.depth(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION"),
        silence_longest_ns: silence.longest_ns,
        silence_ns: silence.recent_ns,
    };
    // Numbers, strings and lists with string keys always have a JSON form.
    serde_json::to_string(&figures).unwrap_or_default()
}
