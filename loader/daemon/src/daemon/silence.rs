//! How long main was busy without a look at what has come: meanwhile it serves nobody.

use std::time::{Duration, Instant};

/// The longest times, of those between two looks in which it did not wait.
#[derive(Debug)]
pub(super) struct Silence {
    /// When it began to work on what had come.
    since: Instant,
    longest: Duration,
    /// The longest since it was asked last.
    recent: Duration,
}

/// What status and `stats()` tell of it, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToldSilence {
    pub(super) longest_ns: u64,
    pub(super) recent_ns: u64,
}

impl Silence {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, longest: Duration::ZERO, recent: Duration::ZERO }
    }

    /// Something has come, or a wait has ended.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// All that had come is done.
    pub(super) fn end(&mut self, now: Instant) {
        let silent = now.saturating_duration_since(self.since);
        self.longest = self.longest.max(silent);
        self.recent = self.recent.max(silent);
    }

    /// Somebody asks in the middle of the work, which counts as far as it has come.
    pub(super) fn tell(&mut self, now: Instant) -> ToldSilence {
        self.end(now);
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        ToldSilence { longest_ns: ns(self.longest), recent_ns: ns(std::mem::take(&mut self.recent)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_no_silence_and_the_longest_stays() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut silence = Silence::new(start);
        for (begin, end) in [(0, 5), (100, 130), (1000, 1007)] {
            silence.begin(at(begin));
            silence.end(at(end));
        }
        let told = |told: ToldSilence| (told.longest_ns, told.recent_ns);
        assert_eq!(told(silence.tell(at(1007))), (30_000_000, 30_000_000));
        silence.begin(at(2000));
        assert_eq!(told(silence.tell(at(2020))), (30_000_000, 20_000_000), "under way");
        silence.end(at(2050));
        assert_eq!(told(silence.tell(at(2050))), (50_000_000, 50_000_000));
        silence.begin(at(3000));
        assert_eq!(told(silence.tell(at(3000))), (50_000_000, 0));
    }
}
