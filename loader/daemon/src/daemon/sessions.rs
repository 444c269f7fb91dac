//! The daemon's end of each session: socket, ring, doorbell.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crossbeam_channel::Sender;
use rustix::process::Pid;
use shade_core::{Accepted, Refusal, SessionId};
use shade_formats::FormatError;
use shade_formats::control::{REFUSE_ENDING, REFUSE_REPLACED, REFUSE_STOPPED, Reply};
use shade_formats::ring::{Descriptor, ERROR_TEXT_BYTES_MAX};
use shade_shm::{Region, RingEnd, memfd};

use crate::batches::Room;
use crate::control::{Terms, Welcomed, process_id, send};

/// Why the daemon hangs up on a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum End<'a> {
    /// Somebody has stopped the daemon: that is no death, after which a client looks for a
    /// successor.
    Stopped(&'a str),
    /// Another daemon takes this one's place.
    Replaced(&'a str),
    /// The daemon or the session cannot go on.
    Failed(&'a str),
}

struct Peer {
    socket: Arc<OwnedFd>,
    /// Name of its job.
    job: String,
    /// Samples whose decoders have ended daemons before this one, as it has told.
    avoided: Box<[u32]>,
    /// Why its job would end with this daemon, as it has told; empty: it would not.
    bound: String,
    /// Where the answer to its hello goes, with these terms if it is admitted.
    verdict: Option<(Sender<Result<Welcomed, Refusal>>, Terms)>,
    /// Bytes of its promised ring, until the ring exists.
    promised_bytes: u64,
    ring: Option<RingEnd>,
    /// It was admitted.
    accepted: bool,
    /// The daemon has hung up on it.
    closed: bool,
}

impl Peer {
    /// Hangs up, after sending why. One that is not welcomed yet gets a refusal in either case.
    fn hang_up(&self, end: End<'_>) {
        let last = match (end, &self.ring) {
            (End::Stopped(text), _) => Reply::Refuse { code: REFUSE_STOPPED, text: text.to_owned() },
            (End::Replaced(text), _) => Reply::Refuse { code: REFUSE_REPLACED, text: text.to_owned() },
            (End::Failed(text), Some(_)) => Reply::Failed { text: text.to_owned() },
            (End::Failed(text), None) => Reply::Refuse { code: REFUSE_ENDING, text: text.to_owned() },
        };
        // If this fails, the client sees the hang-up.
        let _ = send(&self.socket, &last, &[]);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

/// All sessions by id.
#[derive(Default)]
pub(super) struct Sessions {
    peers: HashMap<SessionId, Peer>,
    /// A session has ever told of samples.
    has_avoided: bool,
    /// The size that the cache was given last, which each ring says.
    resized: Option<u64>,
}

impl Sessions {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Whether a rank is admitted, or may be: a refused one is gone as soon as it has heard that.
    pub(super) fn has_ranks(&self) -> bool {
        self.peers.values().any(|peer| peer.accepted || peer.verdict.is_some())
    }

    pub(super) fn hello(
        &mut self,
        session: SessionId,
        socket: Arc<OwnedFd>,
        verdict: Sender<Result<Welcomed, Refusal>>,
        terms: Terms,
    ) {
        self.peers.insert(
            session,
            Peer {
                socket,
                job: terms.job.clone(),
                avoided: Box::default(),
                bound: String::new(),
                verdict: Some((verdict, terms)),
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
        if let Some((verdict, terms)) = peer.verdict.take() {
            // Fails only when the thread has ended.
            let _ = verdict.send(answer.map(|accepted| Welcomed { accepted, terms }));
        }
    }

    pub(super) fn mapped(&mut self, session: SessionId, ring: RingEnd) {
        if let Some(peer) = self.peers.get_mut(&session) {
            if let Some(cache_bytes) = self.resized {
                // Cannot fail, as in `beat`.
                let _ = ring.producer.tell_resized(cache_bytes);
            }
            peer.ring = Some(ring);
            peer.promised_bytes = 0;
        }
    }

    /// The cache was given this size.
    pub(super) fn note_resized(&mut self, cache_bytes: u64) {
        self.resized = Some(cache_bytes);
        for ring in self.peers.values().filter_map(|peer| peer.ring.as_ref()) {
            // Cannot fail, as in `beat`.
            let _ = ring.producer.tell_resized(cache_bytes);
        }
    }

    /// Whether the cache was given a size while this daemon ran.
    pub(super) fn has_resized(&self) -> bool {
        self.resized.is_some()
    }

    /// No row is made of these samples for the session's job.
    pub(super) fn avoid(&mut self, session: SessionId, samples: Vec<u32>) {
        if let Some(peer) = self.peers.get_mut(&session) {
            peer.avoided = samples.into();
            self.has_avoided = true;
        }
    }

    /// Notes why the session's job would end with this daemon.
    pub(super) fn bind(&mut self, session: SessionId, why: String) {
        if let Some(peer) = self.peers.get_mut(&session) {
            peer.bound = why;
        }
    }

    /// The jobs that would end with this daemon, and why.
    pub(super) fn bound(&self) -> BTreeMap<&str, &str> {
        let bound = self.peers.values().filter(|peer| !peer.bound.is_empty());
        bound.map(|peer| (&*peer.job, &*peer.bound)).collect()
    }

    /// Where the session's rows are made.
    pub(super) fn room(&self, session: SessionId) -> Option<Room> {
        let peer = self.peers.get(&session)?;
        let ring = peer.ring.as_ref()?;
        let board = Some(ring.producer.work_board());
        let avoided = if self.has_avoided { self.avoided_by(&peer.job) } else { Arc::default() };
        Some(Room { payload: ring.payload.clone(), board, avoided })
    }

    /// What the ranks of a job have told.
    fn avoided_by(&self, job: &str) -> Arc<[u32]> {
        let told = self.peers.values().filter(|peer| peer.job == job);
        told.flat_map(|peer| peer.avoided.iter().copied()).collect()
    }

    /// Where the session's batches are written.
    pub(super) fn payload(&self, session: SessionId) -> Option<Region> {
        Some(self.peers.get(&session)?.ring.as_ref()?.payload.clone())
    }

    /// Numbers of the descriptors that the client has released since the last call, and of the one
    /// that it waits for.
    pub(super) fn rung(&mut self, session: SessionId) -> Result<(Vec<u64>, Option<u64>), FormatError> {
        let ring = self.peers.get_mut(&session).and_then(|peer| peer.ring.as_mut());
        let Some(RingEnd { producer, .. }) = ring else { return Ok((Vec::new(), None)) };
        Ok((producer.released()?, producer.awaited()?))
    }

    /// Publishes a descriptor, with `error` written to its block, and wakes the client if it waits.
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
            Ok(true) => ring.doorbell.ring().map_err(|error| error.to_string()),
            Ok(false) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = woken {
            self.close(session, &error);
        }
    }

    /// Writes a heartbeat into every ring.
    pub(super) fn beat(&mut self) {
        let now_ns = monotonic_ns();
        for ring in self.peers.values().filter_map(|peer| peer.ring.as_ref()) {
            // Cannot fail: the mapping is ours and of full length.
            let _ = ring.producer.beat(now_ns);
        }
    }

    pub(super) fn reply(&mut self, session: SessionId, reply: &Reply) {
        self.reply_with(session, reply, None);
    }

    /// Sends a saved state as a file in memory: it may be larger than any message.
    pub(super) fn send_state(&mut self, session: SessionId, bytes: &[u8]) {
        match memfd::holding("shade-state", bytes) {
            Ok(file) => self.reply_with(session, &Reply::State { bytes: bytes.len() as u64 }, Some(&file)),
            Err(error) => {
                let text = format!("cannot hand out the state of {} bytes: {error}", bytes.len());
                self.reply(session, &Reply::Failed { text });
            }
        }
    }

    /// Gives sessions the base of an epoch, which all of them have in one file in memory.
    pub(super) fn give_base(&mut self, sessions: &[SessionId], epoch: u32, len: usize, file: &OwnedFd) {
        let base = Reply::Base { epoch, bytes: len as u64 };
        sessions.iter().for_each(|&session| self.reply_with(session, &base, Some(file)));
    }

    fn reply_with(&mut self, session: SessionId, reply: &Reply, file: Option<&OwnedFd>) {
        let Some(peer) = self.peers.get(&session) else { return };
        let fds: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        if let Err(error) = send(&peer.socket, reply, &fds) {
            self.close(session, &format!("it does not take its replies: {error}"));
        }
    }

    /// Ends a session and tells its client why. The session's thread then reports it gone.
    pub(super) fn close(&mut self, session: SessionId, why: &str) {
        if let Some(peer) = self.peers.get_mut(&session).filter(|peer| !peer.closed) {
            peer.closed = true;
            tracing::warn!("closing session {session}: {why}");
            peer.hang_up(End::Failed(&format!("it ends this session: {why}")));
        }
    }

    /// Hangs up on all clients, after sending why.
    pub(super) fn close_all(&mut self, end: End<'_>) {
        self.peers.values().for_each(|peer| peer.hang_up(end));
        self.peers.clear();
    }

    /// Removes a session that is gone. Returns whether it had been admitted.
    pub(super) fn forget(&mut self, session: SessionId) -> bool {
        self.peers.remove(&session).is_some_and(|peer| peer.accepted)
    }

    /// The sessions of this process.
    pub(super) fn of_process(&self, process: Option<Pid>) -> Vec<SessionId> {
        let is_of = |peer: &Peer| process.is_some() && process_id(&peer.socket) == process;
        self.peers.iter().filter(|(_, peer)| is_of(peer)).map(|(session, _)| *session).collect()
    }

    /// Bytes of rings that are promised and do not exist yet.
    pub(super) fn promised_bytes(&self) -> u64 {
        self.peers.values().map(|peer| peer.promised_bytes).sum()
    }
}

/// CLOCK_MONOTONIC, which both sides of a ring read.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    /// The message to a client that has only said hello, before the hang-up.
    fn told_before_its_welcome(end: impl FnOnce(&mut Sessions)) -> Reply {
        let (client, daemon) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut sessions = Sessions::default();
        let (verdict, _waiting) = crossbeam_channel::bounded(1);
        sessions.hello(1, Arc::new(daemon), verdict, Terms::default());
        end(&mut sessions);
        let mut bytes = [0; 1024];
        let (len, _) = recv(&client, &mut bytes, RecvFlags::empty()).unwrap();
        assert_eq!(recv(&client, &mut [0; 8], RecvFlags::empty()).unwrap().0, 0, "and hangs up");
        Reply::decode(&bytes[..len]).unwrap()
    }

    #[test]
    fn samples_are_avoided_for_the_job_that_has_told_of_them_alone() {
        let mut sessions = Sessions::default();
        for (session, job) in [(1, "a"), (2, "a"), (3, "b")] {
            let (_, daemon) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            let terms = Terms { job: job.to_owned(), ..Terms::default() };
            sessions.hello(session, Arc::new(daemon), crossbeam_channel::bounded(1).0, terms);
        }
        sessions.avoid(1, vec![7]);
        sessions.avoid(3, vec![9, 8]);
        assert_eq!((&*sessions.avoided_by("a"), &*sessions.avoided_by("b")), (&[7][..], &[9, 8][..]));
        sessions.forget(1);
        assert_eq!(sessions.avoided_by("a").len(), 0, "another job may have its name");
    }

    #[test]
    fn a_rank_that_waits_to_be_welcomed_is_refused_when_the_daemon_ends() {
        let refused = |code, text: &str| Reply::Refuse { code, text: text.to_owned() };
        let defect = told_before_its_welcome(|sessions| sessions.close_all(End::Failed("a thread panicked")));
        assert_eq!(defect, refused(REFUSE_ENDING, "a thread panicked"));
        let stopped = told_before_its_welcome(|sessions| sessions.close_all(End::Stopped("by a signal")));
        assert_eq!(stopped, refused(REFUSE_STOPPED, "by a signal"));
    }
}
