//! A bound on how often one kind of line is logged, with a count of those that were left out.

use std::fmt;
use std::time::{Duration, Instant};

/// How many lines of a kind are logged.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Lines that may come at once.
    burst: u32,
    /// Interval of lines after these.
    every: Duration,
}

impl Rate {
    /// Lines that the user wants to see: enough at once to see what a fault has in common.
    pub const FAULTS: Self = Self { burst: 100, every: Duration::from_secs(1) };
    /// Lines about strangers: any user of the machine can cause them, and none is about a training.
    pub const STRANGERS: Self = Self { burst: 1, every: Duration::from_secs(60) };
}

/// Decides which lines of a kind are logged.
#[derive(Debug)]
pub struct Throttle {
    rate: Rate,
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
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, counted: now, left_out: 0 }
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
        let Rate { burst, every } = self.rate;
        let earned = now.saturating_duration_since(self.counted).as_secs() / every.as_secs().max(1);
        if earned > 0 {
            self.left = u32::try_from(earned).unwrap_or(burst).saturating_add(self.left).min(burst);
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
        let mut throttle = Throttle::new(Rate::FAULTS, start);
        let (mut told, mut counted) = (0, 0);
        for ms in 0..10_000 {
            if let Some(LeftOut(before)) = throttle.admit(start + Duration::from_millis(ms)) {
                told += 1;
                counted += before + 1;
            }
        }
        assert_eq!(told, 109);
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
    fn a_flood_of_strangers_is_a_line_then_a_count_a_minute() {
        let start = Instant::now();
        let mut throttle = Throttle::new(Rate::STRANGERS, start);
        let told: Vec<LeftOut> =
            (0..180).filter_map(|s| throttle.admit(start + Duration::from_secs(s))).collect();
        assert_eq!(told, [LeftOut(0), LeftOut(59), LeftOut(59)]);
    }

    #[test]
    fn what_was_left_out_is_part_of_the_next_line() {
        assert_eq!(LeftOut(0).to_string(), "");
        assert_eq!(LeftOut(7).to_string(), " (7 lines like this one were left out before it)");
    }
}
