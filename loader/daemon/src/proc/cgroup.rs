//! The memory limits that a container or a batch system sets: the smallest of this process's
//! control groups, and what is free in all of them.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::mountinfo::Mount;

/// From here on a number means no limit: version 1 shows the highest multiple of a page.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The smallest limit of memory of the control groups above a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MemoryLimit {
    /// The group's folder.
    pub(crate) folder: PathBuf,
    /// The limit. The kernel ends processes that go beyond it.
    pub(crate) limit_bytes: u64,
    /// In use now, page cache included.
    pub(crate) used_bytes: Option<u64>,
    /// What processes can still have in each of the groups: least in the fullest of them, which may
    /// be another one than that of the smallest limit.
    #[serde(skip)]
    pub(crate) free_bytes: u64,
}

/// Where one version of control groups has its limit.
struct Version<'a> {
    mount: &'a Mount,
    /// The process's group, as /proc/self/cgroup names it.
    group: &'a str,
    limit: &'static str,
    used: &'static str,
    /// What memory.stat calls pages of files.
    file_pages: [&'static str; 2],
}

/// The smallest limit above this process, if there is one. `cgroups` is /proc/self/cgroup; `read`
/// reads a file.
pub(crate) fn memory_limit(
    cgroups: &str,
    mounts: &[Mount],
    read: impl Fn(&Path) -> Option<String>,
) -> Option<MemoryLimit> {
    let read = &read;
    let limits = cgroups.lines().filter_map(|line| version(line, mounts)).flat_map(|version| {
        let number = |folder: &Path, name| read(&folder.join(name))?.trim().parse::<u64>().ok();
        let limit = move |folder: PathBuf| {
            let limit_bytes = number(&folder, version.limit).filter(|bytes| *bytes < NO_LIMIT_BYTES)?;
            let stat = read(&folder.join("memory.stat")).unwrap_or_default();
            // Pages of files: the kernel gives them back when it must.
            let reclaimable_bytes =
                version.file_pages.iter().map(|name| stat_bytes(&stat, name)).fold(0, u64::saturating_add);
            let used_bytes = number(&folder, version.used);
            let kept_bytes = used_bytes.unwrap_or(0).saturating_sub(reclaimable_bytes);
            let free_bytes = limit_bytes.saturating_sub(kept_bytes);
            Some(MemoryLimit { folder, limit_bytes, used_bytes, free_bytes })
        };
        folders(version.mount, version.group).into_iter().filter_map(limit).collect::<Vec<_>>()
    });
    limits.reduce(|least, other| {
        let free_bytes = least.free_bytes.min(other.free_bytes);
        let smaller = if other.limit_bytes < least.limit_bytes { other } else { least };
        MemoryLimit { free_bytes, ..smaller }
    })
}

/// `inactive_file 4096`; 0 if there is no such line.
fn stat_bytes(stat: &str, name: &str) -> u64 {
    let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// `0::/user.slice` is version 2, `4:memory:/docker/1234` version 1.
fn version<'a>(line: &'a str, mounts: &'a [Mount]) -> Option<Version<'a>> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    if controllers.is_empty() {
        let mount = mounts.iter().find(|mount| mount.kind == "cgroup2")?;
        Some(Version {
            mount,
            group,
            limit: "memory.max",
            used: "memory.current",
            file_pages: ["inactive_file", "active_file"],
        })
    } else if controllers.split(',').any(|controller| controller == "memory") {
        let mount = mounts.iter().find(|mount| mount.kind == "cgroup" && mount.has("memory"))?;
        Some(Version {
            mount,
            group,
            limit: "memory.limit_in_bytes",
            used: "memory.usage_in_bytes",
            file_pages: ["total_inactive_file", "total_active_file"],
        })
    } else {
        None
    }
}

