//! Log lines that may come by the thousand: each kind has a rate limit of its own, so that none
//! hides another.

use std::time::Instant;

use crate::log::{Rate, Throttle};

/// The limits.
#[derive(Debug)]
pub(super) struct LogLimits {
    /// A dataset may have as many bad records as samples.
    bad_records: Throttle,
    /// With `on_error="raise"` an epoch ends at each of them.
    failed_epochs: Throttle,
    /// An epoch of a small dataset takes moments.
    ended_epochs: Throttle,
}

impl LogLimits {
    pub(super) fn new(now: Instant) -> Self {
        let [bad_records, failed_epochs, ended_epochs] = [(); 3].map(|()| Throttle::new(Rate::FAULTS, now));
        Self { bad_records, failed_epochs, ended_epochs }
    }

    pub(super) fn bad_record(&mut self, text: &str) {
        if let Some(left_out) = self.bad_records.admit(Instant::now()) {
            tracing::warn!("{text}{left_out}");
        }
    }

    pub(super) fn failed_epoch(&mut self, text: &str) {
        if let Some(left_out) = self.failed_epochs.admit(Instant::now()) {
            tracing::error!("{text}{left_out}");
        }
    }

    pub(super) fn ended_epoch(&mut self, text: &str) {
        if let Some(left_out) = self.ended_epochs.admit(Instant::now()) {
            tracing::info!("{text}{left_out}");
        }
    }

    /// Says how many lines were left out, once a flood is over.
    pub(super) fn settle(&mut self, now: Instant) {
        if let Some(lines) = self.bad_records.settle(now) {
            tracing::warn!("{lines} more lines about bad records were left out: stats() counts them");
        }
        if let Some(lines) = self.failed_epochs.settle(now) {
            tracing::error!("{lines} more lines about epochs that failed were left out");
        }
        if let Some(lines) = self.ended_epochs.settle(now) {
            tracing::info!("{lines} more lines about epochs that ended were left out");
        }
    }
}
