//! When the store is done with an operation, if it serves a limited number at once.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// The operations in service. The one that came first is served first.
#[derive(Debug)]
pub(crate) struct Turns {
    delay: Duration,
    // None: any number.
    at_once: Option<NonZeroUsize>,
    // When the latest operations end, at most `at_once` of them, the earliest first.
    ends: VecDeque<Instant>,
}

impl Turns {
    /// Serves an operation in `delay`, and at most `at_once` of them at the same time.
    pub(crate) fn new(delay: Duration, at_once: Option<NonZeroUsize>) -> Self {
        Self { delay, at_once, ends: VecDeque::new() }
    }

    /// When an operation ends that came at `arrived`. Never earlier than those before it.
    pub(crate) fn end(&mut self, arrived: Instant) -> Instant {
        let Some(at_once) = self.at_once else { return arrived + self.delay };
        // All take equally long, so the place that is free next is that of the earliest end.
        let free = if self.ends.len() < at_once.get() { None } else { self.ends.pop_front() };
        let end = free.map_or(arrived, |free| free.max(arrived)) + self.delay;
        // Threads of the store may pass on two operations in the other order.
        let end = self.ends.back().map_or(end, |&last| last.max(end));
        self.ends.push_back(end);
        end
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::{Duration, Instant};

    use super::Turns;

    const DELAY: Duration = Duration::from_millis(2);

    /// Milliseconds after the first arrival at which operations end that came at `arrivals`.
    fn ends(at_once: usize, arrivals: &[u64]) -> Vec<u128> {
        let start = Instant::now();
        let mut turns = Turns::new(DELAY, NonZeroUsize::new(at_once));
        let end = |&arrival: &u64| turns.end(start + Duration::from_millis(arrival)) - start;
        arrivals.iter().map(end).map(|end| end.as_millis()).collect()
    }

    #[test]
    fn without_a_limit_all_end_after_the_delay() {
        assert_eq!(ends(0, &[0, 0, 0, 1, 1, 5]), [2, 2, 2, 3, 3, 7]);
    }

    #[test]
    fn what_is_above_the_limit_waits_for_its_turn() {
        assert_eq!(ends(2, &[0, 0, 0, 0, 0]), [2, 2, 4, 4, 6]);
        assert_eq!(ends(1, &[0, 1, 2]), [2, 4, 6]);
    }

    #[test]
    fn a_store_that_was_idle_serves_at_once() {
        assert_eq!(ends(2, &[0, 0, 10, 10, 11]), [2, 2, 12, 12, 14]);
    }

    #[test]
    fn ends_are_in_order_whatever_the_arrivals() {
        assert_eq!(ends(3, &[5, 4, 3, 0]), [7, 7, 7, 9]);
    }
}
