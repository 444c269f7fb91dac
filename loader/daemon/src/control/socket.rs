//! Messages over a SEQPACKET socket: one message, one packet, with the file descriptors that belong
//! to it. The process at the other end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shade_formats::control::{Reply, Request};
use shade_formats::limits::MESSAGE_BYTES_MAX;

/// Sends `reply` with `fds`. Never blocks: a client that does not read its replies gets no more.
pub(crate) fn send(socket: impl AsFd, reply: &Reply, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_bytes(socket, &reply.encode(), fds, SendFlags::DONTWAIT)
}

/// Sends `request` with `fd`, waiting for room.
pub(super) fn ask(socket: impl AsFd, request: &Request, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let fds: Vec<_> = fd.into_iter().collect();
    send_bytes(socket, &request.encode(), &fds, SendFlags::empty())
}

fn send_bytes(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many file descriptors for one message"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message into `buffer`: its bytes, and at most one file descriptor. `None`: the peer
/// has left. A peer that leaves without having read all resets the connection; what it sent before
/// is still there then.
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<(&[u8], Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut is_reset = false;
    let received = loop {
        let slices = &mut [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(&socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) if !is_reset => is_reset = true,
            other => break other?,
        }
    };
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::other(format!("a message of more than {MESSAGE_BYTES_MAX} bytes")));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    Ok(Some((buffer.get(..received.bytes).unwrap_or_default(), fd)))
}

/// The peer's user id.
pub(super) fn peer_user(socket: impl AsFd) -> io::Result<u32> {
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
pub(super) fn peer_process(socket: impl AsFd) -> Option<OwnedFd> {
    match getsockopt(&socket, sockopt::PeerPidfd) {
        Ok(process) => Some(process),
        // An older system. The number may belong to another process by the time it is used.
        Err(nix::errno::Errno::ENOPROTOOPT) => pidfd_open(process_id(socket)?, PidfdFlags::empty()).ok(),
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
        assert_eq!(peer_user(&ours).unwrap(), rustix::process::geteuid().as_raw());
        assert_eq!(process_id(&ours), Some(rustix::process::getpid()));
        let process = peer_process(&ours).expect("kernels of tests have pidfds");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)), Ok(0));
    }
}