/// The folder of the group, then those above it up to the mount point. In a container the mount may
/// begin at the group itself; the groups above it are then not visible.
fn folders(mount: &Mount, group: &str) -> Vec<PathBuf> {
    let top = Path::new(&mount.mount_point);
    let inside = Path::new(group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    inside.ancestors().map(|part| top.join(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::mountinfo;
    use proptest::prelude::*;

    const V2: &str = "41 31 0:38 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct";

    fn limit(cgroups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<(u64, Option<u64>, String)> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new("/sys/fs/cgroup").join(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        memory_limit(cgroups, &mountinfo::parse(mounts), read)
            .map(|limit| (limit.limit_bytes, limit.used_bytes, limit.folder.display().to_string()))
    }

    #[test]
    fn the_smallest_limit_above_a_process_counts() {
        let files = [
            ("job/step/memory.max", "max\n"),
            ("job/step/memory.current", "1000\n"),
            ("job/memory.max", "8589934592\n"),
            ("job/memory.current", "123456\n"),
            ("memory.max", "17179869184\n"),
        ];
        let got = limit("0::/job/step\n", V2, &files);
        assert_eq!(got, Some((8 << 30, Some(123_456), "/sys/fs/cgroup/job".to_owned())));
    }

    #[test]
    fn memory_is_free_if_each_group_has_it() {
        let free = |files: &[(&str, &str)]| {
            let read = |path: &Path| {
                let file = files.iter().find(|(name, _)| Path::new("/sys/fs/cgroup").join(name) == path);
                file.map(|(_, text)| (*text).to_owned())
            };
            let limit = memory_limit("0::/job/step\n", &mountinfo::parse(V2), read).unwrap();
            (limit.folder.display().to_string(), limit.free_bytes)
        };
        // A step with the limit of its job, as a batch system sets it: another step has taken most.
        let mut files = vec![
            ("job/memory.max", "1600"),
            ("job/memory.current", "1500"),
            ("job/step/memory.max", "1600"),
            ("job/step/memory.current", "100"),
        ];
        assert_eq!(free(&files), ("/sys/fs/cgroup/job/step".to_owned(), 100));
        files.push(("job/memory.stat", "anon 900\ninactive_file 300\nactive_file 300\n"));
        assert_eq!(free(&files), ("/sys/fs/cgroup/job/step".to_owned(), 700));
        // The smallest limit is not that of the fullest group.
        files.retain(|(name, _)| *name != "job/step/memory.max" && *name != "job/memory.stat");
        files.push(("job/step/memory.max", "800"));
        assert_eq!(free(&files), ("/sys/fs/cgroup/job/step".to_owned(), 100));
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(limit("0::/job\n", V2, &[("job/memory.max", "max\n")]), None);
        let endless = [("memory/a/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(limit("4:memory:/a\n", V1, &endless), None);
        assert_eq!(limit("", "", &[]), None);
    }

    #[test]
    fn version_1_has_other_files() {
        let cgroups = "5:cpu,cpuacct:/docker/12ab\n4:memory:/docker/12ab\n0::/\n";
        let files = [
            ("memory/docker/12ab/memory.limit_in_bytes", "4294967296\n"),
            ("memory/docker/12ab/memory.usage_in_bytes", "99\n"),
            ("cpu/docker/12ab/memory.limit_in_bytes", "1\n"),
        ];
        let expected = (4 << 30, Some(99), "/sys/fs/cgroup/memory/docker/12ab".to_owned());
        assert_eq!(limit(cgroups, V1, &files), Some(expected));
    }

    #[test]
    fn in_a_container_the_mount_begins_at_the_group() {
        let mounts = V1.replacen("0:32 /", "0:32 /docker/12ab", 1);
        let files = [("memory/memory.limit_in_bytes", "4294967296\n")];
        assert_eq!(limit("4:memory:/docker/12ab\n", &mounts, &files).map(|limit| limit.0), Some(4 << 30));
        // A group outside of what the container's namespace shows.
        let files = [("memory.max", "5000\n")];
        assert_eq!(limit("0::/../../other\n", V2, &files).map(|limit| limit.0), Some(5000));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(cgroups in "([0-9]*:(memory)?:.*\n){0,4}", text in ".*") {
            memory_limit(&cgroups, &mountinfo::parse(V2), |_| Some(text.clone()));
        }
    }
}
