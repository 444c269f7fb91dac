//! Finds memory for an arena ahead of the reads that fill it, on threads of its own.
//!
//! Fresh memory is slow: the kernel zeroes it, and under a virtual machine the host may have to find it first. A read into
//! fresh memory waits for that on the thread that submits it, page after page.
//!
//! Which pages come faster depends on the machine, so both are tried now and then. The threads end when the whole arena has
//! memory and is in use, or with the daemon.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Arena;

/// Memory is found chunk by chunk: what a huge page holds on x86-64, and on 64-bit Arm with small
/// pages of 4 KiB.
pub(super) const CHUNK_BYTES: usize = 2 << 20;
/// How far ahead of the furthest block in use each thread finds memory, in chunks. The first does a quarter of a second at
/// 1 GB/s. The others help it where reads come close, as they do where the host has to find memory first: they wait for the
/// host more than they need a core, and more than four find hardly more. With all four ahead all the time reads had too little
/// of two cores.
const LEADS: [usize; 4] = [(256 << 20) / CHUNK_BYTES, 8, 4, 2];
/// In each run of so many chunks, the first few are trials.
const TRIAL_EVERY: usize = 256;
/// Chunks of each kind of page that are tried in a row.
const TRIAL_CHUNKS: usize = 8;

/// The pages that a chunk of memory consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Huge where the system has them, else small.
    Huge,
    /// Small whatever the system has.
    Small,
}

/// How far an arena is in use, and who waits to hear of it.
#[derive(Debug, Default)]
pub(super) struct Frontier {
    /// Chunks from the arena's start up to the furthest one that was written to.
    reached: AtomicUsize,
    /// The next chunk to find memory for.
    next: Mutex<Next>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Next {
    chunk: usize,
    stopped: bool,
}

impl Frontier {
    /// Bytes up to `end` are about to be written to. Costs one comparison, except when a chunk is entered first.
    pub(super) fn reach(&self, end: usize) {
        let chunks = end.div_ceil(CHUNK_BYTES);
        if chunks > self.reached.load(Ordering::Relaxed) {
            // Under the lock, so that nobody who has just looked misses it.
            let _next = self.lock();
            self.reached.fetch_max(chunks, Ordering::Relaxed);
            self.moved.notify_all();
        }
    }

    /// Chunks from the arena's start that have memory, or are about to.
    pub(super) fn found_chunks(&self) -> usize {
        self.lock().chunk.max(self.reached.load(Ordering::Relaxed))
    }

