//! What `shade-load status` is told.

use std::collections::BTreeMap;

use serde::Serialize;
use shade_core::JobStatus;
use shade_formats::control::Settings;
use shade_formats::ids::ContentId;

use super::serve::Daemon;

/// CONTROL.md describes it.
#[derive(Serialize)]
struct Status<'a> {
    pid: u32,
    version: &'static str,
    dataset: &'a str,
    socket: &'a str,
    samples: u32,
    content_id: String,
    cache_bytes: u64,
    cache_used_bytes: u64,
    resident: u64,
    settings: BTreeMap<&'a str, &'a str>,
    linger_s: Option<f64>,
    draining: bool,
    jobs: Vec<JobStatus>,
}

/// One JSON object.
pub(super) fn status(daemon: &Daemon) -> String {
    // No session has this number, so only figures of the whole daemon are in it.
    let shared = daemon.core.stats(0);
    let settings = daemon.settings.in_words_of(&Settings::default());
    let status = Status {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION"),
        dataset: &daemon.served.folder,
        socket: &daemon.served.address,
        samples: daemon.served.samples,
        content_id: ContentId(daemon.served.content_id).to_string(),
        cache_bytes: shared.cache_bytes,
        cache_used_bytes: shared.cache_used_bytes,
        resident: shared.resident,
        settings: settings.iter().collect(),
        linger_s: daemon.linger.map(|linger| linger.as_secs_f64()),
        draining: daemon.draining,
        jobs: shared.jobs,
    };
    // Numbers, strings and lists with string keys always have a JSON form.
    serde_json::to_string(&status).unwrap_or_default()
}
