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

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::Error;
use crate::files;

const CLAIM_FILE: &str = "dataset.changing";

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
        let mut name = OsString::from(out.file_name().unwrap_or_default());
        name.push(".changing");
        Self::take_at(out.with_file_name(name), &format!("making {}", out.display()))
    }

    fn take_at(path: PathBuf, doing: &str) -> Result<Self, Error> {
        let text = Owner::of(std::process::id()).text;
        for _ in 0..LOOKS_MAX {
            match File::create_new(&path) {
                Ok(mut file) => {
                    let claim = Self { path, text };
                    let written = file.write_all(claim.text.as_bytes()).and_then(|()| files::close(file));
                    if let Err(fault) = written {
                        // Nobody could take over a claim that is half written.
                        let _ = fs::remove_file(&claim.path);
                        return Err(Error::io("write", &claim.path)(fault));
                    }
                    return Ok(claim);
                }
                Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
                Err(fault) => return Err(Error::io("create", &path)(fault)),
            }
            match take_over(&path, &text)? {
                ClaimState::Dead => return Ok(Self { path, text }),
                ClaimState::Living => break,
                ClaimState::Nothing => {}
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
        fs::metadata(&self.path).map(|found| found.uid()).map_err(Error::io("look at", &self.path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The user may have removed it, and another command may have one there now.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // A claim that stays says the truth: this process is gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}

enum ClaimState {
    Nothing,
    /// Its process may be living.
    Living,
    /// Its process was gone. It was taken over.
    Dead,
}

/// Replaces the claim of a dead process by one of this `text`.
fn take_over(path: &Path, text: &str) -> Result<ClaimState, Error> {
    // NFS gives a lock only on a file that is open for writing.
    let mut file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(ClaimState::Nothing),
        Err(fault) if fault.kind() == io::ErrorKind::PermissionDenied => return Ok(ClaimState::Living),
        Err(fault) => return Err(Error::io("open", path)(fault)),
    };
    let mut there = String::new();
    // A file that is no text is no claim of ours.
    let is_text = file.read_to_string(&mut there).is_ok();
    if !is_text || !Owner::of(std::process::id()).knows_to_be_gone(&there) {
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
    Ok(ClaimState::Dead)
}

/// Identifies a process among all that ever were on any machine.
struct Owner {
    text: String,
}

struct Process {
    /// Start time, in clock ticks since boot.
    began: String,
    /// Whether it has ended, and its parent has not waited for it.
    is_zombie: bool,
}

impl Owner {
    /// Boot, PID namespace, PID and start time: a line each. A line is empty where /proc does not
    /// tell.
    fn of(process: u32) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let began = Process::read(process).map(|process| process.began).unwrap_or_default();
        Self { text: format!("{}\n{}\n{process}\n{began}\n", boot.trim(), namespace.display()) }
    }

    /// Whether the process that wrote `text` lived in this place, and lives no more.
    fn knows_to_be_gone(&self, text: &str) -> bool {
        let (mut here, mut there) = (self.text.lines(), text.lines());
        // An empty line says nothing about the place.
        let is_same = |line: &str, other: Option<&str>| !line.is_empty() && Some(line) == other;
        let same_place = (0..2).all(|_| here.next().is_some_and(|line| is_same(line, there.next())));
        let number: Option<u32> = there.next().and_then(|number| number.parse().ok());
        let began = there.next().filter(|began| !began.is_empty());
        let (true, Some(number)) = (same_place, number) else { return false };
        let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return false };
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        // There is a process of that PID. It may be hidden in /proc: it then counts as the owner.
        Process::read(number)
            .is_some_and(|now| now.is_zombie || began.is_some_and(|began| began != now.began))
    }
}

impl Process {
    /// `None` if there is no such process, or it may not be seen.
    fn read(process: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The second field is the name in brackets, which may hold anything; field 3 is the state,
        // 22 the start time.
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X");
        Some(Self { began: fields.nth(18)?.to_owned(), is_zombie })
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
        // A process that has ended, and whose parent has not asked how.
        let mut zombie = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let dead = Owner::of(zombie.id());
        assert!(!Owner::of(std::process::id()).knows_to_be_gone(&dead.text));
        zombie.kill().unwrap();
        while !Owner::of(std::process::id()).knows_to_be_gone(&dead.text) {
            std::thread::yield_now();
        }
        zombie.wait().unwrap();
    }

    #[test]
    fn where_proc_tells_nothing_nobody_is_known_to_be_gone() {
        let nowhere = Owner { text: "\n\n77\n\n".to_owned() };
        assert!(!nowhere.knows_to_be_gone("\n\n99999999\n\n"));
        assert!(!nowhere.knows_to_be_gone("\n\n99999999\n12\n"));
    }

    #[test]
    fn of_many_that_find_a_dead_ones_claim_one_takes_it_over() {
        const TAKERS: usize = 8;
        let temp = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Owner::of(child.id());
        child.wait().unwrap();
        for round in 0..500 {
            fs::write(temp.path().join(CLAIM_FILE), &gone.text).unwrap();
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
