//! The server of the benches that read from a bucket: `shade-test-bucket`, with its latencies.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::programs::Programs;
use crate::result::Result;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: u32 = 110_080;

/// The server; it ends when this is dropped.
pub(crate) struct Server {
    /// How bad it is now.
    how: &'static str,
    server: Child,
    answers: Option<BufReader<std::process::ChildStdout>>,
}

impl Server {
    /// A server of the buckets in `root`, and its address.
    pub(crate) fn start(root: &Path) -> Result<(Self, String)> {
        std::fs::create_dir_all(root.join("data"))?;
        let program = Programs::find()?.folder.join("shade-test-bucket");
        let mut command = Command::new(&program);
        let pipes = command.arg(root).arg("anonymous=1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = pipes.spawn();
        let mut server = spawned.map_err(|error| format!("{}: {error}: make bench", program.display()))?;
        // A byte at a time: what follows the line is for later.
        let mut line = Vec::new();
        let output = server.stdout.as_mut().ok_or("no output")?;
        let mut byte = [0];
        while std::io::Read::read(output, &mut byte)? == 1 && byte != *b"\n" {
            line.extend_from_slice(&byte);
        }
        Ok((Self { how: "", server, answers: None }, String::from_utf8(line)?))
    }

    /// Makes it as bad as `how` says.
    pub(crate) fn be(&mut self, how: &'static str) -> Result<()> {
        self.how = how;
        self.requests().map(drop)
    }

    /// Requests so far.
    pub(crate) fn requests(&mut self) -> Result<u64> {
        let how = self.how;
        writeln!(self.server.stdin.as_mut().ok_or("no server")?, "{how}")?;
        let answers = self.server.stdout.take().map(BufReader::new);
        self.answers = self.answers.take().or(answers);
        let mut requests = String::new();
        self.answers.as_mut().ok_or("no server")?.read_line(&mut requests)?;
        // What happened to them follows.
        Ok(requests.split_whitespace().next().ok_or("the server says nothing")?.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}
