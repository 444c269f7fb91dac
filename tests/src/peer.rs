//! A client that can break the protocol, as it writes the socket's bytes itself.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use shade_client::JobSpec;
use shade_formats::control::{PROTOCOL, Reply, Request, WELCOME_FDS, socket_name};
use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::limits::MESSAGE_BYTES_MAX;

/// Longest wait for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection to a dataset's daemon.
pub struct Peer {
    socket: OwnedFd,
    dataset: String,
}

impl Peer {
    /// Connects to the daemon of `dataset`, without a message.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn connect(dataset: &Path) -> Self {
        Self::try_connect(dataset).unwrap()
    }

    /// The same, or `None` if nobody listens.
    ///
    /// # Panics
    /// Where no socket can be made.
    #[must_use]
    pub fn try_connect(dataset: &Path) -> Option<Self> {
        let name = socket_name(rustix::process::geteuid().as_raw(), dataset);
        let address = SocketAddrUnix::new_abstract_name(&name).unwrap();
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::connect(&socket, &address).ok()?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        Some(Self { socket, dataset: dataset.to_str().unwrap().to_owned() })
    }

    /// A valid hello to the default job.
    ///
    /// # Panics
    /// When the dataset has no index any more.
    #[must_use]
    pub fn hello(&self, rank: u32, spec: JobSpec) -> Request {
        let (dataset, job) = (self.dataset.clone(), "default".to_owned());
        let index = std::fs::read(Path::new(&dataset).join(INDEX_FILE)).unwrap();
        Request::Hello {
            protocol: PROTOCOL,
            samples: Index::samples_at_start(&index).unwrap(),
            content_id: Index::content_id_at_start(&index).unwrap().0,
            dataset,
            job,
            or_free_name: false,
            rank,
            survives: false,
            settings: "{}".to_owned(),
            document: spec.to_text(),
        }
    }

    /// Sends `bytes` as one message, with `fd`. `false`: the daemon has hung up.
    pub fn send(&self, bytes: &[u8], fd: Option<&OwnedFd>) -> bool {
        let fds: Vec<_> = fd.into_iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags).is_ok()
    }

    /// Sends a request. `false`: the daemon has hung up.
    pub fn ask(&self, request: &Request) -> bool {
        self.send(&request.encode(), None)
    }

    /// The next reply and its file descriptors. `None`: the daemon has hung up.
    ///
    /// # Panics
    /// When neither happens, or the reply cannot be read.
    #[must_use]
    pub fn receive(&self) -> Option<(Reply, Vec<OwnedFd>)> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(WELCOME_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        let received = rustix::net::recvmsg(&self.socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let len = match received {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => panic!("no reply: {error}"),
        };
        let mut fds = Vec::new();
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = part {
                fds.extend(received);
            }
        }
        (len > 0).then(|| (Reply::decode(&bytes[..len]).unwrap(), fds))
    }

    /// Says hello as `rank` and returns the ring's descriptors.
    ///
    /// # Panics
    /// When the daemon refuses.
    #[must_use]
    pub fn attach(&self, rank: u32, spec: JobSpec) -> Vec<OwnedFd> {
        assert!(self.ask(&self.hello(rank, spec)));
        match self.receive() {
            Some((Reply::Welcome { .. }, fds)) => fds,
            other => panic!("no welcome: {other:?}"),
        }
    }
}
