//! Trouble of the store, whose end reads wait for. It is logged once while it lasts, and its reason
//! is kept for those who ask why nothing comes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fault::ReadFault;

/// Trouble that was met so long ago is still told: a store that refuses one request in ten has
/// moments in which no read waits.
const RECENT: Duration = Duration::from_secs(2);

/// Why reads wait, besides for answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    /// In a few words: "503: asks for a slower pace".
    pub reason: String,
    /// Reads that wait now before they are tried again.
    pub reads: u32,
}

/// Trouble of all reads together.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// It was logged and is not over.
    told: AtomicBool,
    /// Reads that wait for its end.
    waiting: AtomicU32,
    /// The last trouble.
    last: Mutex<Option<Met>>,
}

/// Trouble that a read has met.
#[derive(Debug)]
struct Met {
    at: Instant,
    reason: String,
}

impl Outage {
    /// A read begins to wait for the end of trouble.
    pub(crate) fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// A read has met this, at its first try or at a later one.
    pub(crate) fn meet(&self, fault: &ReadFault, at: Instant) {
        let met = Met { at, reason: fault.in_short() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(met);
    }

    /// What reads wait for, if they do or did lately.
    pub(crate) fn now(&self, now: Instant) -> Option<StoreTrouble> {
        let reads = self.waiting.load(Ordering::Relaxed);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |met: &&Met| reads > 0 || now.saturating_duration_since(met.at) < RECENT;
        let met = last.as_ref().filter(is_recent)?;
        Some(StoreTrouble { reason: met.reason.clone(), reads })
    }

    /// Logs trouble that reads wait for until `patience` is over, once while it lasts.
    pub(crate) fn tell(&self, fault: &ReadFault, patience: Duration) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!("{fault}: trying again for {patience:?}; no record is given up for it");
        }
    }

    /// A read that had trouble ends: it went well, or its patience is over. Once no read waits, the
    /// next trouble is a new one.
    pub(crate) fn end(&self, is_well: bool) {
        let was_last = self.waiting.fetch_sub(1, Ordering::Relaxed) == 1;
        let was_told = (is_well || was_last) && self.told.swap(false, Ordering::Relaxed);
        if was_told && is_well {
            tracing::warn!("shards can be read again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use shade_store::{Answer, StoreFault};

    #[test]
    fn trouble_is_told_once_while_it_lasts_and_again_when_it_comes_again() {
        let outage = Outage::default();
        let is_told = || outage.told.load(Ordering::Relaxed);
        let fault = ReadFault::UnknownShard;
        outage.begin();
        outage.begin();
        outage.tell(&fault, Duration::ZERO);
        outage.end(false);
        assert!(is_told(), "one still waits");
        outage.end(false);
        assert!(!is_told(), "the patience of all is over: the next outage is told");
        outage.begin();
        outage.tell(&fault, Duration::ZERO);
        outage.end(true);
        assert!(!is_told());
    }

    #[test]
    fn the_reason_is_kept_while_reads_wait_and_a_moment_longer() {
        let tried = Duration::ZERO;
        let answered = |answer, status| {
            let fault = StoreFault { answer, status, wait: None, words: "SlowDown".to_owned() };
            ReadFault::Store { fault, tried }
        };
        let cases = [
            (answered(Answer::SlowDown, Some(503)), "503: asks for a slower pace"),
            (answered(Answer::SlowDown, Some(429)), "429: asks for a slower pace"),
            (answered(Answer::Forbidden, Some(403)), "403: refuses these keys"),
            (answered(Answer::NotFound, Some(404)), "404: there is no such object"),
            (answered(Answer::Broken, Some(500)), "500: failed"),
            (answered(Answer::Cut, None), "the connection was cut"),
            (answered(Answer::Unreachable, None), "cannot be reached"),
            (ReadFault::Refused { path: "/s".into(), errno: Errno::ACCESS, tried }, "Permission denied"),
        ];
        for (fault, reason) in cases {
            let (outage, met) = (Outage::default(), Instant::now());
            assert_eq!(outage.now(met), None);
            outage.begin();
            outage.meet(&fault, met);
            let trouble = |reads| Some(StoreTrouble { reason: reason.to_owned(), reads });
            assert_eq!(outage.now(met + 10 * RECENT), trouble(1));
            outage.end(true);
            assert_eq!(outage.now(met), trouble(0));
            assert_eq!(outage.now(met + RECENT), None);
        }
    }
}
