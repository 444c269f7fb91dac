//! `shade-load trace` under way, and what it has recorded.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use shade_formats::trace::{Header, Line};

use crate::{eventually, program};

/// A recorder, killed when dropped.
pub struct Recorder {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Recorder {
    /// The command that records `dataset` into `out`.
    #[must_use]
    pub fn command(dataset: &Path, out: &Path) -> Command {
        let mut command = Command::new(program("shade-load"));
        command.arg("trace").arg(dataset).arg("--out").arg(out);
        command
    }

    /// Starts one and waits until it records.
    #[must_use]
    pub fn start(dataset: &Path, out: &Path) -> Self {
        Self::start_by(Self::command(dataset, out))
    }

    /// The same of the job with this name.
    #[must_use]
    pub fn start_of(job: &str, dataset: &Path, out: &Path) -> Self {
        let mut command = Self::command(dataset, out);
        command.args(["--job", job]);
        Self::start_by(command)
    }

    /// The same with a command of its own.
    ///
    /// # Panics
    /// When it does not come to record.
    #[must_use]
    pub fn start_by(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = Arc::new(Mutex::new(String::new()));
        let filled = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                filled.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let recorder = Self { child, said };
        eventually("it records", || recorder.said().contains("recording daemon"));
        recorder
    }

    /// What it has logged so far.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Sends `signal`.
    ///
    /// # Panics
    /// When there is no such process any more.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ctrl-C.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn stop(mut self) {
        self.signal(Signal::INT);
        assert_eq!(self.wait().code(), Some(0), "{}", self.said());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Header and lines of a recording that is whole.
///
/// # Panics
/// When it is not.
#[must_use]
pub fn recorded_lines(file: &Path) -> (Header, Vec<Line>) {
    let bytes = fs::read(file).unwrap();
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let header = Header::decode(lines.next().unwrap()).unwrap();
    (header, lines.map(|line| Line::decode(line).unwrap()).collect())
}
