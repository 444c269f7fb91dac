//! The bytes to and from a server, encrypted or not, and buffered on the way back.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use shade_job::Address;

/// Bytes read at once where less than that is left of a record.
const BUFFER_BYTES: usize = 16 * 1024;
/// With this many bytes, a long answer has earned another deadline: a server that delivers at
/// 5 MiB/s is slow, but neither dead nor hanging.
const EARNED_BYTES: u32 = 1 << 20;

enum Socket {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// An open stream. Each wait for bytes, and for room to send some, ends after a deadline; so does
/// an answer, which has another one for each MiB that came.
pub(crate) struct Stream {
    socket: Socket,
    buffer: Box<[u8]>,
    /// The bytes of the buffer that were not taken yet.
    start: usize,
    end: usize,
    deadline: Duration,
    /// The answer at hand must be complete by then.
    until: Instant,
}

impl Stream {
    pub(crate) fn open(
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
        deadline: Duration,
    ) -> io::Result<Self> {
        let Address { host, port } = address;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let mut found = None;
        for address in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, deadline) {
                Ok(stream) => {
                    found = Some(stream);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let stream = found.ok_or(last)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(deadline))?;
        stream.set_write_timeout(Some(deadline))?;
        let socket = match tls {
            None => Socket::Plain(stream),
            Some(config) => {
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let client = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Socket::Encrypted(Box::new(StreamOwned::new(client, stream)))
            }
        };
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Ok(Self { socket, buffer, start: 0, end: 0, deadline, until: Instant::now() + deadline })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.socket {
            Socket::Plain(stream) => stream.write_all(bytes),
            Socket::Encrypted(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// The next answer begins.
    pub(crate) fn begin(&mut self) {
        self.until = Instant::now() + self.deadline;
    }

    /// Bytes up to the next line feed, without the end of the line. At most `most` are read.
    pub(crate) fn line(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let at = self.buffered().iter().position(|&byte| byte == b'\n');
            let taken = at.map_or(self.end - self.start, |at| at + 1);
            line.extend_from_slice(self.buffered().get(..taken).unwrap_or_default());
            self.start += taken;
            if line.len() > most {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer has no end of line"));
            }
            if at.is_some() {
                line.truncate(line.trim_ascii_end().len());
                return Ok(line);
            }
            self.fill()?;
        }
    }

    /// Fills `into`. What is larger than the buffer goes past it.
    pub(crate) fn read(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            if self.start == self.end && into.len() >= BUFFER_BYTES {
                let got = self.receive(into)?;
                into = into.get_mut(got..).unwrap_or_default();
                continue;
            }
            if self.start == self.end {
                self.fill()?;
            }
            let count = into.len().min(self.end - self.start);
            let Some(room) = into.split_off_mut(..count) else { break };
            room.copy_from_slice(self.buffered().get(..count).unwrap_or_default());
            self.start += count;
        }
        Ok(())
    }

    /// Reads this many bytes and forgets them.
    pub(crate) fn skip(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            if self.start == self.end {
                self.fill()?;
            }
            let taken = usize::try_from(count).unwrap_or(usize::MAX).min(self.end - self.start);
            self.start += taken;
            count -= taken as u64;
        }
        Ok(())
    }

    fn buffered(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let got = self.receive(&mut buffer);
        self.buffer = buffer;
        (self.start, self.end) = (0, got?);
        Ok(())
    }

    /// Reads some bytes, at least one.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = match &mut self.socket {
            Socket::Plain(stream) => stream.read(into),
            Socket::Encrypted(stream) => stream.read(into),
        };
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.receive(into),
            Ok(got) => {
                self.until += self.deadline * u32::try_from(got).unwrap_or(u32::MAX) / EARNED_BYTES;
                Ok(got)
            }
            Err(error) => Err(error),
        }
    }
}

/// TLS with the system's certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
pub(crate) fn tls() -> io::Result<Arc<ClientConfig>> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or("there are none".to_owned(), ToString::to_string);
        return Err(io::Error::other(format!("no certificates to trust: {why}; SSL_CERT_FILE names some")));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_long_answer_has_another_deadline_for_each_mib_that_came() {
        const DEADLINE: Duration = Duration::from_secs(60);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let mut bytes = vec![7; 3 << 20];
        let length = bytes.len();
        let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&vec![7; length]));
        let mut stream = Stream::open(&address, None, DEADLINE).unwrap();
        stream.begin();
        let until = stream.until;
        stream.read(&mut bytes).unwrap();
        let earned = stream.until - until;
        // Each piece is rounded down to a nanosecond.
        assert!(earned <= 3 * DEADLINE && earned > 3 * DEADLINE - Duration::from_millis(1), "{earned:?}");
        server.join().unwrap().unwrap();
    }
}
