//! Stores that are killed together with daemons, and started again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use shade_formats::index::INDEX_FILE;
use shade_tests::{Bucket, Packed, eventually, left_out, program};

use crate::killer::Mortal;
use crate::rows::runs;

/// A test's S3 server.
pub(crate) struct MortalBucket(pub(crate) Bucket);

impl Mortal for MortalBucket {
    fn kill(&mut self) {
        self.0.kill();
    }

    fn start(&mut self) {
        self.0.restart();
    }
}

/// `shade-slow-store` over a dataset. A mount whose server was killed stays, and every call there
/// fails, until somebody mounts anew.
pub(crate) struct SlowStore {
    source: PathBuf,
    mountpoint: PathBuf,
    server: Child,
}

impl SlowStore {
    /// `None`, and told as left out, where nothing can be mounted.
    pub(crate) fn mount(packed: &Packed) -> Option<Self> {
        let mountpoint = packed.beside("mounted");
        std::fs::create_dir(&mountpoint).unwrap();
        let mountpoint = mountpoint.canonicalize().unwrap();
        let mut server = serve(&packed.dataset, &mountpoint);
        let mut is_mounted = false;
        eventually("the store is mounted, or cannot be", || {
            is_mounted = mountpoint.join(INDEX_FILE).exists();
            is_mounted || server.try_wait().unwrap().is_some()
        });
        if !is_mounted {
            left_out("nothing can be mounted here");
            return None;
        }
        Some(Self { source: packed.dataset.clone(), mountpoint, server })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mountpoint
    }
}

fn serve(source: &Path, mountpoint: &Path) -> Child {
    let mut command = Command::new(program("shade-slow-store"));
    command.args(["--delay-us", "300"]).args([source, mountpoint]);
    // It lives as long as the store.
    command.args(["--", "sh", "-c", "while kill -0 $PPID; do sleep 0.1; done"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Mortal for SlowStore {
    fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    fn start(&mut self) {
        let unmount = |program: &str, flags: &[&str]| {
            runs(Command::new(program).args(flags).arg(&self.mountpoint).stderr(Stdio::null()))
        };
        eventually("the dead mount is gone", || {
            unmount("umount", &["-l"]) || unmount("fusermount3", &["-u", "-z", "-q"])
        });
        self.server = serve(&self.source, &self.mountpoint);
        eventually("the store is mounted", || self.mountpoint.join(INDEX_FILE).exists());
    }
}

impl Drop for SlowStore {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.server), Signal::TERM);
        let _ = self.server.wait();
    }
}
