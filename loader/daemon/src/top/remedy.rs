//! What a wait means, and what to do about it: the one table of it.

use serde::Serialize;

use super::shares::Shares;
use super::told::Daemon;

/// A trainer that waits less than this has nothing to gain.
pub(super) const WAITS_MIN: f64 = 0.02;
/// Workers that work for more of their time are the bound; else they wait for something, too.
const BUSY_MIN: f64 = 0.7;
/// A cache with less room than this is full.
const FULL_MIN: f64 = 0.9;

/// The largest cause of a wait, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Remedy {
    /// As in [`Shares::named`]; `None` while trainers hardly wait.
    pub(super) cause: Option<&'static str>,
    /// For people.
    pub(super) text: &'static str,
}

/// The remedy for a job's waits.
pub(super) fn remedy(waits: &Shares, ring_full: f64, daemon: &Daemon, workers_busy: f64) -> Remedy {
    if waits.all() < WAITS_MIN {
        let text = if ring_full > WAITS_MIN {
            "batches are ready before they are wanted: the training itself takes the time"
        } else {
            "batches come in time"
        };
        return Remedy { cause: None, text };
    }
    let [(cause, _), ..] = waits.named();
    let is_full = daemon.cache_used_bytes as f64 >= FULL_MIN * daemon.cache_bytes as f64;
    let text = match cause {
        "storage" if daemon.reads_late > 0 => {
            "the store does not answer some reads: see the daemon's log, and shade-load doctor"
        }
        "storage" if !is_full => {
            "the cache is still filling: epochs get faster until it is full; shade-load doctor says what the store gives"
        }
        "storage" => {
            "a larger cache (shade-load resize; simulate --recommend says which), or a faster store: shade-load doctor"
        }
        "workers" if workers_busy >= BUSY_MIN => {
            "decoding: more cores or --workers, smaller images (shade-pack create --max-side), decode in a group of jobs"
        }
        "workers" => {
            "workers are not busy all the time: other programs take the cores, or batches wait for single slow rows"
        }
        "plan" => {
            "the daemon's main thread: larger batches; other programs take its core, or an epoch is being drawn"
        }
        _ => {
            "ranks that have not begun the epoch: one that validates or saves while the others wait, or one that is gone"
        }
    };
    Remedy { cause: Some(cause), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(used: u64, reads_late: u32) -> Daemon {
        Daemon {
            pid: 1,
            dataset: String::new(),
            uptime_ns: 0,
            cache_bytes: 100,
            cache_used_bytes: used,
            workers: 1,
            depth: 1,
            reads_submitted: 0,
            reads_late,
            read_latency: None,
            jobs: Vec::new(),
        }
    }

    #[test]
    fn each_cause_has_its_remedy() {
        let waits = |storage, workers, plan, ranks| Shares { storage, workers, plan, ranks };
        let cases = [
            (waits(0.005, 0.005, 0.0, 0.0), daemon(100, 0), 1.0, None, "in time"),
            (waits(0.3, 0.1, 0.0, 0.0), daemon(100, 0), 1.0, Some("storage"), "larger cache"),
            (waits(0.3, 0.1, 0.0, 0.0), daemon(50, 0), 1.0, Some("storage"), "still filling"),
            (waits(0.3, 0.1, 0.0, 0.0), daemon(100, 2), 1.0, Some("storage"), "does not answer"),
            (waits(0.1, 0.3, 0.0, 0.0), daemon(100, 0), 0.9, Some("workers"), "more cores"),
            (waits(0.1, 0.3, 0.0, 0.0), daemon(100, 0), 0.2, Some("workers"), "not busy"),
            (waits(0.0, 0.0, 0.3, 0.1), daemon(100, 0), 0.2, Some("plan"), "main thread"),
            (waits(0.0, 0.0, 0.1, 0.3), daemon(100, 0), 0.2, Some("ranks"), "have not begun"),
        ];
        for (waits, daemon, busy, cause, text) in cases {
            let remedy = remedy(&waits, 0.0, &daemon, busy);
            assert!(remedy.cause == cause && remedy.text.contains(text), "{waits:?}: {remedy:?}");
        }
        let idle = remedy(&Shares::default(), 0.5, &daemon(100, 0), 0.0);
        assert!(idle.cause.is_none() && idle.text.contains("training itself"));
    }
}
