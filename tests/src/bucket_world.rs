//! Datasets that commands make in a bucket, beside what they make in folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tempfile::TempDir;

use crate::{Bucket, Cloud, Packed, Product, eventually, png};

/// Images to pack, and what they become in folders and in a bucket.
pub struct BucketWorld {
    /// The server.
    pub bucket: Bucket,
    temp: TempDir,
}

impl Default for BucketWorld {
    fn default() -> Self {
        Self::new()
    }
}

impl BucketWorld {
    /// Photos to pack, of two splits, and a server that holds another dataset.
    ///
    /// # Panics
    /// When that fails, as all of this.
    #[must_use]
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let random = &mut StdRng::seed_from_u64(7);
        for (split, numbers) in [("train", 0..60u32), ("val", 60..72)] {
            for number in numbers {
                let folder = temp.path().join("photos").join(split).join(format!("class{}", number % 3));
                fs::create_dir_all(&folder).unwrap();
                // What follows an image is kept. It makes shards of several parts.
                let mut image = png(8, 8, number.into());
                let from = image.len();
                image.resize(from + random.random_range(100_000..700_000), 0);
                random.fill_bytes(image.get_mut(from..).unwrap());
                fs::write(folder.join(format!("{number}.png")), image).unwrap();
            }
        }
        Self { bucket: Bucket::of(&Packed::mixed(4)), temp }
    }

    /// A path in the folder where commands run.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// A command of `shade-pack` that finds the server.
    #[must_use]
    pub fn pack(&self, args: &[&str]) -> Command {
        let mut command = self.bucket.command("shade-pack");
        command.current_dir(self.temp.path()).args(args.iter().map(|arg| Cloud::tested().given(arg)));
        command
    }

    /// What a command prints that must do well.
    ///
    /// # Panics
    /// When it does not.
    pub fn packed(&self, args: &[&str]) -> String {
        let output = self.pack(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What a command tells that must be refused for its usage.
    ///
    /// # Panics
    /// When it is not.
    pub fn refused(&self, args: &[&str]) -> String {
        let output = self.pack(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    /// Where `s3://photos/NAME` is on the server.
    #[must_use]
    pub fn object(&self, name: &str) -> PathBuf {
        self.bucket.objects().with_file_name(name)
    }

    /// All objects below `s3://photos/NAME`, with their bytes.
    #[must_use]
    pub fn there(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        Product::objects_at(name).unwrap_or_else(|| files(&self.object(name)))
    }

    /// Asserts that the dataset `name` in the bucket is the folder of this name, and that nothing
    /// is left of making it.
    ///
    /// # Panics
    /// When that is not so.
    pub fn assert_same(&self, name: &str) {
        self.assert_equal(name);
        self.assert_clean();
    }

    /// As `assert_same`, but a command was killed: it may have asked for an upload whose id it did
    /// not live to hear.
    ///
    /// # Panics
    /// When that is not so.
    pub fn assert_equal(&self, name: &str) {
        assert_eq!(self.there(name), files(&self.path(name)), "{name}");
        let work = self.work();
        assert!(work.is_empty(), "{work:?}");
    }

    /// Asserts that nothing is unfinished, in the bucket or in the cache.
    ///
    /// # Panics
    /// When that is not so.
    pub fn assert_clean(&self) {
        let left = self.bucket.uploads();
        assert!(left.is_empty(), "uploads that nobody ends: {left:?}");
        let work = self.work();
        assert!(work.is_empty(), "{work:?}");
    }

    /// The folder where commands run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.temp.path()
    }

    /// What commands have in the cache while they are at work.
    #[must_use]
    pub fn work(&self) -> Vec<String> {
        names(&self.bucket.cache().join("shade/packing"))
    }

    /// A command as another machine has it, with a cache of its own.
    #[must_use]
    pub fn elsewhere(&self, cache: &str, args: &[&str]) -> Command {
        let mut command = self.pack(args);
        command.env("XDG_CACHE_HOME", self.path(cache));
        command
    }

    /// Runs a command elsewhere.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run_elsewhere(&self, cache: &str, args: &[&str]) -> Output {
        self.elsewhere(cache, args).output().unwrap()
    }

    /// Kills a command elsewhere as soon as it has records of this many shards. It cannot end
    /// before that: its index is not written.
    ///
    /// # Panics
    /// When it never has.
    pub fn killed_at(&mut self, cache: &str, args: &[&str], shards: usize) {
        let how = "latency_ms=30 seed=5 held:dataset.shade=1";
        self.bucket.be(how);
        let mut command = self.elsewhere(cache, args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let records = || names(&self.path(cache)).into_iter().filter(|name| name.ends_with(".done")).count();
        eventually("shards are there", || records() >= shards || child.try_wait().unwrap().is_some());
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "{args:?} had ended");
        // Nothing that it had sent comes later than this.
        eventually("its connections are gone", || self.bucket.happened(how, "connections") == 0);
        self.bucket.be("");
    }
}

/// What a program printed, with the addresses that tests write ([`Cloud`]).
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    Cloud::tested().told(bytes)
}

/// The names of all files below a folder.
///
/// # Panics
/// When one is not UTF-8.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        match entry.path().is_dir() {
            true => found.extend(names(&entry.path()).into_iter().map(|inner| format!("{name}/{inner}"))),
            false => found.push(name),
        }
    }
    found
}

/// All files below a folder, with their bytes.
///
/// # Panics
/// When a name is not UTF-8.
#[must_use]
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            let inner = files(&entry.path());
            found.extend(inner.into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            // It may be removed at this moment.
            found.extend(fs::read(entry.path()).ok().map(|bytes| (name, bytes)));
        }
    }
    found
}
