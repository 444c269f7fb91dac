//! Keeps two commands from changing one dataset at a time, without locks, which network file systems lack or ignore.
//!
//! Whoever changes a dataset first makes the file `dataset.changing` in it, which only one can, and writes into it who it
//! is. One that was killed leaves the file; the next command on the same machine sees that its process is gone. Of a
//! process on another machine nobody can say that: the user must.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;

const CLAIM_FILE: &str = "dataset.changing";

/// The right to change a dataset; given back when dropped. Readers do not ask for it.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
}

impl Claim {
    /// Takes the right to change the dataset in `dir`.
    ///
    /// # Errors
    /// Another command has it: usage. Or the folder cannot be written to.
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(CLAIM_FILE);
        let me = Owner::of(std::process::id());
        for _ in 0..2 {
            match File::create_new(&path) {
                Ok(mut file) => {
                    let claim = Self { path };
                    file.write_all(me.text.as_bytes()).map_err(Error::io("write", &claim.path))?;
                    return Ok(claim);
                }
                Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
                Err(fault) => return Err(Error::io("create", &path)(fault)),
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            if !me.knows_to_be_gone(&text) {
                break;
            }
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
        let text = format!(
            "another command is changing {}. If it was killed, on another machine or in another container, remove {}",
            dir.display(),
            path.display()
        );
        Err(Error::Usage(text))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Left behind, it says the truth: this process is gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// A process, told from all others that were or will be.
struct Owner {
    text: String,
}

impl Owner {
    /// Machine and start of it, namespace of process numbers, number, and when the process began: a line each.
    fn of(process: u32) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let began = began(process).unwrap_or_default();
        Self { text: format!("{}\n{}\n{process}\n{began}\n", boot.trim(), namespace.display()) }
    }

    /// Whether the process that wrote `text` lived where this one does, and lives no more.
    fn knows_to_be_gone(&self, text: &str) -> bool {
        let (mut here, mut there) = (self.text.lines(), text.lines());
        let same_place = (0..2).all(|_| here.next().is_some_and(|line| Some(line) == there.next()));
        let Some(process) = there.next().and_then(|process| process.parse().ok()) else { return false };
        same_place && began(process).as_deref() != there.next()
    }
}

/// When a process began, in clock ticks since the machine did; `None` if there is no such process.
fn began(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in brackets, which may hold anything; the start is field 22.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_the_dead_are_known() {
        let temp = tempfile::tempdir().unwrap();
        let claim = Claim::take(temp.path()).unwrap();
        assert!(matches!(Claim::take(temp.path()), Err(Error::Usage(text)) if text.contains("remove")));
        drop(claim);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Owner::of(child.id());
        child.wait().unwrap();
        fs::write(temp.path().join(CLAIM_FILE), &gone.text).unwrap();
        drop(Claim::take(temp.path()).unwrap());
        let elsewhere = gone.text.replacen(gone.text.lines().next().unwrap(), "another boot", 1);
        for text in [elsewhere.as_str(), "", "nonsense"] {
            fs::write(temp.path().join(CLAIM_FILE), text).unwrap();
            assert!(Claim::take(temp.path()).is_err(), "{text:?}");
            fs::remove_file(temp.path().join(CLAIM_FILE)).unwrap();
        }
        // The same number, but a process that began at another time.
        let mut lines: Vec<String> = Owner::of(std::process::id()).text.lines().map(str::to_owned).collect();
        lines[3] = "1".to_owned();
        fs::write(temp.path().join(CLAIM_FILE), lines.join("\n")).unwrap();
        drop(Claim::take(temp.path()).unwrap());
        assert!(!temp.path().join(CLAIM_FILE).exists());
    }
}
