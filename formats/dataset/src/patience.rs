//! Asks an object store again while its trouble may pass, for those who wait for each answer. Reads
//! of shards have their own rules, in `rules`, and wait here, too.

use std::time::{Duration, Instant};

use shade_store::{Answer, StoreFault};

/// How long something small is asked for, as an index.
const SMALL_LASTS: Duration = Duration::from_secs(15);
/// First wait before a store is asked again; it doubles.
const WAIT: Duration = Duration::from_millis(100);
/// Longest wait between two questions, unless the store asks for a longer one.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Interval at which a wait looks whether it is stopped.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// Whether those who wait for the end of trouble must end now.
pub type IsStopped<'a> = &'a (dyn Fn() -> bool + Sync);

/// How long trouble of a store is waited for.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// The longest time.
    pub lasts: Duration,
    /// The store has answered well before: that it cannot be reached, or answers with other bytes,
    /// is then trouble, too.
    pub has_answered: bool,
    /// Whether nobody wants the answer any more.
    pub is_stopped: IsStopped<'a>,
}

/// Asks a store for something small, and again while the trouble may pass: for 15 s.
///
/// # Errors
/// What the store answers instead, at last.
pub fn patiently<T>(ask: impl FnMut() -> Result<T, StoreFault>) -> Result<T, StoreFault> {
    Patience { lasts: SMALL_LASTS, has_answered: false, is_stopped: &|| false }.ask(ask)
}

impl Patience<'_> {
    /// Asks, and again while the trouble may pass.
    ///
    /// # Errors
    /// What the store answers: at once if that will not pass, else the last answer.
    pub fn ask<T>(&self, mut ask: impl FnMut() -> Result<T, StoreFault>) -> Result<T, StoreFault> {
        let (since, mut wait) = (Instant::now(), WAIT);
        loop {
            let fault = match ask() {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let asked = fault.wait.unwrap_or_default().min(self.lasts / 4);
            let is_over = since.elapsed() + wait >= self.lasts;
            if is_over || !self.may_pass(fault.answer) || !sleep(wait.max(asked), self.is_stopped) {
                return Err(fault);
            }
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    fn may_pass(&self, answer: Answer) -> bool {
        match answer {
            Answer::SlowDown | Answer::Broken | Answer::Cut | Answer::TimedOut => true,
            Answer::Unreachable | Answer::Insecure | Answer::NoKeys | Answer::Wrong => self.has_answered,
            Answer::Forbidden
            | Answer::NotFound
            | Answer::Changed
            | Answer::OutOfRange
            | Answer::Refused
            | Answer::OddName
            | Answer::Unasked => false,
        }
    }
}

/// Waits; says whether it was not stopped.
pub(crate) fn sleep(wait: Duration, is_stopped: IsStopped<'_>) -> bool {
    let until = Instant::now() + wait;
    loop {
        if is_stopped() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STOP_LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_stopped() {
        assert!(sleep(Duration::ZERO, &|| false));
        assert!(!sleep(Duration::from_secs(3600), &|| true));
    }

    fn fault(answer: Answer) -> StoreFault {
        StoreFault { answer, status: None, wait: None, words: String::new() }
    }

    fn patience(has_answered: bool) -> Patience<'static> {
        Patience { lasts: Duration::from_secs(15), has_answered, is_stopped: &|| false }
    }

    #[test]
    fn trouble_that_may_pass_is_waited_for_and_other_trouble_is_not() {
        let asked = |answer, has_answered| {
            let mut asked = 0;
            let last = patience(has_answered).ask(|| {
                asked += 1;
                if asked < 3 { Err(fault(answer)) } else { Ok(()) }
            });
            (asked, last.is_ok())
        };
        for answer in [Answer::SlowDown, Answer::Broken, Answer::Cut, Answer::TimedOut] {
            assert_eq!(asked(answer, false), (3, true), "{answer:?}");
        }
        for answer in [Answer::Unreachable, Answer::Insecure, Answer::NoKeys, Answer::Wrong] {
            assert_eq!(asked(answer, false), (1, false), "{answer:?}");
            assert_eq!(asked(answer, true), (3, true), "{answer:?}");
        }
        for answer in [Answer::Forbidden, Answer::NotFound, Answer::Changed, Answer::OutOfRange] {
            assert_eq!(asked(answer, true), (1, false), "{answer:?}");
        }
    }

    #[test]
    fn patience_ends_and_a_stop_ends_it() {
        let short = Patience { lasts: Duration::from_millis(250), ..patience(false) };
        assert_eq!(short.ask(|| Err::<(), _>(fault(Answer::Broken))), Err(fault(Answer::Broken)));
        let mut asked = 0;
        let stopped = Patience { is_stopped: &|| true, ..patience(false) };
        let last = stopped.ask(|| {
            asked += 1;
            Err::<(), _>(fault(Answer::Broken))
        });
        assert_eq!((last, asked), (Err(fault(Answer::Broken)), 1));
    }
}
