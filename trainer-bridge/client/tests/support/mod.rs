//! A small daemon for the client's tests: real sockets, real sealed memory, the real ring, and no
//! store behind it.
#![allow(dead_code, reason = "each test file uses its part")]
#![expect(unsafe_code, reason = "the test daemon maps its own segments")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::Duration;

use memmap2::MmapOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    recvmsg, sendmsg, socket_with,
};
use shade_client::{JobSpec, Next, Options, Session, Tail};
use shade_formats::control::{PROTOCOL, Reply, Request, socket_name};
use shade_formats::index::{INDEX_FILE, Index, IndexBuilder};
use shade_formats::ring::{
    BatchLayout, CLIENT_SEGMENT_BYTES, DAEMON_SEGMENT_BYTES, Descriptor, Kind, Layout, PayloadAllocator,
    PayloadSize,
};
use shade_shm::{Doorbell, Producer, Region};

pub(crate) const PAYLOAD_BYTES: u64 = 16 * 4096;
/// Length of the longest batches: two pages.
const GAP_BYTES: u64 = 2 * 4096;
/// Long enough for any machine; only a hang takes it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn spec() -> JobSpec {
    JobSpec { batch_size: 4, world_size: 2, tail: Tail::Drop, ..JobSpec::default() }
}

pub(crate) fn options() -> Options {
    // The daemons of these tests have no successor that would be worth a wait.
    Options { timeout: LONG, survive: false, ..Options::default() }
}

/// A dataset of just an index without samples, which the test daemon never opens. All have the same
/// content. Each test has one, as a dataset has one daemon.
pub(crate) fn dataset(name: &str) -> PathBuf {
    // Both sides of a test ask for it at once.
    static MAKING: Mutex<()> = Mutex::new(());
    let _turn = MAKING.lock();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let index = folder.join(INDEX_FILE);
    if !index.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(index, IndexBuilder::new().finish().unwrap()).unwrap();
    }
    std::fs::canonicalize(folder).unwrap()
}

/// The content in its index.
pub(crate) fn content_id() -> u128 {
    let bytes = std::fs::read(dataset(&unique("content")).join(INDEX_FILE)).unwrap();
    Index::content_id_at_start(&bytes).unwrap().0
}

