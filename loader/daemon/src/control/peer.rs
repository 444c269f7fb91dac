//! The process at the other end of a control socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The peer's user id.
pub(super) fn user(socket: impl AsFd) -> io::Result<u32> {
    Ok(getsockopt(&socket, sockopt::PeerCredentials)?.uid())
}

/// The peer's process id as this process sees it; `None` if it is in another PID namespace. The
/// process may have ended, and its number may be another's.
pub(crate) fn process_id(socket: impl AsFd) -> Option<Pid> {
    Pid::from_raw(getsockopt(&socket, sockopt::PeerCredentials).ok()?.pid())
}

/// A pidfd of the peer, which tells of its death: its forked children may keep the socket open.
/// `None` where there is none: Linux before 6.5 gives a number only, which is 0 for a process in
/// another PID namespace, and Linux before 5.3 has no pidfds.
pub(super) fn process(socket: impl AsFd) -> Option<OwnedFd> {
    match getsockopt(&socket, sockopt::PeerPidfd) {
        Ok(process) => Some(process),
        // An older system. The number may belong to another process by the time it is used.
        Err(Errno::ENOPROTOOPT) => pidfd_open(process_id(socket)?, PidfdFlags::empty()).ok(),
        // The process is dead.
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn the_peer_is_this_process_and_alive() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(user(&ours).unwrap(), rustix::process::geteuid().as_raw());
        assert_eq!(process_id(&ours), Some(rustix::process::getpid()));
        let process = process(&ours).expect("kernels of tests have pidfds");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)), Ok(0));
    }
}
