//! Finds memory for an arena ahead of the reads that fill it, on threads of its own.
//!
//! Fresh memory is slow: the kernel zeroes it, and a virtual machine's host may have to find it
//! first. A read into fresh memory waits for that on the thread that submits it, page after page.
//!
//! Which pages are faster depends on the machine, so both kinds are tried now and then. The threads
//! end when the whole arena has memory, or with the daemon. Others are started for an arena that
//! has grown; it is resized while there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::frontier::{CHUNK_BYTES, Pages};

/// How far ahead of the furthest block in use each thread finds memory, in chunks. The first does a
/// quarter of a second at 1 GB/s. The others help where reads come close, as they do where the host
/// has to find memory first: they wait for the host more than they need a core. More than four
/// threads find hardly more. With all four always ahead, reads had too little of two cores.
const LEADS: [usize; 4] = [(256 << 20) / CHUNK_BYTES, 8, 4, 2];
/// In each run of this many chunks, the first few are trials.
const TRIAL_EVERY: usize = 256;
/// Chunks of each kind of page that are tried in a row.
const TRIAL_CHUNKS: usize = 8;

/// How long a chunk takes in each kind of page, smoothed, in ns; 0 while that is not known.
#[derive(Debug, Default)]
struct PageTimes {
    huge_ns: AtomicU64,
    small_ns: AtomicU64,
}

impl PageTimes {
    /// The pages for this chunk: a trial, or what comes faster.
    fn pages(&self, chunk: usize) -> Pages {
        match chunk % TRIAL_EVERY {
            trial if trial < TRIAL_CHUNKS => Pages::Huge,
            trial if trial < 2 * TRIAL_CHUNKS => Pages::Small,
            _ => self.faster(),
        }
    }

    /// Huge pages, unless they take half as long again as small ones: a direct read into huge pages
    /// takes two thirds of the CPU time.
    fn faster(&self) -> Pages {
        let (huge, small) = (self.huge_ns.load(Ordering::Relaxed), self.small_ns.load(Ordering::Relaxed));
        if small.saturating_mul(3) < huge.saturating_mul(2) { Pages::Small } else { Pages::Huge }
    }

    fn took(&self, pages: Pages, time: Duration) {
        let kind = if pages == Pages::Huge { &self.huge_ns } else { &self.small_ns };
        let (old, new) = (kind.load(Ordering::Relaxed), u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        // Two threads may do this at once: then one of the two times is lost.
        kind.store(if old == 0 { new } else { old - old / 4 + new / 4 }, Ordering::Relaxed);
    }
}

/// The threads that find memory for an arena. When this is dropped they are told to stop and waited
/// for.
#[derive(Debug)]
pub struct Prefault {
    arena: Arc<Arena>,
    threads: Vec<JoinHandle<()>>,
}

impl Prefault {
    /// Starts as many of the threads as can be made. Without any, reads find memory for themselves.
    #[must_use]
    pub fn start(arena: Arc<Arena>) -> Self {
        let times = Arc::new(PageTimes::default());
        arena.frontier().restart(arena.chunks());
        let mut prefault = Self { arena, threads: Vec::new() };
        for lead in LEADS {
            let (arena, times) = (Arc::clone(&prefault.arena), Arc::clone(&times));
            let thread = std::thread::Builder::new().name("shade-prefault".into());
            match thread.spawn(move || run(&arena, &times, lead)) {
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
            // A panic there was told already; nothing depends on these threads.
            let _ = thread.join();
        }
    }
}

fn run(arena: &Arena, times: &PageTimes, lead: usize) {
    while let Some(chunk) = arena.frontier().next(arena.chunks(), lead) {
        let pages = times.pages(chunk);
        let begun = Instant::now();
        if let Err(error) = arena.find_memory(chunk, pages) {
            // Linux before 5.14, or memory is short: reads then find it for themselves, or fail.
            tracing::debug!("memory is not found ahead of reads any more: {error}");
            return;
        }
        times.took(pages, begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::super::resident_bytes;
    use super::*;

    #[test]
    fn pages_are_huge_unless_small_ones_come_much_faster() {
        let times = PageTimes::default();
        assert_eq!([0, 7, 8, 15, 16].map(|at| times.pages(at)), {
            use Pages::{Huge, Small};
            [Huge, Huge, Small, Small, Huge]
        });
        times.took(Pages::Huge, Duration::from_micros(140));
        times.took(Pages::Small, Duration::from_micros(100));
        assert_eq!(times.pages(16), Pages::Huge);
        times.took(Pages::Huge, Duration::from_micros(4000));
        assert_eq!(times.pages(255), Pages::Small);
        assert_eq!(times.pages(256), Pages::Huge, "it may have changed");
        for _ in 0..20 {
            times.took(Pages::Huge, Duration::from_micros(100));
        }
        assert_eq!(times.pages(255), Pages::Huge);
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
        assert_eq!(resident_bytes(arena.addresses()) as u64, arena.bytes());
        assert_eq!(arena.unfound_bytes(), 0);
    }

    #[test]
    fn an_arena_that_was_resized_has_memory_for_the_rest() {
        let (arena, mut free) = Arena::create_up_to(8 << 20, 40 << 20, 4096).unwrap();
        let arena = Arc::new(arena);
        let find = || {
            let mut prefault = Prefault::start(Arc::clone(&arena));
            arena.frontier().reach(1);
            prefault.threads.swap_remove(0).join().unwrap();
        };
        let resident = || resident_bytes(arena.addresses()) as u64;
        find();
        assert_eq!((resident(), arena.unfound_bytes()), (8 << 20, 0));
        free.add(arena.grow(40 << 20).unwrap());
        free.set_limit(40 << 20);
        assert_eq!((resident(), arena.unfound_bytes()), (8 << 20, 32 << 20));
        find();
        assert_eq!((resident(), arena.unfound_bytes()), (40 << 20, 0));
        free.set_limit(4 << 20);
        arena.shrink(free.cut(u64::MAX).unwrap()).unwrap();
        assert_eq!(resident(), 4 << 20, "the memory is the system's again");
        find();
        assert_eq!((resident(), arena.unfound_bytes(), free.total_bytes()), (4 << 20, 0, 4 << 20));
    }
}
