//! Signals by which a decoder ends the daemon, such as SIGSEGV: the worker's word in the ring's
//! memory says so before the process is gone.
//!
//! A panic is a row's fault. A decoder that aborts, or reads where nothing is, ends the process,
//! and nobody could say which record it was: several workers decode at once. The handler of such a
//! signal runs on the thread that has caused it, marks that thread's word, and lets the signal do
//! what it did before. A signal from outside meets a worker only if it is sent to its very thread,
//! and SIGKILL meets no handler: such deaths are no record's. Whichever thread it meets, the
//! trainer that has started the daemon, and is not its parent, is told of the signal.
#![expect(unsafe_code, reason = "a signal's handler is only to be had by system calls")]

use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

use libc::{c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use shade_formats::SampleId;
use shade_formats::ring::{Working, ended_by};
use shade_shm::WorkBoard;

use crate::log::LastWords;

/// What a decoder can end a process by.
const FATAL: [Signal; 6] =
    [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGILL, Signal::SIGFPE, Signal::SIGABRT, Signal::SIGTRAP];

/// What the signals did before, in the order of [`FATAL`].
static BEFORE: OnceLock<[SigAction; FATAL.len()]> = OnceLock::new();

thread_local! {
    /// The row that this thread makes, on its stack; null between two rows. Only this thread and
    /// its handler use it.
    static ROW: AtomicPtr<Row<'static>> = const { AtomicPtr::new(ptr::null_mut()) };
}

/// A row that a worker makes.
struct Row<'a> {
    board: &'a WorkBoard,
    worker: usize,
    word: u64,
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        note(ptr::null_mut());
        self.board.write(self.worker, 0);
    }
}

/// Runs `work`, with which worker number `worker` makes a row of `sample`, so that its client knows
/// what the daemon has died at.
pub(super) fn marked<T>(board: &WorkBoard, worker: usize, sample: SampleId, work: impl FnOnce() -> T) -> T {
    // Dropped at a panic, too.
    let row = Row { board, worker, word: Working::word(sample) };
    board.write(worker, row.word);
    let at = ptr::from_ref(&row).cast_mut().cast::<Row<'static>>();
    note(at);
    work()
}

/// The handler of this thread finds this row from now on. Nothing orders it for other threads.
fn note(made: *mut Row<'static>) {
    compiler_fence(Ordering::SeqCst);
    ROW.with(|row| row.store(made, Ordering::Relaxed));
    compiler_fence(Ordering::SeqCst);
}

/// From now on a worker that one of these signals ends marks its word.
///
/// # Errors
/// The system refuses a handler.
pub(super) fn watch() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    let ours = SigAction::new(
        SigHandler::SigAction(mark),
        // On the stack that std gives each thread for the overflow of its own.
        SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK,
        SigSet::empty(),
    );
    let mut before = Vec::with_capacity(FATAL.len());
    for signal in FATAL {
        // SAFETY: `mark` does nothing but what a signal's handler may: see there.
        before.push(unsafe { sigaction(signal, &ours) }?);
    }
    if let Ok(before) = before.try_into() {
        // Set before by another thread: then ours may be among them, which the default follows.
        let _ = BEFORE.set(before);
    }
    Ok(())
}

/// The handler. It stores to memory that is there, and makes system calls that a handler may make;
/// it takes no lock and no memory.
extern "C" fn mark(number: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    let row = ROW.with(|row| row.load(Ordering::Relaxed));
    // SAFETY: null, or a row on this thread's stack, which is interrupted here: `Row::drop` has
    // reset it otherwise. Nothing changes the row while it is there.
    if let Some(row) = unsafe { row.as_ref() } {
        row.board.write(row.worker, ended_by(row.word, u8::try_from(number).unwrap_or_default()));
    }
    LastWords::say_signal(number);
    // SAFETY: the system passes a valid `info` to a handler with SA_SIGINFO.
    let was_sent = unsafe { (*info).si_code } <= 0;
    let at = FATAL.iter().position(|signal| *signal as c_int == number);
    // What std does at an overflow of a stack is of no use to a signal that was sent: it would
    // return, and the daemon would go on.
    let before = at.filter(|_| !was_sent).and_then(|at| BEFORE.get()?.get(at));
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    if let Ok(signal) = Signal::try_from(number) {
        // SAFETY: the action is the one that was there before this handler, or the system's.
        let _ = unsafe { sigaction(signal, before.unwrap_or(&default)) };
    }
    // One that the processor raised comes again by itself, at the same instruction. One that was
    // sent is sent again; it is blocked here, and comes when the handler returns.
    if was_sent {
        // SAFETY: sends this thread a signal.
        let _ = unsafe { libc::raise(number) };
    }
}
