//! Last log lines and ends of the daemons that this process has started.
//!
//! A daemon outlives the rank that started it. Its whole log goes to the standard error of one
//! rank after the other; the lines kept here are for error texts.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, OnceLock, TryLockError};
use std::time::Duration;

use crate::fork::lock;

/// Lines of a daemon's log that are kept.
const LINES_MAX: usize = 20;
/// How long to wait for the end of a daemon that has hung up. The kernel frees a killed process's
/// memory, then closes its sockets, and only then tells its parent; one that ends by itself hangs
/// up first, and writes its log afterwards. On a busy machine that may take a second. Nothing
/// interrupts this wait, so it is not longer.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Attempts to lock the list of lives. A lock held during a fork is never free in the child.
const LOOKS: usize = 1000;

/// The lives that this process has begun last, including ended ones.
static LIVES: Mutex<VecDeque<Arc<Life>>> = Mutex::new(VecDeque::new());
/// The number of lives that are kept: more than a training has daemons.
const LIVES_MAX: usize = 16;

/// How a daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Without a last word, and as no child of this process: nothing else is known of it.
    Silent,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(0) => f.write_str("it was stopped and ended in order"),
            Self::Code(code) => write!(f, "it failed (exit code {code})"),
            Self::Signal(9) => f.write_str("it was killed by signal 9: if nobody did that, memory ran out"),
            Self::Signal(signal) => write!(f, "it was killed by signal {signal}"),
            Self::Silent => f.write_str("it was killed: if nobody did that, memory ran out"),
        }
    }
}

/// One daemon's life.
#[derive(Debug)]
pub(crate) struct Life {
    /// Its process id, once it has told that.
    pid: OnceLock<u32>,
    state: Mutex<State>,
    has_ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    end: Option<String>,
}

impl Life {
    /// The life of a process that has not said yet which it is.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { pid: OnceLock::new(), state: Mutex::default(), has_ended: Condvar::new() })
    }

    /// It is that of process `pid`, and [`life_of`] finds it.
    pub(crate) fn begin(self: &Arc<Self>, pid: u32) {
        let _ = self.pid.set(pid);
        with_lives(|lives| {
            // An earlier process with this id is of no interest.
            lives.retain(|known| known.pid != self.pid);
            lives.truncate(LIVES_MAX - 1);
            lives.push_front(Arc::clone(self));
        });
    }

    /// Notes a line of its log.
    pub(crate) fn hear(&self, line: &str) {
        let lines = &mut lock(&self.state).lines;
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(plain(line));
    }

    /// Notes its end, after its last line.
    pub(crate) fn end_with(&self, end: End) {
        lock(&self.state).end = Some(end.to_string());
        self.has_ended.notify_all();
    }

    /// How it ended, with the last lines of its log. Waits a moment for a daemon that has just hung
    /// up.
    pub(crate) fn end(&self) -> String {
        let state = lock(&self.state);
        let waited = self.has_ended.wait_timeout_while(state, END_PATIENCE, |state| state.end.is_none());
        let (state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        let end = state.end.as_deref().unwrap_or("it has closed this session and has not ended yet");
        format!("{end}{}", last_of(&state))
    }
}

fn last_of(state: &State) -> String {
    if state.lines.is_empty() {
        return String::new();
    }
    let lines = state.lines.iter().map(|line| format!("\n  {line}"));
    format!("; the last lines of its log:{}", lines.collect::<String>())
}

/// The life of a daemon that this process has started.
pub(crate) fn life_of(pid: u32) -> Option<Arc<Life>> {
    with_lives(|lives| lives.iter().find(|life| life.pid.get() == Some(&pid)).cloned()).flatten()
}

fn with_lives<T>(look: impl FnOnce(&mut VecDeque<Arc<Life>>) -> T) -> Option<T> {
    for _ in 0..LOOKS {
        match LIVES.try_lock() {
            Ok(mut lives) => return Some(look(&mut lives)),
            Err(TryLockError::Poisoned(lives)) => return Some(look(&mut lives.into_inner())),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// The line without a terminal's colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_and_the_end_are_told() {
        // No process has this id: Linux's are below 2^22.
        let life = Life::new();
        life.begin(1 << 30);
        (0..50).for_each(|number| life.hear(&format!("\u{1b}[2mline\u{1b}[0m {number}")));
        life.end_with(End::Signal(9));
        let text = life_of(1 << 30).unwrap().end();
        assert!(text.starts_with("it was killed by signal 9: if nobody did that, memory ran out"), "{text}");
        assert!(text.ends_with("\n  line 48\n  line 49"), "{text}");
        assert_eq!(text.matches("line ").count(), LINES_MAX);
        // A later process with the same number.
        Life::new().begin(1 << 30);
        life_of(1 << 30).unwrap().end_with(End::Code(0));
        assert_eq!(life_of(1 << 30).unwrap().end(), "it was stopped and ended in order");
    }
}
