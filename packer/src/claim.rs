//! Keeps two commands from making or changing one dataset at a time.
//!
//! A command that changes a dataset first creates the file `dataset.changing` in it. A command that
//! makes one creates `OUT.changing` beside it. Only one command can create that file, on network
//! file systems, too. The file names its process. A killed command leaves it behind; the next
//! command in the same place (machine, boot, PID namespace) sees that the process is gone and takes
//! the claim over. It cannot see that of a process in another place: there the user must remove the
//! file.
//!
//! Two commands that find the claim of the same dead process are in one place, so a lock that holds
//! on this machine lets one of them take it over. Where the file system has no locks, none takes it
//! over, and the user must remove the file.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat, openat};
use rustix::io::Errno;
use shade_dataset::regular;

use crate::error::Error;
use crate::files;
use crate::owner::Owner;

pub(crate) const CLAIM_FILE: &str = "dataset.changing";

/// More than a claim's lines have.
const CLAIM_BYTES_MAX: u64 = 4096;

/// Attempts to take a claim that appears and disappears meanwhile. Each attempt finds another
/// command; after a few this one gives up.
const LOOKS_MAX: usize = 4;

/// The right to make or change a dataset; given back when dropped. Readers do not ask for it.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    text: String,
}

impl Claim {
    /// Takes the right to change the dataset in `dir`.
    ///
    /// # Errors
    /// Another command has it: usage. Or the folder cannot be written to.
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        Self::take_at(dir.join(CLAIM_FILE), &format!("changing {}", dir.display()))
    }

    /// Takes the right to make something at `out`, which has a name.
    pub(crate) fn of_new(out: &Path) -> Result<Self, Error> {
        Self::take_at(path_of_new(out), &format!("making {}", out.display()))
    }

    fn take_at(path: PathBuf, doing: &str) -> Result<Self, Error> {
        let text = Owner::current().text();
        for _ in 0..LOOKS_MAX {
            if create(&path, &text)? {
                return Ok(Self { path, text });
            }
            match take_over(&path, &text)? {
                ClaimState::Dead => return Ok(Self { path, text }),
                ClaimState::Living => break,
                ClaimState::Nothing => {}
                ClaimState::Foreign(what) => {
                    let path = path.display();
                    return Err(Error::Usage(format!("{path} is in the way, {what}: give it another name")));
                }
            }
        }
        let path = path.display();
        Err(Error::Usage(format!(
            "another command is {doing}. If it was killed, on another machine, in another container or where the system \
             does not tell, remove {path}"
        )))
    }

    /// The user to whom files beside this one belong.
    pub(crate) fn user_id(&self) -> Result<u32, Error> {
        fs::symlink_metadata(&self.path).map(|found| found.uid()).map_err(Error::io("look at", &self.path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The user may have removed it, and another command may have one there now.
        if open(&self.path, OFlags::RDONLY).and_then(read).is_ok_and(|text| text == self.text) {
            // A claim that stays says the truth: this process is gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates a claim; false if there is one.
fn create(path: &Path, text: &str) -> Result<bool, Error> {
    if let Some(is_created) = create_whole(path, text)? {
        return Ok(is_created);
    }
    match File::create_new(path) {
        Ok(mut file) => {
            let written = file.write_all(text.as_bytes()).and_then(|()| files::close(file));
            if let Err(fault) = written {
                // Nobody could take over a claim that is half written.
                let _ = fs::remove_file(path);
                return Err(Error::io("write", path)(fault));
            }
            Ok(true)
        }
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(fault) => Err(Error::io("create", path)(fault)),
    }
}

/// The same by a file that gets its name when it is written: a process that is killed meanwhile
/// leaves nothing, and not an empty claim, which nobody could take over. `None` where the file
/// system has no such files, as NFS.
fn create_whole(path: &Path, text: &str) -> Result<Option<bool>, Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::from_raw_mode(0o666)) else {
        return Ok(None);
    };
    let mut file = File::from(file);
    file.write_all(text.as_bytes()).map_err(Error::io("write", path))?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(Some(true)),
        Err(Errno::EXIST) => Ok(Some(false)),
        Err(_) => Ok(None),
    }
}

/// Where the claim of what is made at `out` is.
pub(crate) fn path_of_new(out: &Path) -> PathBuf {
    let mut name = OsString::from(out.file_name().unwrap_or_default());
    name.push(".changing");
    out.with_file_name(name)
}

enum ClaimState {
    Nothing,
    /// Its process may be living.
    Living,
    /// Its process was gone. It was taken over.
    Dead,
    /// It is no claim, but this.
    Foreign(String),
}

/// Opens a claim. Others may have put a pipe or a link in its place.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    regular::open_no_link(path, flags)
}

