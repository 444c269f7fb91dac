//! The daemon's end of each session: socket, ring, doorbell.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crossbeam_channel::Sender;
use shade_formats::FormatError;
use shade_formats::control::{Reply, Settings};
use shade_formats::ring::{Descriptor, ERROR_TEXT_BYTES_MAX, Region};

use crate::control::{Welcomed, send};
use crate::core::{Accepted, Refusal, SessionId};
use crate::ring::RingEnd;

struct Peer {
    socket: Arc<OwnedFd>,
    /// Where the answer to its hello goes, with these settings if it is let in.
    verdict: Option<(Sender<Result<Welcomed, Refusal>>, Settings)>,
    /// Bytes of a ring that it was promised, until it has them.
    promised_bytes: u64,
    ring: Option<RingEnd>,
    /// It was let in.
    accepted: bool,
    /// It was hung up on.
    closed: bool,
}

/// All sessions by id.
#[derive(Default)]
pub(super) struct Sessions {
    peers: HashMap<SessionId, Peer>,
}

impl Sessions {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(super) fn hello(
        &mut self,
        session: SessionId,
        socket: Arc<OwnedFd>,
        verdict: Sender<Result<Welcomed, Refusal>>,
        settings: Settings,
    ) {
        self.peers.insert(
            session,
            Peer {
                socket,
                verdict: Some((verdict, settings)),
                promised_bytes: 0,
                ring: None,
                accepted: false,
                closed: false,
            },
        );
    }

    /// Tells a session's thread whether it is accepted.
    pub(super) fn answer(&mut self, session: SessionId, answer: Result<Accepted, Refusal>) {
        let Some(peer) = self.peers.get_mut(&session) else { return };
        if let Ok(accepted) = &answer {
            peer.accepted = true;
            peer.promised_bytes = accepted.payload.bytes;
        }
        if let Some((verdict, settings)) = peer.verdict.take() {
            // The thread has ended if nobody listens, and then says so itself.
            let _ = verdict.send(answer.map(|accepted| Welcomed { accepted, settings }));
        }
    }

    pub(super) fn mapped(&mut self, session: SessionId, ring: RingEnd) {
        if let Some(peer) = self.peers.get_mut(&session) {
            peer.ring = Some(ring);
            peer.promised_bytes = 0;
        }
    }

    /// Where the session's batches are written.
    pub(super) fn payload(&self, session: SessionId) -> Option<Region> {
        Some(self.peers.get(&session)?.ring.as_ref()?.payload.clone())
    }

    /// What the client has released since the last call, by number.
    pub(super) fn released(&mut self, session: SessionId) -> Result<Vec<u64>, FormatError> {
        let ring = self.peers.get_mut(&session).and_then(|peer| peer.ring.as_mut());
        ring.map_or(Ok(Vec::new()), |ring| ring.producer.released())
    }

    /// Publishes a descriptor, with `error` written where it points, and wakes the client if it waits.
    pub(super) fn publish(&mut self, session: SessionId, descriptor: &Descriptor, error: Option<&str>) {
        let Some(ring) = self.peers.get_mut(&session).and_then(|peer| peer.ring.as_mut()) else { return };
        let mut descriptor = *descriptor;
        let published = error
            .map_or(Ok(()), |text| {
                let len = text.floor_char_boundary(
                    usize::try_from(descriptor.len.min(ERROR_TEXT_BYTES_MAX)).unwrap_or(usize::MAX),
                );
                descriptor.len = len as u64;
                ring.payload.write(descriptor.offset, text.as_bytes().get(..len).unwrap_or_default())
            })
            .and_then(|()| ring.producer.publish(&descriptor));
        let woken = match published {
            Ok(true) => ring.ring_client().map_err(|error| error.to_string()),
            Ok(false) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = woken {
            self.close(session, &error);
        }
    }

    /// Tells every ring that the daemon lives.
    pub(super) fn beat(&mut self, now_ns: u64) {
        for ring in self.peers.values().filter_map(|peer| peer.ring.as_ref()) {
            // The mapping is ours and of full length: a beat cannot miss it.
            let _ = ring.producer.beat(now_ns);
        }
    }

    pub(super) fn reply(&mut self, session: SessionId, reply: &Reply) {
        self.reply_with(session, reply, None);
    }

    /// Sends a saved state as a file in memory: it may be larger than any message.
    pub(super) fn send_state(&mut self, session: SessionId, bytes: &[u8]) {
        match state_file(bytes) {
            Ok(file) => self.reply_with(session, &Reply::State { bytes: bytes.len() as u64 }, Some(&file)),
            Err(error) => {
                let text = format!("cannot hand out the state of {} bytes: {error}", bytes.len());
                self.reply(session, &Reply::Failed { text });
            }
        }
    }

    fn reply_with(&mut self, session: SessionId, reply: &Reply, file: Option<&std::fs::File>) {
        let Some(peer) = self.peers.get(&session) else { return };
        let fds: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        if let Err(error) = send(&peer.socket, reply, &fds) {
            self.close(session, &format!("it does not take its replies: {error}"));
        }
    }

    /// Ends a session; its thread notices and reports it gone.
    pub(super) fn close(&mut self, session: SessionId, why: &str) {
        if let Some(peer) = self.peers.get_mut(&session).filter(|peer| !peer.closed) {
            peer.closed = true;
            tracing::warn!("closing session {session}: {why}");
            let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
        }
    }

    /// Hangs up on all. `why` is told first: the end that nobody asked for has a reason.
    pub(super) fn close_all(&mut self, why: Option<&str>) {
        for peer in self.peers.values() {
            if let Some(text) = why {
                // Who does not take it sees the hang-up.
                let _ = send(&peer.socket, &Reply::Failed { text: text.to_owned() }, &[]);
            }
            let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
        }
        self.peers.clear();
    }

    /// Lets go of a session that is gone; whether it had been let in.
    pub(super) fn forget(&mut self, session: SessionId) -> bool {
        self.peers.remove(&session).is_some_and(|peer| peer.accepted)
    }

    /// Bytes of rings that sessions were promised and that do not exist yet.
    pub(super) fn promised_bytes(&self) -> u64 {
        self.peers.values().map(|peer| peer.promised_bytes).sum()
    }
}

fn state_file(bytes: &[u8]) -> std::io::Result<std::fs::File> {
    let fd = rustix::fs::memfd_create("shade-state", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    std::io::Write::write_all(&mut file, bytes)?;
    Ok(file)
}
