//! Signals to stop: main is asked to end, and the process ends even if main does not move.
//!
//! Main ends in order: it tells trainers and waits for reads, for some seconds at most. Whatever
//! keeps it from that, a defect or a file system that does not answer, no signal may be in vain.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use shade_dataset::on_stop_signal;

use crate::log;

/// From the first signal to the end of the process. An end in order takes less than half of it.
const END_MAX: Duration = Duration::from_secs(10);
/// A second signal after this long is a user's, and not another copy of the first.
const AGAIN_MIN: Duration = Duration::from_secs(1);

/// Main has begun to end.
static MAIN_ENDS: AtomicBool = AtomicBool::new(false);

/// Main has begun to end, by a signal or for another reason.
pub(crate) fn main_ends() {
    MAIN_ENDS.store(true, Ordering::Relaxed);
}

/// From now on a signal calls `ask`. The process is killed 10 s later if it is still there; at a
/// second signal if main has not begun to end.
///
/// # Errors
/// When no thread or handler can be had.
pub(crate) fn watch(ask: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut first: Option<Instant> = None;
    on_stop_signal(move || {
        ask();
        match first {
            None => {
                first = Some(Instant::now());
                end_later();
            }
            Some(at) if at.elapsed() >= AGAIN_MIN && !MAIN_ENDS.load(Ordering::Relaxed) => {
                end_now("a second signal");
            }
            Some(_) => {}
        }
    })
}

/// Kills this process in a while.
fn end_later() {
    let thread = std::thread::Builder::new().name("shade-end".into());
    let started = thread.spawn(|| {
        std::thread::sleep(END_MAX);
        end_now("10 s after a signal");
    });
    if let Err(error) = started {
        tracing::warn!("nothing but a second signal ends a process that does not move: {error}");
    }
}

/// Ends this process whatever its other threads do. SIGKILL is the one way that waits for nobody.
fn end_now(when: &str) {
    tracing::error!("process {} has not ended, and is killed: {when}", process::id());
    log::flush();
    let _ = kill_process(getpid(), Signal::KILL);
}
