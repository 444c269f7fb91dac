//! The requests of ranks, and the figures that `stats()` returns.

use std::time::Instant;

use serde::Serialize;
use shade_core::{BaseVersion, Stats};
use shade_formats::control::{Reply, Request};
use shade_reads::Reads;

use super::Event;
use super::serve::Daemon;
use super::silence::ToldSilence;

impl Daemon {
    /// Answers the ranks that have asked for figures. These include all that they sent before.
    pub(super) fn tell_stats(&mut self) {
        let asked = std::mem::take(&mut self.stats_asked);
        for session in asked {
            if self.core.is_postponed(session) {
                self.stats_asked.push(session);
                continue;
            }
            let silence = self.silence.tell(Instant::now());
            let json = report(&self.core.stats(session), &self.reads, silence);
            self.sessions.reply(session, &Reply::Stats { json });
        }
    }

    /// Turns a rank's request into an event, or answers it at once.
    pub(super) fn request(&mut self, session: u32, request: Request, state: Vec<u8>) {
        match request {
            Request::StartEpoch { generation, epoch, first_batch, has_taken } => {
                if has_taken {
                    self.reads.store_has_answered();
                }
                let start = Event::StartEpoch { session, generation, epoch, first_batch, has_taken };
                self.events.push(start);
            }
            Request::Report { epoch, batch, losses } => {
                self.events.push(Event::Report { session, epoch, batch, losses });
            }
            Request::ReportValidation { score } => {
                self.events.push(Event::Validation { session, score });
            }
            Request::SaveState { epoch, batch } => {
                self.events.push(Event::SaveState { session, epoch, batch });
            }
            Request::LoadState { strata } => {
                self.events.push(Event::LoadState { session, strata, bytes: state });
            }
            Request::TellScores { epoch } => self.events.push(Event::TellScores { session, epoch }),
            Request::TakeScores => self.events.push(Event::TakeScores { session, bytes: state }),
            Request::TakeBase { loads, begun } => {
                let version = BaseVersion { loads, begun };
                self.events.push(Event::TakeBase { session, version, bytes: state });
            }
            Request::TakeRedo => self.events.push(Event::TakeRedo { session, bytes: state }),
            Request::Seat => self.events.push(Event::Seat { session, bytes: state }),
            Request::Bound { why } => self.sessions.bind(session, why),
            Request::Avoid { samples } => {
                let served = self.lifecycle.served.samples;
                if let Some(unknown) = samples.iter().find(|&&sample| sample >= served) {
                    let text = format!("it tells of sample {unknown}, and there are {served}");
                    return self.sessions.close(session, &text);
                }
                tracing::warn!(
                    "session {session}: no row is made of samples {samples:?}, at which daemons before this one have \
                     ended twice"
                );
                self.sessions.avoid(session, samples);
            }
            Request::Stats => {
                self.stats_asked.push(session);
                self.turn();
                self.tell_stats();
            }
            Request::Resize { cache, .. } => {
                let reply = self.resize_for(session, &cache);
                self.sessions.reply(session, &reply);
            }
            Request::ResizeAgain { cache_bytes } => {
                let reply = self.resize_again(cache_bytes);
                self.sessions.reply(session, &reply);
            }
            Request::Hello { .. }
            | Request::Observe { .. }
            | Request::Status { .. }
            | Request::Stop { .. }
            | Request::Replace { .. }
            | Request::Held { .. }
            | Request::Log
            | Request::Bye => self.sessions.close(session, "a second hello"),
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Figures<'a> {
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
fn report(stats: &Stats, reads: &Reads, silence: ToldSilence) -> String {
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
