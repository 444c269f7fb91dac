//! A running `shade-load serve`, stopped when dropped.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Cloud, eventually, program};

/// A daemon process.
pub struct Daemon {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Daemon {
    /// Starts `shade-load serve dataset` with `args` and waits until it serves.
    ///
    /// # Panics
    /// When it ends instead.
    #[must_use]
    pub fn start(dataset: &Path, args: &[&dyn AsRef<OsStr>]) -> Self {
        Self::start_by(Command::new(program("shade-load")), dataset, args)
    }

    /// The same with a command that executes `shade-load` with its arguments.
    ///
    /// # Panics
    /// When the daemon ends instead of serving.
    #[must_use]
    pub fn start_by(mut command: Command, dataset: &Path, args: &[&dyn AsRef<OsStr>]) -> Self {
        command
            .arg("serve")
            .arg(Cloud::tested().given_path(dataset))
            .args(args.iter().map(|arg| arg.as_ref()));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let filled = Arc::clone(&log);
        // Ends with the daemon's standard error.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = filled.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut daemon = Self { child, log };
        eventually("the daemon serves", || {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended ({ended:?}): {}", daemon.log());
            daemon.log().contains("serving")
        });
        daemon
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
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
    /// When it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the daemon ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The number of its sockets, doorbells and ring segments, open or mapped. Without a session it
    /// is a constant.
    ///
    /// A command that asks all daemons for their status has a socket here for a moment: compare
    /// with `<=`.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn session_resources(&self) -> usize {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let mapped = maps.lines().filter(|line| line.contains("shade-ring")).count();
        let is_session_s = |file: &PathBuf| {
            let name = file.to_string_lossy();
            ["socket:", "/memfd:shade-ring"].iter().any(|of| name.starts_with(of))
        };
        mapped + self.open_files().iter().filter(|file| is_session_s(file)).count()
    }

    /// Whether a thread of a session runs.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn has_session_threads(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().flatten();
        let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.any(|name| ["shade-session", "shade-ring"].iter().any(|of| name.starts_with(of)))
    }

    /// Memory of the kind `name` of its `/proc/PID/status`, such as "RssAnon:".
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The files of its open descriptors.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn open_files(&self) -> Vec<PathBuf> {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().flatten();
        fds.filter_map(|fd| fs::read_link(fd.path()).ok()).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
