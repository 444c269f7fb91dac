//! Starts the private daemon of this node when nobody answers yet.
//!
//! Several ranks may do so at once. The socket's name decides: one daemon binds it, the others say "address in use" and
//! end, and their ranks connect to the winner. The daemon is in its own process group, so that Ctrl-C in one trainer does
//! not take it from under the others; it ends by itself when the last session is gone.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

/// Longest line that a daemon may say when it comes up.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// How to start a private daemon.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub binary: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What a daemon that we started says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It accepts sessions.
    Ready,
    /// Another daemon has the socket.
    Lost,
    /// It ended, for this reason.
    Failed(String),
}

/// A daemon that we started and that has not said anything yet.
#[derive(Debug)]
pub(crate) struct Launched {
    outcome: Receiver<Outcome>,
    said: Option<Outcome>,
}

impl Launched {
    /// Waits until it says something, or for so long.
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

    /// What it said until the last [`wait`](Self::wait) ended, to be told once.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        self.said.take()
    }
}

impl Launch {
    /// Starts the daemon. A thread hears its one line and later reaps it, so that it never stays behind as a zombie.
    pub(crate) fn start(&self) -> std::io::Result<Launched> {
        let mut child = Command::new(&self.binary)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take();
        let (sender, outcome) = channel();
        std::thread::Builder::new().name("shade-launch".to_owned()).spawn(move || {
            let line = stdout.map(first_line).unwrap_or_default();
            let said = judge(&line).unwrap_or_else(|| Outcome::Failed(last_words(&mut child, &line)));
            // Nobody listens any more once the session is open; the child is reaped all the same.
            let _ = sender.send(said);
            let _ = child.wait();
        })?;
        Ok(Launched { outcome, said: None })
    }
}

fn first_line(stdout: ChildStdout) -> String {
    let mut line = Vec::new();
    let _ = BufReader::new(stdout.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line);
    String::from_utf8_lossy(&line).trim().to_owned()
}

/// What the line says; nothing when it is no line of ours.
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

/// Why a daemon ended that said nothing we understand.
fn last_words(child: &mut Child, line: &str) -> String {
    // Its standard output is closed or nonsense: it is ending, or is another program that we must not wait for.
    let _ = child.kill();
    match child.wait() {
        Ok(status) if line.is_empty() => format!("it ended without a word ({status})"),
        Ok(status) => format!("it said {line:?} ({status})"),
        Err(error) => format!("it cannot be waited for: {error}"),
    }
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
    fn a_started_program_is_heard() {
        assert_eq!(outcome_of(r#"echo '{"ready":true}'"#), Outcome::Ready);
        assert_eq!(
            outcome_of(r#"echo '{"error":"disk on fire"}'"#),
            Outcome::Failed("disk on fire".to_owned())
        );
        let Outcome::Failed(text) = outcome_of("exit 3") else { panic!("a silent end is a failure") };
        assert!(text.contains("without a word"), "{text}");
        let Outcome::Failed(text) = outcome_of("echo usage; exec sleep 1000") else {
            panic!("nonsense is a failure")
        };
        assert!(text.contains("usage"), "{text}");
    }
}
