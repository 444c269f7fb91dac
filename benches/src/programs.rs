//! The release builds of shade's programs, beside this one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::result::Result;

/// Paths of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) pack: PathBuf,
    pub(crate) load: PathBuf,
    /// Cargo's target folder: on a real disk, and emptied by `cargo clean`.
    pub(crate) folder: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> Result<Self> {
        let exe = std::env::current_exe()?;
        let folder = exe.parent().ok_or("this program is nowhere")?;
        let program = |name: &str| {
            let path = folder.join(name);
            if path.is_file() { Ok(path) } else { Err(format!("no {}: run `make bench`", path.display())) }
        };
        Ok(Self { pack: program("shade-pack")?, load: program("shade-load")?, folder: folder.to_owned() })
    }

    /// Packs the ImageFolder `source` into the dataset `out`.
    pub(crate) fn pack(&self, source: &Path, out: &Path) -> Result<()> {
        run(&mut self.create(source, out))
    }

    /// `shade-pack create` of `source` into `out`, for more arguments.
    pub(crate) fn create(&self, source: &Path, out: &Path) -> Command {
        let mut command = Command::new(&self.pack);
        command.args(["create", "--quiet"]).args([source, out]);
        command
    }

    /// The program that shows a directory with delays.
    pub(crate) fn slow_store(&self) -> Result<PathBuf> {
        let path = self.folder.join("shade-slow-store");
        if path.is_file() { Ok(path) } else { Err(format!("no {}: run `make bench`", path.display()).into()) }
    }
}

/// `tar cf` of `source`.
pub(crate) fn tar(source: &Path, archive: &Path) -> Command {
    let mut command = Command::new("tar");
    command.arg("cf").arg(archive).arg("-C").arg(source).arg(".");
    command
}

/// Runs a program to its end, silently.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status.map_err(|error| format!("{}: {error}", command.get_program().display()))? {
        status if status.success() => Ok(()),
        status => Err(format!("{command:?} failed: {status}").into()),
    }
}
