//! How far an arena is in use, and up to where memory was found for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Memory is found in chunks of a huge page's size, on x86-64 and on 64-bit Arm with small pages of
/// 4 KiB.
pub(super) const CHUNK_BYTES: usize = 2 << 20;

/// The pages that a chunk of memory consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Huge where the system has them, else small.
    Huge,
    /// Small whatever the system has.
    Small,
}

/// How far an arena is in use; wakes the threads that wait for that to change.
#[derive(Debug, Default)]
pub(super) struct Frontier {
    /// Chunks from the arena's start up to the furthest one that was written to.
    reached: AtomicUsize,
    /// The next chunk to find memory for.
    next: Mutex<Cursor>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Cursor {
    chunk: usize,
    stopped: bool,
}

impl Frontier {
    /// Bytes up to `end` are about to be written to. Costs one comparison, except when a chunk is
    /// entered first.
    pub(super) fn reach(&self, end: usize) {
        let chunks = end.div_ceil(CHUNK_BYTES);
        if chunks > self.reached.load(Ordering::Relaxed) {
            // Under the lock, so that no waiting thread misses it.
            let _next = self.lock();
            self.reached.fetch_max(chunks, Ordering::Relaxed);
            self.moved.notify_all();
        }
    }

    /// Chunks from the arena's start that have memory, or are about to.
    pub(super) fn found_chunks(&self) -> usize {
        self.lock().chunk.max(self.reached.load(Ordering::Relaxed))
    }

    /// Waits until the next of `chunks` chunks is at most `lead` ahead of what is in use, and
    /// something is in use. `None` when there are no more.
    pub(super) fn next(&self, chunks: usize, lead: usize) -> Option<usize> {
        let mut next = self.lock();
        loop {
            if next.stopped || next.chunk >= chunks {
                return None;
            }
            let reached = self.reached.load(Ordering::Relaxed);
            // At the start a daemon has other things to do.
            if reached > 0 && next.chunk < reached.saturating_add(lead) {
                next.chunk += 1;
                return Some(next.chunk - 1);
            }
            next = self.moved.wait(next).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The arena now has this number of chunks: those beyond have no memory any more. Threads may
    /// wait again after a [`stop`](Self::stop).
    pub(super) fn restart(&self, chunks: usize) {
        let mut next = self.lock();
        *next = Cursor { chunk: next.chunk.min(chunks), stopped: false };
        self.reached.fetch_min(chunks, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.moved.notify_all();
    }

    /// No holder of this lock leaves anything half-done.
    fn lock(&self) -> MutexGuard<'_, Cursor> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAD: usize = 8;
    const CHUNKS: usize = LEAD + 4;

    #[test]
    fn memory_is_found_so_far_ahead_and_no_further() {
        let frontier = Frontier::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| frontier.next(CHUNKS, LEAD));
            // Whether it waits by now or not, this lets it go on.
            frontier.reach(1);
            assert_eq!(waiting.join().unwrap(), Some(0));
        });
        for chunk in 1..=LEAD {
            assert_eq!(frontier.next(CHUNKS, LEAD), Some(chunk));
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| frontier.next(CHUNKS, LEAD));
            frontier.reach(2 * CHUNK_BYTES);
            assert_eq!(waiting.join().unwrap(), Some(LEAD + 1));
        });
        frontier.reach(CHUNKS * CHUNK_BYTES);
        frontier.reach(1);
        assert_eq!(frontier.next(CHUNKS, LEAD), Some(LEAD + 2));
        assert_eq!(frontier.next(CHUNKS, LEAD), Some(LEAD + 3));
        assert_eq!(frontier.next(CHUNKS, LEAD), None, "that was all");
    }

    #[test]
    fn what_an_arena_gave_back_is_found_again() {
        let frontier = Frontier::default();
        frontier.reach(CHUNKS * CHUNK_BYTES);
        (0..CHUNKS).for_each(|chunk| assert_eq!(frontier.next(CHUNKS, LEAD), Some(chunk)));
        frontier.stop();
        frontier.restart(2);
        assert_eq!((frontier.found_chunks(), frontier.next(2, LEAD)), (2, None));
        assert_eq!(frontier.next(CHUNKS, LEAD), Some(2), "it has grown");
    }

    #[test]
    fn who_waits_for_reads_hears_of_the_end() {
        let frontier = Frontier::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| frontier.next(CHUNKS, LEAD));
            frontier.stop();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }
}
