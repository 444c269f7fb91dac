//! One of `JOBS` in a process of its own, `shade-test-job`, which trains until it is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::program;

/// The process, killed when dropped.
pub struct JobProcess {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl JobProcess {
    /// Starts one that trains the job `name` with the running daemon of `dataset`, once the name is
    /// free. Each of its batches takes `pace`.
    ///
    /// # Panics
    /// When it was not built.
    #[must_use]
    pub fn start(dataset: &Path, name: &str, pace: Duration) -> Self {
        let mut command = Command::new(program("shade-test-job"));
        command.arg(dataset).arg(name).arg(pace.as_micros().to_string());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let filled = Arc::clone(&lines);
        // Ends with the process.
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            // A process that is killed may leave half a line.
            while said.read_line(&mut line).is_ok() && line.ends_with('\n') {
                filled.lock().unwrap().push(line.trim_end().to_owned());
                line.clear();
            }
        });
        Self { child, lines, reader: Some(reader) }
    }

    /// What it was given in each epoch that it has ended, as `checksums` says it.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn epochs(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Sends `signal`.
    ///
    /// # Panics
    /// When there is no such process any more.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it with SIGKILL, waits for its end, and returns its [epochs](Self::epochs).
    ///
    /// # Panics
    /// When it has ended by itself, which is a failure of its own.
    #[must_use]
    pub fn kill(mut self) -> Vec<String> {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "a job failed: {ended:?}");
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        self.epochs()
    }
}

impl Drop for JobProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
