//! A rank of a training on two nodes in a process of its own, `shade-test-rank`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Instant;

use shade_client::{JobSpec, PlanSpec};

use crate::{program, spec};

/// What a rank's process has said: who, and a line, or when it has ended.
pub type Heard = (u32, Result<String, Instant>);

/// The job of four ranks, `ranks_here` of which are on one node; 0 means all.
#[must_use]
pub fn job_of_nodes(ranks_here: u32) -> JobSpec {
    let plan = PlanSpec { seed: 5, strata: 12, ..PlanSpec::default() };
    JobSpec { plan, ranks_here, ..spec(5, 4) }
}

/// The process, killed when dropped.
pub struct RankProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    errors: PathBuf,
    reader: Option<JoinHandle<()>>,
}

impl RankProcess {
    /// Starts `rank` with the daemon at `socket`, from batch `first` of `epoch` on. It tells
    /// `heard` each batch, and writes its errors to a file in `folder`.
    ///
    /// # Panics
    /// When it was not built.
    #[must_use]
    pub fn start(
        (dataset, socket): (&Path, &Path),
        rank: u32,
        (epoch, first): (u32, u32),
        heard: Sender<Heard>,
        folder: &Path,
    ) -> Self {
        let errors = folder.join(format!("rank-{rank}.log"));
        let mut command = Command::new(program("shade-test-rank"));
        command.arg(dataset).arg(socket).args([rank, epoch, first].map(|number| number.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        // Ends with the process. Nobody listens any more when the ranks start anew.
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            // A process that is killed may leave half a line.
            while said.read_line(&mut line).is_ok() && line.ends_with('\n') {
                let _ = heard.send((rank, Ok(line.trim_end().to_owned())));
                line.clear();
            }
            let _ = heard.send((rank, Err(Instant::now())));
        });
        Self { stdin: child.stdin.take(), child, errors, reader: Some(reader) }
    }

    /// Tells it that all ranks have their batch. It may have ended.
    pub fn go_on(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Kills it with SIGKILL; it may have ended.
    ///
    /// # Panics
    /// Never.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Ends its input, waits for its end, and returns its errors with it.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn end(mut self) -> (ExitStatus, String) {
        drop(self.stdin.take());
        self.reader.take().unwrap().join().unwrap();
        (self.child.wait().unwrap(), self.errors())
    }

    /// What it has written to its standard error.
    ///
    /// # Panics
    /// When that cannot be read.
    #[must_use]
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
