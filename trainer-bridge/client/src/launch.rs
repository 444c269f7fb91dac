//! Starts the private daemon of this node when none answers yet.
//!
//! Several ranks may do so at once. One daemon binds the socket's name; the others report "address
//! in use" and end, and their ranks connect to the first. It ends by itself when the last session
//! is gone.
//!
//! A daemon that detaches is no child of this process. The program that is started here starts it
//! and ends, so no clean-up after this rank, of children, process group or session, ends the daemon
//! of all. What it says on its standard output tells of its life.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use serde_json::Value;
use shade_job::Settings;

use crate::life::{End, Life};

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
    /// Its arguments, before the settings.
    pub args: Vec<OsString>,
    /// The settings that the daemon is given as options.
    pub settings: Settings,
}

impl Launch {
    /// A daemon of `dataset`, detached, with these settings.
    #[must_use]
    pub fn new(binary: PathBuf, dataset: &Path, socket: Option<&Path>, settings: &Settings) -> Self {
        let mut args: Vec<OsString> = ["serve".into(), dataset.into()].into();
        args.extend(["--private".into(), "--detach".into()]);
        args.extend(socket.into_iter().flat_map(|socket| ["--socket".into(), socket.into()]));
        Self { binary, args, settings: settings.clone() }
    }
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
    /// It ended in this way, and gave no reason.
    Silent(String),
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
    /// Starts the daemon. A thread hears its report, keeps the last lines of its log, which follow,
    /// and reaps what is a child of this process, so that none stays as a zombie. The daemon's
    /// standard error is ours until the session offers it again ([`Request::Log`]).
    ///
    /// [`Request::Log`]: shade_formats::control::Request::Log
    pub(crate) fn start(&self) -> std::io::Result<Launched> {
        let child = Command::new(&self.binary)
            .args(&self.args)
            .args(self.settings.options())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // So that Ctrl-C does not reach it before it has detached.
            .process_group(0)
            .spawn()?;
        let (sender, outcome) = channel();
        let hear = move || {
            // Once the session is open there is no receiver; the child is reaped all the same.
            hear_all(child, &Life::new(), |outcome| drop(sender.send(outcome)));
        };
        std::thread::Builder::new().name("shade-launch".to_owned()).spawn(hear)?;
        Ok(Launched { outcome, said: None })
    }
}

/// Hears all that a daemon says, to its end.
fn hear_all(mut child: Child, life: &Arc<Life>, tell: impl Fn(Outcome)) {
    let mut stdout = child.stdout.take().map(BufReader::new);
    let (mut daemon, mut end, mut has_reported) = (None, None, false);
    let mut nonsense = String::new();
    while let Some(line) = stdout.as_mut().and_then(next_line) {
        match judge(&line) {
            Some(Said::Starting(pid)) => {
                daemon = Some(pid);
                life.begin(pid);
                if pid != child.id() {
                    // The program that has started it ends.
                    let _ = child.wait();
                }
            }
            Some(Said::Report(outcome)) => {
                has_reported = true;
                tell(outcome);
            }
            Some(Said::Ended(last)) => end = Some(last),
            None if has_reported => life.hear(&line),
            None => {
                nonsense = line;
                break;
            }
        }
    }
    match daemon {
        Some(pid) if nonsense.is_empty() => {
            let own = if pid == child.id() { child.wait().ok().map(end_of) } else { reaped(pid) };
            life.end_with(own.or(end).unwrap_or(End::Silent));
            if !has_reported {
                tell(Outcome::Killed { pid, end: life.end() });
            }
        }
        _ if has_reported => drop(child.wait()),
        _ => tell(last_words(&mut child, &nonsense)),
    }
}

/// How a daemon ended that this process has adopted, as process 1 and subreapers do. Waits for it.
fn reaped(pid: u32) -> Option<End> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).ok()??;
    Some(end_of(ExitStatus::from_raw(status.as_raw())))
}

fn end_of(status: ExitStatus) -> End {
    status.signal().map_or_else(|| End::Code(status.code().unwrap_or_default()), End::Signal)
}

/// The next line, cut if it is longer than any of ours; `None` at the end.
fn next_line(stdout: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = Vec::new();
    let read = stdout.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim().to_owned())
}

/// A line of a daemon that is not its log's.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The first: its process id.
    Starting(u32),
    Report(Outcome),
    /// The last: its exit code, or the signal that ends it.
    Ended(End),
}

