//! Limits how many threads read at a time: as many as compute while files come from memory, more
//! while the store makes them wait. More would only crowd the CPUs and the kernel's locks: 64
//! threads for 2 CPUs took half as much system time again (4,000 JPEGs of 110 KB in the page
//! cache).

use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::error::Error;
use crate::interrupt::{Stop, lock, wait};

/// A file was waited for if opening, reading and closing it took this much longer than copying its
/// bytes. From the page cache it takes 10 to 20 µs; one round trip to a near server takes 100 µs,
/// and there are several.
const WAITED: Duration = Duration::from_micros(200);

/// A low rate for a copy from the page cache.
const COPIED_BYTES_PER_US: u64 = 500;

#[derive(Debug)]
pub(super) struct Readers {
    least: usize,
    most: usize,
    state: Mutex<ReadersState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ReadersState {
    allowed: usize,
    inside: usize,
}

/// A thread's place among the readers; left when dropped.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    readers: &'a Readers,
    /// How fast files came.
    pub(super) pace: ReadPace,
}

/// Tells whether a stretch was waited for, by its fastest file: only the store can make that slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadPace {
    fastest: Option<Duration>,
}

impl ReadPace {
    /// Counts a sample whose files have `bytes` bytes.
    pub(super) fn sample(&mut self, took: Duration, bytes: u64) {
        let beyond_copying = took.saturating_sub(Duration::from_micros(bytes / COPIED_BYTES_PER_US));
        self.fastest = Some(self.fastest.map_or(beyond_copying, |fastest| fastest.min(beyond_copying)));
    }

    fn is_waiting(self) -> bool {
        self.fastest.is_some_and(|fastest| fastest > WAITED)
    }
}

/// Twice as many after a wait, one fewer otherwise.
fn next_allowed(allowed: usize, waiting: bool, least: usize, most: usize) -> usize {
    let next = if waiting { allowed.saturating_mul(2) } else { allowed.saturating_sub(1) };
    next.clamp(least.min(most), most)
}

impl Readers {
    /// Starts with `least`, and lets in at most `most`.
    pub(super) fn new(least: NonZeroUsize, most: NonZeroUsize) -> Self {
        let (least, most) = (least.get(), most.get());
        let state = Mutex::new(ReadersState { allowed: least.min(most), inside: 0 });
        Self { least, most, state, changed: Condvar::new() }
    }

    pub(super) fn enter(&self, stop: &Stop) -> Result<Seat<'_>, Error> {
        let mut state = lock(&self.state);
        while state.inside >= state.allowed {
            state = wait(&self.changed, state, stop)?;
        }
        state.inside += 1;
        Ok(Seat { readers: self, pace: ReadPace::default() })
    }

    fn leave(&self, pace: ReadPace) {
        let mut state = lock(&self.state);
        state.inside = state.inside.saturating_sub(1);
        state.allowed = next_allowed(state.allowed, pace.is_waiting(), self.least, self.most);
        let room = state.allowed.saturating_sub(state.inside);
        drop(state);
        // A thread that leaves makes room for one, a wait for many.
        if room > 1 { self.changed.notify_all() } else { self.changed.notify_one() }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.readers.leave(self.pace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_doubles_and_its_end_shrinks_within_bounds() {
        let mut allowed = 2;
        for expected in [4, 8, 16, 32, 64, 64] {
            allowed = next_allowed(allowed, true, 2, 64);
            assert_eq!(allowed, expected);
        }
        for _ in 0..100 {
            allowed = next_allowed(allowed, false, 2, 64);
        }
        assert_eq!(allowed, 2);
        assert_eq!(next_allowed(1, true, 4, 1), 1);
    }

    #[test]
    fn the_fastest_file_tells_whether_the_store_is_slow() {
        let pace = |files: &[(u64, u64)]| {
            let mut pace = ReadPace::default();
            files.iter().for_each(|&(us, bytes)| pace.sample(Duration::from_micros(us), bytes));
            pace.is_waiting()
        };
        assert!(!pace(&[]));
        assert!(!pace(&[(15, 2000), (5000, 2000)]), "one was interrupted");
        assert!(pace(&[(2000, 2000), (2500, 2000)]));
        assert!(!pace(&[(1000, 1_000_000)]), "a large file takes its time");
        assert!(pace(&[(6000, 1_000_000)]));
    }

    #[test]
    fn no_more_than_allowed_are_inside_and_a_stop_ends_the_wait() {
        let one = NonZeroUsize::MIN;
        let (readers, stop) = (Readers::new(one, one), Stop::default());
        let seat = readers.enter(&stop).unwrap();
        stop.request();
        assert!(matches!(readers.enter(&stop), Err(Error::Interrupted)));
        drop(seat);
        drop(readers.enter(&stop).unwrap());
    }
}
