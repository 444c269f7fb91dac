//! Whether the kernel has killed a daemon for memory, as far as another process can see: it counts
//! such kills for each control group, and for the machine.

use std::path::{Path, PathBuf};

use shade_dataset::regular;

/// Where version 2 of control groups is mounted, and version 1's group of memory.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.events"), ("/sys/fs/cgroup/memory", "memory.oom_control")];
/// The machine's counter.
const MACHINE: &str = "/proc/vmstat";
/// The line of each of these files.
const KILLS: &str = "oom_kill";

/// The counts while a daemon lives.
#[derive(Debug, Default)]
pub(crate) struct MemoryKills {
    /// That of its control group, where it can be seen.
    of_group: Option<Count>,
    of_machine: Option<Count>,
}

#[derive(Debug)]
struct Count {
    file: PathBuf,
    kills: u64,
}

impl Count {
    fn of(file: PathBuf) -> Option<Self> {
        let text = regular::read_to_string(&file).ok()?;
        let kills = text.lines().find_map(|line| line.strip_prefix(KILLS)?.strip_prefix(' '))?;
        kills.trim().parse().ok().map(|kills| Self { file, kills })
    }

    /// Whether it has counted more since.
    fn has_grown(&self) -> bool {
        Self::of(self.file.clone()).is_some_and(|now| now.kills > self.kills)
    }
}

impl MemoryKills {
    /// The counts now, while process `pid` lives.
    pub(crate) fn now(pid: u32) -> Self {
        let groups =
            regular::read_to_string(&PathBuf::from(format!("/proc/{pid}/cgroup"))).unwrap_or_default();
        let of_group = groups.lines().find_map(|line| Count::of(file_of(line)?));
        Self { of_group, of_machine: Count::of(MACHINE.into()) }
    }

    /// What the kernel says of a daemon that has died since.
    pub(crate) fn since(&self) -> Option<String> {
        let of_group = self.of_group.as_ref();
        if let Some(Count { file, .. }) = of_group.filter(|count| count.has_grown()) {
            return Some(format!("killed for memory, as {} counts", file.display()));
        }
        // Where its own group is seen, the others' kills are nothing to it.
        let is_somebody = of_group.is_none() && self.of_machine.as_ref().is_some_and(Count::has_grown);
        is_somebody
            .then(|| "perhaps killed for memory: the kernel has killed a process for it meanwhile".to_owned())
    }
}

/// The file with the count of the group in a line of /proc/PID/cgroup: `0::/user.slice` is version
/// 2, `4:memory:/docker/1234` version 1. In a container the mount may begin at the group itself.
fn file_of(line: &str) -> Option<PathBuf> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    let (mount, file) = match controllers {
        "" => MOUNTS[0],
        controllers if controllers.split(',').any(|controller| controller == "memory") => MOUNTS[1],
        _ => return None,
    };
    let inside = Path::new(mount).join(group.trim_start_matches('/')).join(file);
    Some(if inside.exists() { inside } else { Path::new(mount).join(file) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_s_count_is_found_and_grows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        let write = |kills: u32| {
            std::fs::write(&file, format!("low 0\noom 9\noom_kill {kills}\noom_group_kill 0\n")).unwrap();
        };
        write(2);
        let kills = MemoryKills { of_group: Count::of(file.clone()), of_machine: Count::of(file.clone()) };
        assert_eq!(kills.of_group.as_ref().unwrap().kills, 2);
        assert_eq!(kills.since(), None);
        write(3);
        assert!(kills.since().unwrap().starts_with("killed for memory, as "), "{kills:?}");
        let machine_alone = MemoryKills { of_group: None, ..kills };
        assert!(machine_alone.since().unwrap().starts_with("perhaps"));
        assert_eq!(MemoryKills::default().since(), None);
    }

    #[test]
    fn lines_of_other_controllers_have_no_count() {
        assert_eq!(file_of("9:name=systemd:/"), None);
        assert_eq!(file_of("2:cpuacct:/"), None);
        assert_eq!(file_of("nonsense"), None);
        let end = |line: &str| file_of(line).unwrap().file_name().unwrap().to_owned();
        assert_eq!(end("0::/nowhere"), "memory.events");
        assert_eq!(end("4:cpu,memory:/nowhere"), "memory.oom_control");
    }
}
