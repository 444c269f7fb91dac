//! Datasets in a bucket of a real S3 server, which is as bad as a test wants it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::{Cloud, Packed, eventually, program};

/// A server with one bucket, stopped when dropped.
pub struct Bucket {
    server: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    endpoint: String,
    folder: TempDir,
}

impl Bucket {
    /// A server whose bucket has the dataset at [`URL`](Self::URL).
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn of(packed: &Packed) -> Self {
        Self::holding(&packed.dataset, Self::PREFIX)
    }

    /// A server with all that is below `source` at the prefix `prefix` of the bucket `photos`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn holding(source: &Path, prefix: &str) -> Self {
        Self::with_words(source, prefix, &[])
    }

    /// The same with a server that is told these words at its start.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with_words(source: &Path, prefix: &str, words: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("bucket-").tempdir().unwrap();
        copy_all(source, &folder.path().join("root/photos").join(prefix));
        let (server, orders, answers, endpoint) = serve(&folder, 0, words);
        Self { server, orders, answers, endpoint, folder }
    }

    /// Where the server is: `http://127.0.0.1:PORT`, or `https://`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn kill(&mut self) {
        let _ = self.server.kill();
        self.server.wait().unwrap();
    }

    /// Starts a server that was killed again, at its address.
    ///
    /// # Panics
    /// When that fails.
    pub fn restart(&mut self) {
        let port = self.endpoint.rsplit(':').next().unwrap().parse().unwrap();
        let endpoint;
        (self.server, self.orders, self.answers, endpoint) = serve(&self.folder, port, &[]);
        assert_eq!(endpoint, self.endpoint);
    }

    /// The dataset's address, as tests write it ([`Cloud`]).
    pub const URL: &str = "s3://photos/train";
    /// What the address has behind the bucket.
    const PREFIX: &str = "train";

    /// The folder on the server that holds the dataset's objects.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        self.folder.path().join("root/photos/train")
    }

    /// Makes the server as bad as `how` says, in the words of `shade-test-bucket`. Returns the
    /// requests so far.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn be(&mut self, how: &str) -> u64 {
        self.be_told(how).split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The same. Returns all that the server tells: the requests so far, `connections=COUNT` for
    /// those that are open, and `KIND=COUNT` for each kind of badness that has happened.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn be_told(&mut self, how: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{how}").unwrap();
        let mut told = String::new();
        self.answers.read_line(&mut told).unwrap();
        told.trim().to_owned()
    }

    /// The same. Returns one of these counts.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn happened(&mut self, how: &str, kind: &str) -> u64 {
        let told = self.be_told(how);
        let count = |word: &str| word.strip_prefix(kind)?.strip_prefix('=')?.parse().ok();
        told.split_whitespace().find_map(count).unwrap_or(0)
    }

    /// Is bad in a way that keeps requests without an answer, begins a command, and waits until one
    /// of its requests is kept.
    ///
    /// # Panics
    /// When none is.
    pub fn falls_silent(&mut self, how: &str, command: &mut Command) -> Child {
        let before = self.happened(how, "silent");
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("a request is kept without an answer", || self.happened(how, "silent") > before);
        child
    }

    /// Replaces an object of the dataset, or adds one. The server is good from then on.
    ///
    /// # Panics
    /// When that fails.
    pub fn put(&mut self, name: &str, bytes: &[u8]) {
        fs::write(self.object(name), bytes).unwrap();
        self.be("");
    }

    /// Writes `s3://photos/NAME` as somebody else would, over an object of any version and with no
    /// metadata. Another write of the object is done before this one or after it.
    ///
    /// # Panics
    /// When that fails.
    pub fn somebody_writes(&mut self, name: &str, text: &str) {
        self.be_told(&format!("write {name} {text}"));
    }

    /// A command of `name` that finds the server.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command
            .envs(Cloud::tested().environment(&self.endpoint))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        command
    }

    /// The folder by which this machine knows the dataset, once a command has opened it.
    ///
    /// # Panics
    /// When none has.
    #[must_use]
    pub fn known_as(&self) -> PathBuf {
        let known = self.folder.path().join("cache/shade/objects");
        let folders = fs::read_dir(&known).unwrap().flatten().map(|entry| entry.path());
        folders.filter(|folder| folder.join("dataset.shade").is_file()).max().unwrap().canonicalize().unwrap()
    }

    /// The cache of the commands that find the server.
    #[must_use]
    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// What the server keeps of uploads that were neither ended nor given up.
    ///
    /// # Panics
    /// When its folder cannot be read.
    #[must_use]
    pub fn uploads(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path().join("root")).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        // A part that was still being sent when its upload was given up may stay, with S3 as well.
        names.filter(|name| name.starts_with(".upload-")).collect()
    }

    /// Where a file of the dataset is on the server.
    #[must_use]
    pub fn object(&self, name: &str) -> PathBuf {
        Path::new(&self.objects()).join(name)
    }
}

/// Starts a server at this port, 0 for a free one. Returns its orders, its answers and its address,
/// too.
fn serve(
    folder: &TempDir,
    port: u16,
    words: &[&str],
) -> (Child, Option<ChildStdin>, BufReader<ChildStdout>, String) {
    let mut command = Command::new(program("shade-test-bucket"));
    let pipes = command.arg(folder.path().join("root")).arg(format!("port={port}")).args(words);
    let mut server = pipes.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let orders = server.stdin.take();
    let mut answers = BufReader::new(server.stdout.take().unwrap());
    let mut endpoint = String::new();
    answers.read_line(&mut endpoint).unwrap();
    (server, orders, answers, endpoint.trim().to_owned())
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let there = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &there);
        } else {
            fs::copy(entry.path(), there).unwrap();
        }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.server.wait();
    }
}
