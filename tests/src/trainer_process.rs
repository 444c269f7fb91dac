//! A trainer in a process of its own, `shade-test-trainer`, which holds batches until it is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::program;

/// The process, killed when dropped.
pub struct TrainerProcess {
    child: Child,
    held: u32,
}

impl TrainerProcess {
    /// Starts one that attaches to the daemon of `dataset` as `rank` of `world_size`, takes `held`
    /// batches of `batch_size` and holds them.
    ///
    /// # Panics
    /// When it was not built.
    #[must_use]
    pub fn start(dataset: &Path, rank: u32, world_size: u32, batch_size: u32, held: u32) -> Self {
        let command = Command::new(program("shade-test-trainer"));
        Self::start_by(command, dataset, [rank, world_size, batch_size, held], None)
    }

    /// The same with a command that executes `shade-test-trainer`, and with the daemon's socket.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_by(mut command: Command, dataset: &Path, numbers: [u32; 4], socket: Option<&Path>) -> Self {
        command.arg(dataset).args(numbers.map(|number| number.to_string())).args(socket);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let [_, _, _, held] = numbers;
        Self { child, held }
    }

    /// Waits until it holds its batches.
    ///
    /// # Panics
    /// When it ends before.
    pub fn holds_batches(&mut self) {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("holding {}\n", self.held));
    }

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TrainerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
