//! Trouble of the store, whose end reads wait for. It is logged once while it lasts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::fault::ReadFault;

/// Trouble of all reads together.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// It was logged and is not over.
    told: AtomicBool,
    /// Reads that wait for its end.
    waiting: AtomicUsize,
}

impl Outage {
    /// A read begins to wait for the end of trouble.
    pub(crate) fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
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
}
