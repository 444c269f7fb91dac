//! Whole messages over the SEQPACKET socket, with the descriptors that travel along.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use shade_formats::FormatError;
use shade_formats::control::{Reply, Request, WELCOME_FDS};
use shade_formats::limits::MESSAGE_BYTES_MAX;

/// A reply and its descriptors.
pub(crate) type Received = (Reply, Vec<OwnedFd>);

/// Why nothing was received or sent.
#[derive(Debug)]
pub(crate) enum WireError {
    /// The peer closed its end.
    HangUp,
    /// Nothing came in time, or nothing can be sent.
    TimedOut,
    /// A signal came first; only waits report it.
    Interrupted,
    /// The daemon opens the conversation in this other protocol.
    Protocol(u32),
    /// The message is broken.
    Format(FormatError),
    /// Anything else.
    System(Errno),
}

impl From<Errno> for WireError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::HangUp,
            Errno::AGAIN => Self::TimedOut,
            Errno::INTR => Self::Interrupted,
            other => Self::System(other),
        }
    }
}

impl From<FormatError> for WireError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

/// Sends one message. Waits for room up to the socket's send timeout, unless `flags` say
/// otherwise; a signal does not interrupt it.
pub(crate) fn send(
    socket: &OwnedFd,
    request: &Request,
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), WireError> {
    let bytes = request.encode();
    let fds: Vec<_> = fd.into_iter().collect();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // There is room for the only descriptor.
        let _ = fds.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        match sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags | SendFlags::NOSIGNAL) {
            // SEQPACKET sends a message whole or not at all.
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes a message that has arrived; [`WireError::TimedOut`] if none has.
pub(crate) fn receive_now(socket: &OwnedFd) -> Result<Received, WireError> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(WELCOME_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut reset = false;
    let message = loop {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            // The peer closed without reading all our messages. The kernel reports this once,
            // before the peer's last messages.
            Err(Errno::CONNRESET) if !reset => reset = true,
            Err(error) => return Err(error.into()),
        }
    };
    // Taken before anything is checked, so that no descriptor leaks.
    let mut fds = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    if message.bytes == 0 {
        return Err(WireError::HangUp);
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        let expected = format_args!("up to {MESSAGE_BYTES_MAX} bytes and {WELCOME_FDS} descriptors");
        return Err(FormatError::new("control message", 0, "a cut message", expected).into());
    }
    bytes.truncate(message.bytes);
    // First of all: the rest of another version's message cannot be read here.
    if let Some(protocol) = Reply::other_protocol(&bytes) {
        return Err(WireError::Protocol(protocol));
    }
    Ok((Reply::decode(&bytes)?, fds))
}

/// Waits for a message until `deadline`. A signal does not interrupt it.
pub(crate) fn receive(socket: &OwnedFd, deadline: Instant) -> Result<Received, WireError> {
    loop {
        match receive_now(socket) {
            Err(WireError::TimedOut) => {}
            other => return other,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(WireError::TimedOut);
        }
        match wait(&mut [PollFd::new(socket, PollFlags::IN)], left) {
            Ok(()) | Err(WireError::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sleeps until one of `fds` is ready, for at most `most`.
pub(crate) fn wait(fds: &mut [PollFd<'_>], most: Duration) -> Result<(), WireError> {
    // A wait too long for the kernel's type has no limit.
    let timeout = Timespec::try_from(most).ok();
    poll(fds, timeout.as_ref())?;
    Ok(())
}
