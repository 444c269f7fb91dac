//! What `shade-load status` is told.

use std::time::Instant;

use shade_formats::ids::ContentId;
use shade_job::Settings;

use super::serve::Daemon;
use crate::status::DaemonStatus;

impl Daemon {
    /// One JSON object.
    pub(super) fn status(&mut self) -> String {
        let silence = self.silence.tell(Instant::now());
        // No session has this number, so only figures of the whole daemon are in it.
        let shared = self.core.stats(0);
        let trouble = self.reads.trouble();
        let settings = self.lifecycle.settings.in_words_of(&Settings::default());
        let status = DaemonStatus {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ns: self.now_ns(),
            dataset: self.lifecycle.served.folder.clone(),
            socket: self.lifecycle.served.address.clone(),
            samples: self.lifecycle.served.samples,
            content_id: ContentId(self.lifecycle.served.content_id).to_string(),
            cache_bytes: shared.cache_bytes,
            cache_used_bytes: shared.cache_used_bytes,
            resident: shared.resident,
            workers: u32::try_from(self.workers.count()).unwrap_or(u32::MAX),
            depth: self.reads.depth(),
            reads_submitted: shared.reads_submitted,
            reads_late: shared.reads_late,
            reads_in_trouble: trouble.as_ref().map_or(0, |trouble| trouble.reads),
            store_trouble: trouble.map(|trouble| trouble.reason),
            read_latency: shared.read_latency,
            tier: shared.tier,
            settings,
            silence_longest_ns: silence.longest_ns,
            silence_ns: silence.recent_ns,
            linger_s: self.lifecycle.settings.linger().map(|linger| linger.as_secs_f64()),
            draining: self.lifecycle.is_draining(),
            jobs: shared.jobs,
        };
        // Numbers, strings and lists with string keys always have a JSON form.
        serde_json::to_string(&status).unwrap_or_default()
    }
}