/// A name that no other test and no other run has.
pub(crate) fn unique(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

pub(crate) fn connect(name: &str) -> Session {
    Session::connect(&dataset(name), "j", 1, spec(), &options()).unwrap()
}

/// Calls `next` until it is not `Pending`.
pub(crate) fn next(session: &Session) -> Result<Next, shade_client::ClientError> {
    loop {
        match session.next(LONG)? {
            Next::Pending => {}
            other => return Ok(other),
        }
    }
}

pub(crate) fn next_batch(session: &Session) -> shade_client::Batch {
    match next(session).unwrap() {
        Next::Batch(batch) => batch,
        other => panic!("{other:?} instead of a batch"),
    }
}

/// A bound and listening socket.
pub(crate) struct Listener {
    socket: OwnedFd,
}

impl Listener {
    pub(crate) fn bind(name: &str) -> Self {
        let name = socket_name(rustix::process::geteuid().as_raw(), &dataset(name));
        Self::bind_to(&SocketAddrUnix::new_abstract_name(&name).unwrap())
    }

    pub(crate) fn bind_path(path: &Path) -> Self {
        Self::bind_to(&SocketAddrUnix::new(path).unwrap())
    }

    fn bind_to(address: &SocketAddrUnix) -> Self {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, address).unwrap();
        listen(&socket, 16).unwrap();
        Self { socket }
    }

    /// Accepts one client and receives its Hello. A command that looks at all daemons of this
    /// machine may come before it.
    pub(crate) fn accept(&self) -> Peer {
        loop {
            if let Some(peer) = self.accept_next() {
                return peer;
            }
        }
    }

    /// The same, if one comes within `patience`.
    pub(crate) fn accept_within(&self, patience: Duration) -> Option<Peer> {
        let timeout = Timespec::try_from(patience).unwrap();
        loop {
            let came = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)).unwrap();
            if came == 0 {
                return None;
            }
            if let Some(peer) = self.accept_next() {
                return Some(peer);
            }
        }
    }

    /// The next client, unless it is such a command.
    fn accept_next(&self) -> Option<Peer> {
        let peer = Peer { socket: accept_with(&self.socket, SocketFlags::CLOEXEC).unwrap() };
        match peer.hear() {
            Request::Status { .. } => None,
            Request::Hello { protocol: PROTOCOL, rank: 1, content_id: asked, .. } => {
                assert_eq!(asked, content_id());
                Some(peer)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Accepts one client and hangs up before its Hello.
    pub(crate) fn turn_away(&self, reply: &Reply) {
        Peer { socket: accept_with(&self.socket, SocketFlags::CLOEXEC).unwrap() }.say(reply);
    }

    /// Takes one client, welcomes it, and becomes its daemon.
    pub(crate) fn serve(&self) -> Daemon {
        let peer = self.accept();
        let memory = Memory::new();
        peer.send(&welcome(PAYLOAD_BYTES), &memory.fds());
        Daemon::new(peer, memory)
    }
}

pub(crate) fn welcome(payload_bytes: u64) -> Reply {
    Reply::Welcome {
        protocol: PROTOCOL,
        pid: 4242,
        samples: 1000,
        classes: 10,
        content_id: content_id(),
        batches_per_epoch: 7,
        payload_bytes,
        job: "j".to_owned(),
        settings: "{\"cache\":\"20%\"}".to_owned(),
    }
}

/// One connected client.
pub(crate) struct Peer {
    socket: OwnedFd,
}

impl Peer {
    pub(crate) fn hear(&self) -> Request {
        self.hear_with_fds().0
    }

    /// The next request. A client offers its standard error for the log unasked, and says whether
    /// its job would end with the daemon.
    pub(crate) fn hear_with_fds(&self) -> (Request, Vec<OwnedFd>) {
        loop {
            let (request, fds) = self.hear_anything();
            if !matches!(request, Request::Log | Request::Bound { .. }) {
                return (request, fds);
            }
        }
    }

    fn hear_anything(&self) -> (Request, Vec<OwnedFd>) {
        let mut bytes = vec![0; 256 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags).unwrap();
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        (Request::decode(&bytes[..got.bytes]).unwrap(), fds)
    }

    pub(crate) fn say(&self, reply: &Reply) {
        self.send(reply, &[]);
    }

    pub(crate) fn send(&self, reply: &Reply, fds: &[BorrowedFd<'_>]) {
        self.send_bytes(&reply.encode(), fds);
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }
}

/// The four descriptors of a ring, to be made wrong one at a time.
pub(crate) struct Memory {
    pub(crate) daemon: OwnedFd,
    pub(crate) client: OwnedFd,
    pub(crate) payload: OwnedFd,
    pub(crate) theirs: Doorbell,
    pub(crate) doorbell: Doorbell,
    pub(crate) daemon_region: Region,
    pub(crate) producer: Producer,
    pub(crate) payload_region: Region,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let (daemon, daemon_region) = segment(DAEMON_SEGMENT_BYTES, SIZE_SEALS | SealFlags::FUTURE_WRITE);
        let (client, client_region) = segment(CLIENT_SEGMENT_BYTES, SIZE_SEALS);
        let (payload, payload_region) = segment(PAYLOAD_BYTES, SIZE_SEALS);
        let (doorbell, theirs) = Doorbell::pair().unwrap();
        let size = PayloadSize { bytes: PAYLOAD_BYTES, gap_bytes: GAP_BYTES };
        let producer = Producer::create(daemon_region.clone(), client_region, size).unwrap();
        Self { daemon, client, payload, theirs, doorbell, daemon_region, producer, payload_region }
    }

    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 4] {
        [self.daemon.as_fd(), self.client.as_fd(), self.payload.as_fd(), self.theirs.as_fd()]
    }
}

pub(crate) const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

pub(crate) fn segment(bytes: u64, seals: SealFlags) -> (OwnedFd, Region) {
    let fd = memfd_create("shade-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    let len = usize::try_from(bytes).unwrap();
    let mapping = MmapOptions::new().len(len).map_raw(&fd).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    let start = NonNull::new(mapping.as_mut_ptr()).unwrap();
    // SAFETY: the mapping is `len` bytes at `start`, writable, dropped by the region, never
    // referenced.
    let region = unsafe { Region::from_raw(start, len, mapping) };
    (fd, region)
}

/// A welcomed client, and the daemon's end of its ring.
pub(crate) struct Daemon {
    pub(crate) peer: Peer,
    memory: Memory,
    blocks: PayloadAllocator,
    /// Descriptors released so far.
    released: usize,
    /// The blocks of unreleased descriptors, by number.
    offsets: HashMap<u64, Option<u64>>,
}

impl Daemon {
    fn new(peer: Peer, memory: Memory) -> Self {
        let blocks = PayloadAllocator::new(PAYLOAD_BYTES).unwrap();
        Self { peer, memory, blocks, released: 0, offsets: HashMap::new() }
    }

    /// Receives a `StartEpoch` and returns its generation.
    pub(crate) fn epoch_started(&self) -> u32 {
        self.epoch_replaced().0
    }

    /// Receives a `StartEpoch`. Returns its generation, and whether a batch of the epoch before was
    /// taken.
    pub(crate) fn epoch_replaced(&self) -> (u32, bool) {
        match self.peer.hear() {
            Request::StartEpoch { generation, has_taken, .. } => (generation, has_taken),
            other => panic!("{other:?} instead of StartEpoch"),
        }
    }

    /// Frees released blocks; returns the number of descriptors released so far.
    pub(crate) fn reclaim(&mut self) -> usize {
        for seq in self.memory.producer.released().unwrap() {
            if let Some(offset) = self.offsets.remove(&seq).unwrap() {
                assert!(self.blocks.free(offset));
            }
            self.released += 1;
        }
        self.released
    }

    /// Sleeps until the client rings.
    pub(crate) fn wait_for_doorbell(&self) {
        poll(&mut [PollFd::new(&self.memory.doorbell, PollFlags::IN)], None).unwrap();
        self.memory.doorbell.answer().unwrap();
    }

    /// Whether the client has rung, without a wait for it.
    pub(crate) fn has_rung(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let rung = poll(&mut [PollFd::new(&self.memory.doorbell, PollFlags::IN)], Some(&now)).unwrap() > 0;
        self.memory.doorbell.answer().unwrap();
        rung
    }

    /// Publishes a raw batch of `records`, waiting for room if need be.
    pub(crate) fn publish_batch(&mut self, generation: u32, batch: u32, records: &[&[u8]]) {
        let data_len: u64 = records.iter().map(|record| record.len() as u64).sum();
        let capacity = u32::try_from(records.len()).unwrap();
        let layout = BatchLayout::new(Layout::Raw, capacity, data_len).unwrap();
        let offset = self.room(layout.total);
        let payload = self.memory.payload_region.clone();
        let mut at = 0_u64;
        for (row, record) in records.iter().enumerate() {
            let row = row as u64;
            let write = |column: u64, bytes: &[u8]| {
                payload.write(offset + column + row * bytes.len() as u64, bytes).unwrap();
            };
            write(layout.ids, &(i64::from(batch) * 100 + i64::try_from(row).unwrap()).to_le_bytes());
            write(layout.labels, &i64::try_from(row).unwrap().to_le_bytes());
            write(layout.weights, &0.5_f32.to_le_bytes());
            write(layout.flags, &1_u32.to_le_bytes());
            write(layout.offsets().unwrap(), &at.to_le_bytes());
            write(layout.lens().unwrap(), &(record.len() as u64).to_le_bytes());
            payload.write(offset + layout.data + at, record).unwrap();
            at += record.len() as u64;
        }
        self.publish(Descriptor {
            generation,
            kind: Kind::Batch,
            layout: Layout::Raw,
            batch,
            offset,
            len: layout.total,
            records: capacity,
            capacity,
            ..Descriptor::default()
        });
    }

    pub(crate) fn publish_end(&mut self, generation: u32) {
        self.publish(Descriptor { generation, kind: Kind::EpochEnd, ..Descriptor::default() });
    }

    pub(crate) fn publish_error(&mut self, generation: u32, text: &str) {
        let offset = self.room(text.len() as u64);
        self.memory.payload_region.write(offset, text.as_bytes()).unwrap();
        let len = text.len() as u64;
        self.publish(Descriptor { generation, kind: Kind::Error, offset, len, ..Descriptor::default() });
    }

    /// Publishes any descriptor under the right number, and rings if asked to.
    pub(crate) fn publish(&mut self, descriptor: Descriptor) {
        let seq = self.memory.producer.next_seq();
        self.offsets.insert(seq, (descriptor.kind != Kind::EpochEnd).then_some(descriptor.offset));
        if self.memory.producer.publish(&Descriptor { seq, ..descriptor }).unwrap() {
            self.memory.doorbell.ring().unwrap();
        }
    }

    fn room(&mut self, len: u64) -> u64 {
        loop {
            self.reclaim();
            if self.memory.producer.has_room()
                && let Some(offset) = self.blocks.reserve(len)
            {
                return offset;
            }
            self.wait_for_doorbell();
        }
    }

    /// Whether a block of `len` bytes has room now.
    pub(crate) fn has_room(&mut self, len: u64) -> bool {
        self.reclaim();
        self.blocks.has_room(len)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}
