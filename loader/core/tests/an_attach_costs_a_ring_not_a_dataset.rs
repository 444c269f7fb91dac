//! What an attach allocates in the core does not grow with the dataset, except for the first rank
//! of a job.
#![expect(unsafe_code, reason = "an allocator that counts; it passes everything on")]

mod replay;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use replay::{Replay, index, spec};
use shade_job::Policy;

thread_local! {
    /// Bytes that this thread has allocated.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is the system's allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes allocated while rank 0 attaches and while rank 1 does, to a job over `samples` samples.
fn allocated(samples: u32) -> [usize; 2] {
    let mut replay = Replay::new(index(samples, 2, |id| 500 + id % 3), Policy::App, 64 << 10, 8, 1);
    [0, 1].map(|rank| {
        let before = ASKED.get();
        replay.attach(rank, rank, &spec(8, 2));
        ASKED.get() - before
    })
}

#[test]
fn only_the_first_rank_of_a_job_looks_at_all_samples() {
    let ([first_of_few, of_few], [first_of_many, of_many]) = (allocated(1_000), allocated(50_000));
    assert!(first_of_many > first_of_few + 49_000, "the count sees what a job needs: {first_of_many}");
    // Both attach to an existing job.
    assert!(of_many < of_few + 4096, "{of_many} bytes instead of {of_few}");
}
