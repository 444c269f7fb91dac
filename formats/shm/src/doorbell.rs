//! A doorbell: one end of a pair of sockets, by which either side of a ring wakes the other.
//!
//! Neither side may ever wait for the other. The flag `O_NONBLOCK` belongs to what both processes
//! may share, so a peer could clear it. A flag of each call belongs to the caller alone. Only
//! sockets have such flags on every kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::SegmentError;

/// Rings that one call answers. Any more keep the doorbell readable.
const RINGS_AT_ONCE: usize = 64;

/// Becomes readable when the other side has rung or hung up: poll it, then
/// [`answer`](Doorbell::answer).
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

/// What [`Doorbell::answer`] has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The other side is there, and may have rung.
    Peer,
    /// The other side has closed its end. The doorbell stays readable.
    HangUp,
}

impl Doorbell {
    /// The two ends.
    ///
    /// # Errors
    /// When descriptors or memory are lacking.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        let (one, other) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// The end that another process has sent.
    ///
    /// # Errors
    /// [`SegmentError::Unfit`] for anything but a local stream socket: a call could block there.
    pub fn received(fd: OwnedFd) -> Result<Self, SegmentError> {
        let is_ours =
            socket_type(&fd) == Ok(SocketType::STREAM) && socket_domain(&fd) == Ok(AddressFamily::UNIX);
        if is_ours {
            return Ok(Self(fd));
        }
        let (got, expected) = ("another descriptor".to_owned(), "a local stream socket".to_owned());
        Err(SegmentError::Unfit { segment: "a doorbell", got, expected })
    }

    /// Wakes the other side. Never blocks, whatever the other side does. One that has hung up needs
    /// no wake.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    pub fn ring(&self) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            return match send(&self.0, &[1], flags) {
                // One that is full of rings is readable: the other side will wake.
                Ok(_) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Resets it. Look for the other side's news afterwards, not before: news in between ring
    /// again. Never blocks.
    ///
    /// # Errors
    /// Never, unless the descriptor was closed under us.
    pub fn answer(&self) -> io::Result<Heard> {
        match recv(&self.0, &mut [0_u8; RINGS_AT_ONCE], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Ok(Heard::HangUp),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(Heard::Peer),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::io::ioctl_fionbio;

    use super::*;

    fn is_readable(doorbell: &Doorbell) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(doorbell, PollFlags::IN)], Some(&now)).unwrap() > 0
    }

    #[test]
    fn a_doorbell_rings_until_answered() {
        let (ours, theirs) = Doorbell::pair().unwrap();
        assert_eq!(ours.answer().unwrap(), Heard::Peer);
        for rings in [1, 3, RINGS_AT_ONCE] {
            (0..rings).for_each(|_| theirs.ring().unwrap());
            assert!(is_readable(&ours) && !is_readable(&theirs));
            assert_eq!(ours.answer().unwrap(), Heard::Peer);
            assert!(!is_readable(&ours));
        }
        drop(theirs);
        assert!(is_readable(&ours));
        assert_eq!(ours.answer().unwrap(), Heard::HangUp);
        ours.ring().unwrap();
    }

    #[test]
    fn no_call_waits_for_a_peer_that_makes_its_end_block_and_never_answers() {
        let (ours, theirs) = Doorbell::pair().unwrap();
        for end in [&ours, &theirs] {
            ioctl_fionbio(end, false).unwrap();
        }
        // Far more than any socket has room for.
        (0..100_000).for_each(|_| ours.ring().unwrap());
        assert!(is_readable(&theirs), "it will wake nevertheless");
        assert_eq!(ours.answer().unwrap(), Heard::Peer, "nothing is there to answer");
        drop(theirs);
        assert_eq!(ours.answer().unwrap(), Heard::HangUp, "with unread rings, too");
    }

    #[test]
    fn what_could_block_is_no_doorbell() {
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let counter = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let inet = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let packets = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        for other in [pipe, counter, inet, packets] {
            assert!(matches!(Doorbell::received(other), Err(SegmentError::Unfit { .. })));
        }
        let (_, Doorbell(end)) = Doorbell::pair().unwrap();
        Doorbell::received(end).unwrap();
    }
}
