//! The folder for a run's files, removed at its end, after errors, and on SIGINT, SIGTERM and
//! SIGHUP.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::thread::sleep;
use std::time::{Duration, Instant};

use shade_dataset::on_stop_signal;
use tempfile::TempDir;

use crate::programs::Programs;
use crate::result::Result;

/// How long to try, as an interrupted program may still write.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);
/// A shell's exit code for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// The benches' folder and programs.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) programs: Programs,
    folder: TempDir,
}

impl Scratch {
    /// Makes the folder in TMPDIR if that is set, else among the build's files. Once per process.
    pub(crate) fn create() -> Result<Self> {
        let programs = Programs::find()?;
        let parent = std::env::var_os("TMPDIR").map_or_else(|| programs.folder.clone(), PathBuf::from);
        let folder = tempfile::Builder::new().prefix("shade-benches-").tempdir_in(parent)?;
        let path = folder.path().to_owned();
        on_stop_signal(move || {
            remove(&path);
            exit(INTERRUPTED);
        })?;
        Ok(Self { programs, folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn remove(folder: &Path) {
    let started = Instant::now();
    while fs::remove_dir_all(folder).is_err() && folder.exists() && started.elapsed() < REMOVAL_PATIENCE {
        sleep(Duration::from_millis(100));
    }
}
