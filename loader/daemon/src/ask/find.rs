//! Finds this user's daemons: the kernel lists all sockets of the network namespace.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use shade_dataset::regular;
use shade_formats::control::socket_prefix;

use crate::control::Address;

/// Flag of a socket that listens (`__SO_ACCEPTCON`). Those of its connections have the same name.
const LISTENS: u32 = 1 << 16;

/// The abstract addresses of this user's daemons, sorted.
pub(super) fn daemons() -> io::Result<Vec<Address>> {
    let table = regular::read(Path::new("/proc/net/unix")).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot list sockets: /proc/net/unix: {error}"))
    })?;
    let uid = rustix::process::geteuid().as_raw();
    Ok(listed(&String::from_utf8_lossy(&table), uid))
}

/// The addresses in a table of sockets, whose columns are number, count, protocol, flags, type,
/// state, inode, name.
fn listed(table: &str, uid: u32) -> Vec<Address> {
    let prefix = format!("@{}", socket_prefix(uid));
    let name = |line: &str| {
        let mut columns = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(columns.nth(3)?, 16).ok()?;
        let name = columns.nth(3)?;
        (flags & LISTENS != 0 && name.starts_with(&prefix)).then(|| name.trim_start_matches('@').to_owned())
    };
    let names: BTreeSet<_> = table.lines().filter_map(name).collect();
    names.into_iter().map(|name| Address::Abstract(name.into_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 31337 @shade-load/1000/bb
0000000000000000: 00000003 00000000 00000000 0005 03 31338 @shade-load/1000/bb
0000000000000000: 00000003 00000000 00000000 0005 03 31339
0000000000000000: 00000002 00000000 00010000 0005 01 31340 @shade-load/1000/aa
0000000000000000: 00000002 00000000 00010000 0005 01 31341 @shade-load/10001/cc
0000000000000000: 00000002 00000000 00010000 0005 01 31342 /run/shade-load/1000/dd
0000000000000000: 00000003 00000000 00000000 0005 03 31343 @shade-load/1000/ee
nonsense
";

    #[test]
    fn each_listening_daemon_of_the_user_is_found_once() {
        let address = |name: &str| Address::Abstract(name.as_bytes().to_vec());
        assert_eq!(listed(TABLE, 1000), [address("shade-load/1000/aa"), address("shade-load/1000/bb")]);
        assert_eq!(listed(TABLE, 10001), [address("shade-load/10001/cc")]);
        assert_eq!(listed(TABLE, 100), []);
        assert_eq!(listed("", 1000), []);
    }
}
