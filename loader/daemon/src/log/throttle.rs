//! A bound on how often one kind of line is logged, with a count of those that were left out.

use std::fmt;
use std::time::{Duration, Instant};

/// Lines that may come at once: enough to see what a fault has in common.
const BURST: u32 = 100;
/// Interval of lines after these.
const EVERY: Duration = Duration::from_secs(1);

/// Decides which lines of a kind are logged.
#[derive(Debug)]
pub struct Throttle {
    /// Lines that may come now.
    left: u32,
    /// Time at which `left` was last updated.
    counted: Instant,
    left_out: u64,
}

/// How many lines were left out before one that is logged; shows nothing for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut(u64);

impl Throttle {
    /// A throttle that has let nothing through yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, counted: now, left_out: 0 }
    }

    /// Whether a line may be logged now. It must end with the text of the result.
    pub fn admit(&mut self, now: Instant) -> Option<LeftOut> {
        self.refill(now);
        if self.left == 0 {
            self.left_out += 1;
            return None;
        }
        self.left -= 1;
        Some(LeftOut(std::mem::take(&mut self.left_out)))
    }

    /// How many lines were left out, once the flood is over and no later line has told it.
    pub fn settle(&mut self, now: Instant) -> Option<u64> {
        self.refill(now);
        (self.left_out > 0 && self.left > 1).then(|| std::mem::take(&mut self.left_out))
    }

    fn refill(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.counted).as_secs() / EVERY.as_secs();
        if earned > 0 {
            self.left = u32::try_from(earned).unwrap_or(BURST).saturating_add(self.left).min(BURST);
            self.counted = now;
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            lines => write!(f, " ({lines} lines like this one were left out before it)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_burst_then_a_line_a_second_and_no_line_is_uncounted() {
        let start = Instant::now();
        let mut throttle = Throttle::new(start);
        let (mut told, mut counted) = (0, 0);
        for ms in 0..10_000 {
            if let Some(LeftOut(before)) = throttle.admit(start + Duration::from_millis(ms)) {
                told += 1;
                counted += before + 1;
            }
        }
        assert_eq!(told, u64::from(BURST) + 9);
        // The flood has ended: what is missing is told once.
        let mut now = start + Duration::from_secs(10);
        assert_eq!(throttle.settle(now), None, "perhaps it goes on");
        now += Duration::from_secs(5);
        counted += throttle.settle(now).unwrap();
        assert_eq!(counted, 10_000);
        assert_eq!(throttle.settle(now), None);
        assert_eq!(throttle.admit(now), Some(LeftOut(0)));
    }

    #[test]
    fn what_was_left_out_is_part_of_the_next_line() {
        assert_eq!(LeftOut(0).to_string(), "");
        assert_eq!(LeftOut(7).to_string(), " (7 lines like this one were left out before it)");
    }
}
