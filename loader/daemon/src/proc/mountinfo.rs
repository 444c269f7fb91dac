//! The mounts of this process, from /proc/self/mountinfo (proc_pid_mountinfo(5)).

use std::path::Path;

use serde::Serialize;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Mount {
    /// Where it is mounted.
    pub(crate) mount_point: String,
    /// What is mounted: a device, `server:/export`, or any name.
    pub(crate) source: String,
    /// The file system's type: `ext4`, `nfs4`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The mount's options, then those of the file system that are not among them.
    pub(crate) options: Vec<String>,
    /// Major and minor number of the device, `0:45`.
    pub(crate) device: String,
    /// The folder of the file system that is mounted; cgroups need it.
    #[serde(skip)]
    pub(crate) root: String,
    /// `stx_mnt_id` of statx.
    #[serde(skip)]
    pub(crate) id: u64,
}

impl Mount {
    /// The value of option `name=value`.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        let value = |option: &'_ String| -> Option<usize> {
            let (found, _) = option.split_once('=')?;
            (found == name).then_some(found.len() + 1)
        };
        self.options.iter().find_map(|option| option.get(value(option)?..))
    }

    /// Whether option `name` is set.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }
}

/// All mounts, in the order of the text. Lines that cannot be parsed are left out.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

/// The mount of `path`, which is absolute and without links: the one that the kernel names, else
/// the one with the longest mount point above it. Among several at one point it is the last, which
/// covers the others.
pub(crate) fn of_path<'a>(mounts: &'a [Mount], path: &Path, id: Option<u64>) -> Option<&'a Mount> {
    let named = id.and_then(|id| mounts.iter().find(|mount| mount.id == id));
    let longest = || {
        let above = mounts.iter().filter(|mount| path.starts_with(&mount.mount_point));
        above.max_by_key(|mount| Path::new(&mount.mount_point).components().count())
    };
    named.or_else(longest)
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn mount(line: &str) -> Option<Mount> {
    let (of_mount, of_file_system) = line.split_once(" - ")?;
    let mut words = of_mount.split(' ');
    let id = words.next()?.parse().ok()?;
    let mut words = words.skip(1);
    let (device, root) = (words.next()?, words.next()?);
    let (mount_point, options) = (words.next()?, words.next()?);
    let mut words = of_file_system.split(' ');
    let (kind, source) = (words.next()?, words.next()?);
    let more = words.next().unwrap_or_default();
    let mut all: Vec<String> = Vec::new();
    for option in options.split(',').chain(more.split(',')).filter(|option| !option.is_empty()) {
        let option = unescaped(option);
        if !all.contains(&option) {
            all.push(option);
        }
    }
    Some(Mount {
        mount_point: unescaped(mount_point),
        source: unescaped(source),
        kind: unescaped(kind),
        options: all,
        device: device.to_owned(),
        root: unescaped(root),
        id,
    })
}

/// Undoes the kernel's escapes: a backslash and three octal digits for blank, tab, newline and
/// backslash.
pub(crate) fn unescaped(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let escape = (first == b'\\').then(|| behind.split_at_checked(3)).flatten();
        match escape.and_then(|(digits, behind)| Some((octal(digits)?, behind))) {
            Some((byte, behind)) => {
                bytes.push(byte);
                rest = behind;
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    let mut value: u8 = 0;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(digit)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
22 27 0:21 / /proc rw,relatime shared:12 - proc proc rw
27 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,discard,errors=remount-ro
96 27 0:45 / /data rw,noatime shared:52 - nfs4 10.0.0.1:/export rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,\
proto=tcp,nconnect=8,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.2,local_lock=none,addr=10.0.0.1
97 96 0:46 / /data/my\\040photos ro,relatime master:2 propagate_from:1 - nfs filer:/vol\\134a ro,vers=3,rsize=65536,soft
98 27 0:47 /home /data2 rw,relatime - btrfs /dev/sdb rw,subvol=/home
99 27 0:48 / /data2 rw - tmpfs tmpfs rw,size=4k
";

    fn point_of(path: &str) -> String {
        of_path(&parse(TEXT), Path::new(path), None).unwrap().mount_point.clone()
    }

    #[test]
    fn lines_become_mounts() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 6);
        let nfs = mounts.get(2).unwrap();
        assert_eq!((nfs.id, nfs.device.as_str(), nfs.kind.as_str()), (96, "0:45", "nfs4"));
        assert_eq!((nfs.source.as_str(), nfs.root.as_str()), ("10.0.0.1:/export", "/"));
        assert_eq!(nfs.options.get(..3).unwrap(), ["rw", "noatime", "vers=4.2"], "each option once");
        assert_eq!((nfs.option("rsize"), nfs.option("rsiz"), nfs.has("hard")), (Some("1048576"), None, true));
        assert_eq!(nfs.option("hard"), None);
    }

    #[test]
    fn escapes_are_undone() {
        let mounts = parse(TEXT);
        let mount = mounts.get(3).unwrap();
        assert_eq!((mount.mount_point.as_str(), mount.source.as_str()), ("/data/my photos", "filer:/vol\\a"));
        assert_eq!(unescaped("a\\011b\\012\\x\\04"), "a\tb\n\\x\\04");
        assert_eq!(unescaped("\\303\\244"), "ä");
        assert_eq!(unescaped("\\777"), "\\777", "no byte");
    }

    #[test]
    fn the_longest_mount_point_above_a_path_is_its_mount() {
        assert_eq!(point_of("/data/my photos/a"), "/data/my photos");
        assert_eq!(point_of("/data/my photos"), "/data/my photos");
        assert_eq!(point_of("/data/my"), "/data");
        assert_eq!(point_of("/database"), "/", "whole names only");
        assert_eq!(
            of_path(&parse(TEXT), Path::new("/data2/x"), None).unwrap().kind,
            "tmpfs",
            "it covers btrfs"
        );
    }

    #[test]
    fn the_kernel_knows_better_than_the_path() {
        let mounts = parse(TEXT);
        assert_eq!(of_path(&mounts, Path::new("/data2/x"), Some(98)).unwrap().kind, "btrfs");
        assert_eq!(of_path(&mounts, Path::new("/data2/x"), Some(7)).unwrap().kind, "tmpfs");
        assert_eq!(of_path(&[], Path::new("/"), Some(7)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "[ -~\\\\\n]{0,200}|(.* - .*\n)*", path in ".*") {
            of_path(&parse(&text), Path::new(&path), None);
            unescaped(&text);
        }
    }
}
