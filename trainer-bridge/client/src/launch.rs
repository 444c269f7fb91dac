//! Starts the private daemon of this node when none answers yet.
//!
//! Several ranks may do so at once. One daemon binds the socket's name; the others report "address
//! in use" and end, and their ranks connect to the first. The daemon has its own process group, so
//! that Ctrl-C in one trainer does not end it for the others. It ends by itself when the last
//! session is gone.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

use crate::life::Life;

/// Longest line of a daemon's output.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Checks, and the pause between them, for the end of a daemon that has closed its output: a second
/// in all.
const END_LOOKS: u32 = 100;
const END_PAUSE: Duration = Duration::from_millis(10);

/// How to start a private daemon.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub binary: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// First report of a daemon that we started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It accepts sessions.
    Ready,
    /// Another daemon has the socket.
    Lost,
    /// It ended, for this reason.
    Failed(String),
    /// It was killed before its first report.
    Killed {
        /// Its process id.
        pid: u32,
        /// How it ended.
        end: String,
    },
}

/// A daemon that we started and that has not reported yet.
#[derive(Debug)]
pub(crate) struct Launched {
    /// Its log and end.
    pub(crate) life: Arc<Life>,
    outcome: Receiver<Outcome>,
    said: Option<Outcome>,
}

impl Launched {
    /// Waits for its report, up to `timeout`.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        if self.said.is_none() {
            self.said = match self.outcome.recv_timeout(timeout) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    Some(Outcome::Failed("the launching thread died".to_owned()))
                }
            };
        }
    }

    /// The report that the last [`wait`](Self::wait) received, returned once.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        self.said.take()
    }
}

impl Launch {
    /// Starts the daemon. A thread reads its first line, keeps the last lines of its log, which
    /// follow, and reaps it, so that it never stays as a zombie. The daemon's standard error is
    /// ours, so that its log is visible.
    pub(crate) fn start(&self) -> std::io::Result<Launched> {
        let mut child = Command::new(&self.binary)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take();
        let life = Life::begin(child.id());
        let its_life = Arc::clone(&life);
        let (sender, outcome) = channel();
        std::thread::Builder::new().name("shade-launch".to_owned()).spawn(move || {
            let mut stdout = stdout.map(BufReader::new);
            let line = stdout.as_mut().and_then(next_line).unwrap_or_default();
            // Once the session is open there is no receiver; the child is reaped all the same.
            let tell = |said| drop(sender.send(said));
            match judge(&line) {
                Some(said) => {
                    tell(said);
                    while let Some(line) = stdout.as_mut().and_then(next_line) {
                        its_life.hear(&line);
                    }
                    its_life.end_with(child.wait());
                }
                None => tell(last_words(&mut child, &line, &its_life)),
            }
        })?;
        Ok(Launched { life, outcome, said: None })
    }
}

/// The next line, cut if it is longer than any of ours; `None` at the end.
fn next_line(stdout: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = Vec::new();
    let read = stdout.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim().to_owned())
}

/// The report in the line; `None` if it is not ours.
fn judge(line: &str) -> Option<Outcome> {
    let said: Value = serde_json::from_str(line).ok()?;
    if said.get("ready").and_then(Value::as_bool) == Some(true) {
        return Some(Outcome::Ready);
    }
    let text = said.get("error")?.as_str()?;
    if text.to_lowercase().contains("address already in use")
        || text.to_lowercase().contains("address in use")
    {
        return Some(Outcome::Lost);
    }
    Some(Outcome::Failed(text.to_owned()))
}

/// Why a daemon ended without an understandable report.
fn last_words(child: &mut Child, line: &str, life: &Life) -> Outcome {
    // Its standard output is closed or not ours: it is ending, or is another program that we must
    // not wait for.
    let ends_by_itself = line.is_empty() && ends_soon(child);
    let _ = child.kill();
    let status = child.wait();
    let text = match &status {
        Ok(status) if line.is_empty() => format!("it ended without a word ({status})"),
        Ok(status) => format!("it said {line:?} ({status})"),
        Err(error) => format!("it cannot be waited for: {error}"),
    };
    let was_killed = ends_by_itself && status.as_ref().is_ok_and(|status| status.signal().is_some());
    life.end_with(status);
    if was_killed { Outcome::Killed { pid: child.id(), end: life.end() } } else { Outcome::Failed(text) }
}

/// Waits a moment for a child's end: a killed process closes its output first.
fn ends_soon(child: &mut Child) -> bool {
    (0..END_LOOKS).any(|_| {
        let has_ended = matches!(child.try_wait(), Ok(Some(_)));
        if !has_ended {
            std::thread::sleep(END_PAUSE);
        }
        has_ended
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_understood_and_nothing_else_is() {
        assert_eq!(judge(r#"{"ready":true,"pid":7,"socket":"x"}"#), Some(Outcome::Ready));
        assert_eq!(judge(r#"{"error":"bind: Address already in use (os error 98)"}"#), Some(Outcome::Lost));
        assert_eq!(judge(r#"{"error":"no index"}"#), Some(Outcome::Failed("no index".to_owned())));
        for other in ["", "hello", "[]", r#"{"ready":false}"#, r#"{"error":7}"#] {
            assert_eq!(judge(other), None, "{other}");
        }
    }

    fn outcome_of(script: &str) -> Outcome {
        let launch = Launch { binary: "/bin/sh".into(), args: vec!["-c".into(), script.into()] };
        launch.start().unwrap().outcome.recv().unwrap()
    }

    #[test]
    fn what_follows_the_first_line_is_kept_for_errors() {
        let script = r#"echo '{"ready":true}'; echo first; echo last; exit 7"#;
        let launch = Launch { binary: "/bin/sh".into(), args: vec!["-c".into(), script.into()] };
        let launched = launch.start().unwrap();
        assert_eq!(launched.outcome.recv().unwrap(), Outcome::Ready);
        let end = launched.life.end();
        assert!(end.starts_with("it failed (exit status: 7)") && end.ends_with("\n  first\n  last"), "{end}");
    }

    #[test]
    fn a_started_program_is_heard() {
        assert_eq!(outcome_of(r#"echo '{"ready":true}'"#), Outcome::Ready);
        assert_eq!(
            outcome_of(r#"echo '{"error":"disk on fire"}'"#),
            Outcome::Failed("disk on fire".to_owned())
        );
        let Outcome::Failed(text) = outcome_of("exit 3") else { panic!("a silent end is a failure") };
        assert!(text.contains("without a word"), "{text}");
        let Outcome::Killed { end, .. } = outcome_of("kill -9 $$") else { panic!("killed while it came up") };
        assert!(end.contains("signal 9"), "{end}");
        let Outcome::Failed(text) = outcome_of("echo usage; exec sleep 1000") else {
            panic!("nonsense is a failure")
        };
        assert!(text.contains("usage"), "{text}");
    }
}