/// The text of a claim. A file that is no text is no claim of ours.
fn read(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(CLAIM_BYTES_MAX).read_to_string(&mut text).map(|_| text)
}

/// Whether a text has the form of a claim, or of one that is not written yet.
pub(crate) fn is_claim(text: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match text.lines().collect::<Vec<_>>().as_slice() {
        [] => true,
        [boot, namespace, process, began] => {
            let is_boot = boot.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let is_namespace = namespace.is_empty() || namespace.starts_with("pid:[");
            is_boot && is_namespace && is_number(process) && is_number(began)
        }
        _ => false,
    }
}

/// Replaces the claim of a dead process by one of this `text`.
fn take_over(path: &Path, text: &str) -> Result<ClaimState, Error> {
    // NFS gives a lock only on a file that is open for writing.
    let file = match open(path, OFlags::RDWR) {
        Ok(file) => file,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(ClaimState::Nothing),
        Err(fault) if fault.kind() == io::ErrorKind::PermissionDenied => return Ok(ClaimState::Living),
        Err(fault) => {
            let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
            return if is_file {
                Err(Error::io("open", path)(fault))
            } else {
                Ok(ClaimState::Foreign(fault.to_string()))
            };
        }
    };
    let copy = file.try_clone().map_err(Error::io("open", path))?;
    let Some(there) = read(copy).ok().filter(|text| is_claim(text)) else {
        return Ok(ClaimState::Foreign("a file that no command of this program made".to_owned()));
    };
    if !Owner::current().knows_to_be_gone(&there) {
        return Ok(ClaimState::Living);
    }
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(ClaimState::Living);
    }
    // The process that had the lock before has put its own claim there.
    let locked = file.metadata().map_err(Error::io("look at", path))?;
    if !fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (locked.dev(), locked.ino())) {
        return Ok(ClaimState::Living);
    }
    files::put(path, text.as_bytes(), false)?;
    remove_strays(path);
    Ok(ClaimState::Dead)
}

/// Removes what processes have left that were killed while they took this claim over.
fn remove_strays(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(entries) = fs::read_dir(folder.unwrap_or(Path::new("."))) else { return };
    for entry in entries.flatten() {
        let (name, of) = (entry.file_name(), path.file_name());
        let Some((claim, process)) = name.to_str().and_then(files::temporary) else { continue };
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && Some(OsStr::new(claim)) == of && Owner::current().knows_name_to_be_gone(process) {
            // The claim is ours whether this goes well or not.
            let _ = fs::remove_file(entry.path());
        }
    }
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
        let gone = Owner::of(child.id()).text();
        child.wait().unwrap();
        fs::write(temp.path().join(CLAIM_FILE), &gone).unwrap();
        drop(Claim::take(temp.path()).unwrap());
        let elsewhere = gone.replacen(gone.lines().next().unwrap(), "another boot", 1);
        for text in [elsewhere.as_str(), "", "nonsense"] {
            fs::write(temp.path().join(CLAIM_FILE), text).unwrap();
            assert!(Claim::take(temp.path()).is_err(), "{text:?}");
            fs::remove_file(temp.path().join(CLAIM_FILE)).unwrap();
        }
        // The same number, but a process that began at another time.
        let mut lines: Vec<String> = Owner::current().text().lines().map(str::to_owned).collect();
        lines[3] = "1".to_owned();
        fs::write(temp.path().join(CLAIM_FILE), lines.join("\n")).unwrap();
        drop(Claim::take(temp.path()).unwrap());
        assert!(!temp.path().join(CLAIM_FILE).exists());
        // A process that has ended, and whose parent has not asked how.
        let mut zombie = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let dead = Owner::of(zombie.id()).text();
        assert!(!Owner::current().knows_to_be_gone(&dead));
        zombie.kill().unwrap();
        while !Owner::current().knows_to_be_gone(&dead) {
            std::thread::yield_now();
        }
        zombie.wait().unwrap();
    }

    #[test]
    fn of_many_that_find_a_dead_ones_claim_one_takes_it_over() {
        const TAKERS: usize = 8;
        let temp = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Owner::of(child.id()).text();
        child.wait().unwrap();
        for round in 0..500 {
            fs::write(temp.path().join(CLAIM_FILE), &gone).unwrap();
            let barrier = std::sync::Barrier::new(TAKERS);
            let claims: Vec<_> = std::thread::scope(|scope| {
                let take = || {
                    barrier.wait();
                    Claim::take(temp.path())
                };
                let takers: Vec<_> = (0..TAKERS).map(|_| scope.spawn(take)).collect();
                takers.into_iter().map(|taker| taker.join().unwrap()).collect()
            });
            let taken = claims.iter().filter(|claim| claim.is_ok()).count();
            assert!(taken == 1, "{taken} have it in round {round}: {claims:?}");
        }
    }
}