    /// Waits for the next of `chunks` chunks that is to be found, at most `lead` ahead of what is in use and not before
    /// anything is; `None` when there will be no more.
    fn next(&self, chunks: usize, lead: usize) -> Option<usize> {
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

    fn stop(&self) {
        self.lock().stopped = true;
        self.moved.notify_all();
    }

    /// Nothing is left half-done under this lock.
    fn lock(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a chunk takes in each kind of page, smoothed, in ns; 0 while that is not known.
#[derive(Debug, Default)]
struct Pace {
    huge_ns: AtomicU64,
    small_ns: AtomicU64,
}

impl Pace {
    /// The pages for this chunk: a trial, or what comes faster.
    fn pages(&self, chunk: usize) -> Pages {
        match chunk % TRIAL_EVERY {
            trial if trial < TRIAL_CHUNKS => Pages::Huge,
            trial if trial < 2 * TRIAL_CHUNKS => Pages::Small,
            _ => self.faster(),
        }
    }

    /// Huge pages, unless they take half as long again as small ones: a direct read into huge pages takes two thirds of the
    /// CPU time.
    fn faster(&self) -> Pages {
        let (huge, small) = (self.huge_ns.load(Ordering::Relaxed), self.small_ns.load(Ordering::Relaxed));
        if small.saturating_mul(3) < huge.saturating_mul(2) { Pages::Small } else { Pages::Huge }
    }

    fn took(&self, pages: Pages, time: Duration) {
        let kind = if pages == Pages::Huge { &self.huge_ns } else { &self.small_ns };
        let (old, new) = (kind.load(Ordering::Relaxed), u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        // Two threads may do this at once; then one of the two times is forgotten.
        kind.store(if old == 0 { new } else { old - old / 4 + new / 4 }, Ordering::Relaxed);
    }
}

/// The threads that find memory for an arena. They are told to stop, and waited for, when this is dropped.
#[derive(Debug)]
pub struct Prefault {
    arena: Arc<Arena>,
    threads: Vec<JoinHandle<()>>,
}

impl Prefault {
    /// Begins, with as many threads as can be made: without any, reads find memory for themselves.
    #[must_use]
    pub fn start(arena: Arc<Arena>) -> Self {
        let pace = Arc::new(Pace::default());
        let mut prefault = Self { arena, threads: Vec::new() };
        for lead in LEADS {
            let (arena, pace) = (Arc::clone(&prefault.arena), Arc::clone(&pace));
            let thread = std::thread::Builder::new().name("shade-prefault".into());
            match thread.spawn(move || run(&arena, &pace, lead)) {
                Ok(thread) => prefault.threads.push(thread),
                Err(error) => {
                    tracing::warn!(
                        "fewer threads find memory for the cache ahead of reads, as no more can be made: {error}"
                    );
                    break;
                }
            }
        }
        prefault
    }
}

impl Drop for Prefault {
    fn drop(&mut self) {
        self.arena.frontier().stop();
        for thread in self.threads.drain(..) {
            // A panic there has been told; nobody depends on what these threads do.
            let _ = thread.join();
        }
    }
}

fn run(arena: &Arena, pace: &Pace, lead: usize) {
    while let Some(chunk) = arena.frontier().next(arena.chunks(), lead) {
        let pages = pace.pages(chunk);
        let begun = Instant::now();
        if let Err(error) = arena.find_memory(chunk, pages) {
            // Linux before 5.14 cannot, or memory is short: then reads find it for themselves, or fail.
            tracing::debug!("memory is not found ahead of reads any more: {error}");
            return;
        }
        pace.took(pages, begun.elapsed());
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
    fn who_waits_for_reads_hears_of_the_end() {
        let frontier = Frontier::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| frontier.next(CHUNKS, LEAD));
            frontier.stop();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }

    #[test]
    fn pages_are_huge_unless_small_ones_come_much_faster() {
        let pace = Pace::default();
        assert_eq!([0, 7, 8, 15, 16].map(|at| pace.pages(at)), {
            use Pages::{Huge, Small};
            [Huge, Huge, Small, Small, Huge]
        });
        pace.took(Pages::Huge, Duration::from_micros(140));
        pace.took(Pages::Small, Duration::from_micros(100));
        assert_eq!(pace.pages(16), Pages::Huge);
        pace.took(Pages::Huge, Duration::from_micros(4000));
        assert_eq!(pace.pages(255), Pages::Small);
        assert_eq!(pace.pages(256), Pages::Huge, "it may have changed");
        for _ in 0..20 {
            pace.took(Pages::Huge, Duration::from_micros(100));
        }
        assert_eq!(pace.pages(255), Pages::Huge);
    }

    #[test]
    fn all_memory_is_there_before_it_is_written_to() {
        // Less than the furthest lead, and no whole number of chunks.
        let (arena, _free) = Arena::create((40 << 20) + 8192, 4096).unwrap();
        let arena = Arc::new(arena);
        let mut prefault = Prefault::start(Arc::clone(&arena));
        arena.frontier().reach(1);
        prefault.threads.swap_remove(0).join().unwrap();
        // What the others have begun is waited for.
        drop(prefault);
        assert_eq!(resident_bytes(&arena), arena.bytes());
        assert_eq!(arena.unfound_bytes(), 0);
    }

    /// Bytes of the arena that are resident in this process, by the system's own account.
    fn resident_bytes(arena: &Arena) -> u64 {
        let arena = arena.addresses();
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        let (mut bytes, mut inside) = (0, false);
        for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap();
            if let Some((start, end)) = first.split_once('-').and_then(|(a, b)| Some((hex(a)?, hex(b)?))) {
                inside = arena.start <= start && end <= arena.end;
            } else if inside && first == "Rss:" {
                bytes += words.next().unwrap().parse::<u64>().unwrap() * 1024;
            }
        }
        bytes
    }
}
