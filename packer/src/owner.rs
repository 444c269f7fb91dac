//! Identifies a process among all that ever were on any machine, so that what a dead one left can
//! be told from what a living one uses.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use shade_dataset::regular;
use xxhash_rust::xxh3::xxh3_64;

/// Longest part of a host's name in the name of a file.
const HOST_BYTES_MAX: usize = 64;

/// Where a process runs, its number there and when it began. A text is empty where /proc does not
/// tell.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Identifies the time between two starts of the machine.
    boot: String,
    /// The PID namespace.
    namespace: String,
    process: u32,
    /// Start time, in clock ticks since boot.
    began: String,
}

struct Process {
    began: String,
    /// Whether it has ended, and its parent has not waited for it.
    is_zombie: bool,
}

impl Owner {
    pub(crate) fn of(process: u32) -> Self {
        let boot = regular::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            boot: boot.trim().to_owned(),
            namespace: namespace.display().to_string(),
            process,
            began: Process::read(process).map(|process| process.began).unwrap_or_default(),
        }
    }

    /// This process.
    pub(crate) fn current() -> &'static Self {
        static CURRENT: OnceLock<Owner> = OnceLock::new();
        CURRENT.get_or_init(|| Self::of(std::process::id()))
    }

    /// A line each for boot, PID namespace, PID and start time: for the inside of a file.
    pub(crate) fn text(&self) -> String {
        let Self { boot, namespace, process, began } = self;
        format!("{boot}\n{namespace}\n{process}\n{began}\n")
    }

    /// Whether the process that wrote `text` lived in this place, and lives no more.
    pub(crate) fn knows_to_be_gone(&self, text: &str) -> bool {
        let mut lines = text.lines();
        let is_here = lines.next() == Some(&self.boot) && lines.next() == Some(&self.namespace);
        let process = lines.next().and_then(|number| number.parse().ok());
        let began = lines.next().filter(|began| !began.is_empty());
        self.has_place() && is_here && process.is_some_and(|process| Process::is_gone(process, began))
    }

    /// `HOST-PLACE-PID-START`, for the name of a file. PLACE stands for boot and PID namespace: two
    /// containers may have one host name and equal PIDs.
    pub(crate) fn name(&self) -> String {
        let host = regular::read_to_string(Path::new("/proc/sys/kernel/hostname")).unwrap_or_default();
        let host: String = host.chars().filter(is_plain).take(HOST_BYTES_MAX).collect();
        format!("{host}-{}-{}-{}", self.place(), self.process, self.began)
    }

    /// Whether a text has the form of a [`name`](Self::name).
    pub(crate) fn is_name(text: &str) -> bool {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = text.rsplitn(4, '-');
        let (began, process, place) = (parts.next(), parts.next(), parts.next());
        let is_place = |place: &str| place.len() == 16 && place.bytes().all(|byte| byte.is_ascii_hexdigit());
        began.is_some_and(is_number)
            && process.is_some_and(|process| !process.is_empty() && is_number(process))
            && place.is_some_and(is_place)
            && parts.next().is_some_and(|host| host.chars().all(|c| is_plain(&c)))
    }

    /// Whether the process of this [`name`](Self::name) lived in this place, and lives no more.
    pub(crate) fn knows_name_to_be_gone(&self, name: &str) -> bool {
        let mut parts = name.rsplit('-');
        let began = parts.next().filter(|began| !began.is_empty());
        let process = parts.next().and_then(|number| number.parse().ok());
        let is_here = parts.next() == Some(&self.place());
        self.has_place() && is_here && process.is_some_and(|process| Process::is_gone(process, began))
    }

    fn place(&self) -> String {
        format!("{:016x}", xxh3_64(format!("{}\n{}", self.boot, self.namespace).as_bytes()))
    }

    /// Whether /proc says what this place is. Otherwise every place looks alike.
    fn has_place(&self) -> bool {
        !self.boot.is_empty() && !self.namespace.is_empty()
    }
}

/// Whether a host's name keeps this character.
fn is_plain(c: &char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(*c)
}

impl Process {
    /// `None` if there is no such process, or it may not be seen.
    fn read(process: u32) -> Option<Self> {
        let stat = regular::read_to_string(Path::new(&format!("/proc/{process}/stat"))).ok()?;
        // The second field is the name in brackets, which may hold anything; field 3 is the state,
        // 22 the start time.
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X");
        Some(Self { began: fields.nth(18)?.to_owned(), is_zombie })
    }

    /// Whether the process of this number in this PID namespace, which began then, has ended.
    fn is_gone(process: u32, began: Option<&str>) -> bool {
        let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return false };
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        // There is a process of that PID. It may be hidden in /proc: it then counts as the owner.
        Self::read(process).is_some_and(|now| now.is_zombie || began.is_some_and(|began| began != now.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that has ended.
    fn gone() -> Owner {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Owner::of(child.id());
        child.wait().unwrap();
        gone
    }

    #[test]
    fn where_proc_tells_nothing_nobody_is_known_to_be_gone() {
        let [boot, namespace, began] = [const { String::new() }; 3];
        let nowhere = Owner { boot, namespace, process: 77, began };
        assert!(!nowhere.knows_to_be_gone("\n\n99999999\n\n"));
        assert!(!nowhere.knows_to_be_gone("\n\n99999999\n12\n"));
        let unseen = Owner { process: 99_999_999, ..Owner::of(1) };
        let unseen = Owner { boot: String::new(), namespace: String::new(), ..unseen };
        assert!(!nowhere.knows_name_to_be_gone(&unseen.name()));
    }

    #[test]
    fn names_tell_the_dead_of_this_place() {
        let (here, gone) = (Owner::current(), gone());
        assert!(here.knows_name_to_be_gone(&gone.name()), "{}", gone.name());
        assert!(Owner::is_name(&here.name()) && Owner::is_name(&gone.name()));
        assert!(!here.knows_name_to_be_gone(&here.name()));
        let elsewhere = Owner { boot: "another boot".to_owned(), ..gone };
        for name in [elsewhere.name().as_str(), "", "-", "1-2-3", "nonsense", "host-0-1-2"] {
            assert!(!here.knows_name_to_be_gone(name), "{name}");
            assert!(name == elsewhere.name() || !Owner::is_name(name), "{name}");
        }
        // The same number, but a process that began at another time.
        let mut reused = Owner::of(std::process::id());
        reused.began = "1".to_owned();
        assert!(here.knows_name_to_be_gone(&reused.name()));
    }
}
