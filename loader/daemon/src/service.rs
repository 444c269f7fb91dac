//! Tells a service manager that the daemon is ready: systemd's `Type=notify`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Variable that names the service manager's socket: a path, or `@name` for an abstract one.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// Sends `READY=1` to the service manager's `socket`.
///
/// # Errors
/// Nobody receives there.
pub fn ready(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}
