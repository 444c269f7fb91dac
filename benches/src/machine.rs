//! The machine of a run: enough to compare runs, without its name.

use std::fs::read_to_string;
use std::process::{Command, Stdio};

use serde::Serialize;

/// A machine, described by its kernel.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let kib: f64 = field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.trim_end_matches("kB").trim().parse().ok())
            .unwrap_or(0.0);
        Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cores(),
            memory_gib: (kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            kernel: read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores, {} GiB, Linux {}", self.cpu, self.cores, self.memory_gib, self.kernel)
    }
}

/// Cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Mean number of runnable processes over the last minute.
pub(crate) fn load() -> f64 {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// The first line that a program prints. None when it is missing or fails.
pub(crate) fn first_line_of(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.lines().next().map(str::to_owned)
}

/// The value of `name: value` or `name : value` in a file of such lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}