/// What the line says; `None` if it is the log's or not ours.
fn judge(line: &str) -> Option<Said> {
    let said: Value = serde_json::from_str(line).ok()?;
    let number = |name| said.get(name).and_then(Value::as_u64);
    if let Some(pid) = number("starting") {
        return u32::try_from(pid).ok().map(Said::Starting);
    }
    for (name, end) in [("ended", End::Code as fn(i32) -> End), ("signal", End::Signal)] {
        if let Some(number) = number(name) {
            return i32::try_from(number).ok().map(end).map(Said::Ended);
        }
    }
    if said.get("ready").and_then(Value::as_bool) == Some(true) {
        return Some(Said::Report(Outcome::Ready));
    }
    let text = said.get("error")?.as_str()?;
    let is_lost =
        ["address already in use", "address in use"].iter().any(|part| text.to_lowercase().contains(part));
    Some(Said::Report(if is_lost { Outcome::Lost } else { Outcome::Failed(text.to_owned()) }))
}

/// Why a program ended that is no daemon of ours, or was killed before it could say so.
fn last_words(child: &mut Child, line: &str) -> Outcome {
    // Its standard output is closed or not ours: it is ending, or is another program that we must
    // not wait for.
    let ends_by_itself = line.is_empty() && ends_soon(child);
    let _ = child.kill();
    match child.wait() {
        Ok(status) if ends_by_itself && status.signal().is_some() => {
            Outcome::Killed { pid: child.id(), end: end_of(status).to_string() }
        }
        Ok(status) if line.is_empty() => Outcome::Silent(format!("it ended without a word ({status})")),
        Ok(status) => Outcome::Failed(format!("it said {line:?} ({status})")),
        Err(error) => Outcome::Failed(format!("it cannot be waited for: {error}")),
    }
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
        let report = |outcome| Some(Said::Report(outcome));
        assert_eq!(judge(r#"{"starting":7}"#), Some(Said::Starting(7)));
        assert_eq!(judge(r#"{"ready":true,"pid":7,"socket":"x"}"#), report(Outcome::Ready));
        assert_eq!(judge(r#"{"error":"bind: Address already in use (os error 98)"}"#), report(Outcome::Lost));
        assert_eq!(judge(r#"{"error":"no index"}"#), report(Outcome::Failed("no index".to_owned())));
        assert_eq!(judge(r#"{"ended":1}"#), Some(Said::Ended(End::Code(1))));
        assert_eq!(judge(r#"{"signal": 6}"#), Some(Said::Ended(End::Signal(6))));
        for other in ["", "hello", "[]", r#"{"ready":false}"#, r#"{"error":7}"#, r#"{"starting":-1}"#] {
            assert_eq!(judge(other), None, "{other}");
        }
    }

    fn shell(script: &str) -> Launch {
        Launch {
            binary: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            settings: Settings::default(),
        }
    }

    fn outcome_of(script: &str) -> Outcome {
        shell(script).start().unwrap().outcome.recv().unwrap()
    }

    /// How a program's life ends that says this.
    fn end_after(script: &str) -> String {
        let launch = shell(script);
        let mut command = Command::new(&launch.binary);
        let child = command.args(&launch.args).stdout(Stdio::piped()).spawn().unwrap();
        let life = Life::new();
        hear_all(child, &life, |outcome| assert_eq!(outcome, Outcome::Ready));
        life.end()
    }

    #[test]
    fn what_follows_the_report_is_kept_for_errors() {
        let end =
            end_after(r#"echo '{"starting":'$$'}'; echo '{"ready":true}'; echo first; echo last; exit 7"#);
        assert!(end.starts_with("it failed (exit code 7)") && end.ends_with("\n  first\n  last"), "{end}");
    }

    #[test]
    fn the_end_of_one_that_is_nobody_s_child_is_what_it_says_itself() {
        // A process that is not ours: waiting for it is an error.
        let detached = r#"echo '{"starting":1}'; echo '{"ready":true}'; "#;
        let says = |last: &str| end_after(&format!("{detached}{last}"));
        assert!(says(r#"echo '{"ended":0}'"#).starts_with("it was stopped and ended in order"));
        assert!(says(r#"echo '{"ended":3}'"#).starts_with("it failed (exit code 3)"));
        assert!(says(r#"echo '{"signal":11}'"#).starts_with("it was killed by signal 11"));
        assert!(says("").starts_with("it was killed: if nobody did that"));
    }

    #[test]
    fn a_started_program_is_heard() {
        assert_eq!(outcome_of(r#"echo '{"ready":true}'"#), Outcome::Ready);
        assert_eq!(
            outcome_of(r#"echo '{"error":"disk on fire"}'"#),
            Outcome::Failed("disk on fire".to_owned())
        );
        let Outcome::Silent(text) = outcome_of("exit 3") else { panic!("it gave a reason") };
        assert!(text.contains("without a word"), "{text}");
        for before in ["", r#"echo '{"starting":'$$'}'; "#] {
            let Outcome::Killed { end, .. } = outcome_of(&format!("{before}kill -9 $$")) else {
                panic!("killed while it came up")
            };
            assert!(end.contains("signal 9"), "{end}");
        }
        let Outcome::Failed(text) = outcome_of("echo usage; exec sleep 1000") else {
            panic!("nonsense is a failure")
        };
        assert!(text.contains("usage"), "{text}");
    }
}
