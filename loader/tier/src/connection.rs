//! One connection to a server.
//!
//! The protocol is spoken here and not by a library. So a record goes from the socket straight into
//! its blocks, and its length is known before it is read. An answer has one deadline, and 30 crates
//! fewer are built.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use shade_core::TierMiss;
use shade_formats::limits::RECORD_BYTES_MAX;
use shade_reads::ReadOp;
use shade_reads::blocks::Arena;

use crate::reply::{Head, Reply, command, head, reply};
use crate::stream::{Stream, tls};
use shade_job::{Address, Servers};

/// The environment variable with the password of all servers.
pub const PASSWORD_VARIABLE: &str = "SHADE_TIER_PASSWORD";
/// A daemon's longest wait for a connection, for a piece of an answer, or for room to send; an
/// answer takes twice that at most, and a long one once more for each MiB. A batch may wait for it.
pub const DEADLINE: Duration = Duration::from_millis(200);

/// Why a server cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ServerFault {
    text: String,
}

impl ServerFault {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string() }
    }
}

impl From<io::Error> for ServerFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::new("no answer in time"),
            io::ErrorKind::UnexpectedEof => Self::new("it closed the connection"),
            _ => Self::new(error),
        }
    }
}

/// How to log in, and how long to wait: equal for all servers.
pub struct Login {
    deadline: Duration,
    tls: Option<Result<Arc<ClientConfig>, ServerFault>>,
    user: Option<String>,
    password: Option<String>,
}

impl Login {
    /// With the password of the environment, if there is one. `deadline` is for a connection, for a
    /// piece of an answer, and for room to send.
    #[must_use]
    pub fn from_environment(servers: &Servers, deadline: Duration) -> Self {
        let tls = servers.tls.then(|| tls().map_err(ServerFault::from));
        Self { deadline, tls, user: servers.user.clone(), password: std::env::var(PASSWORD_VARIABLE).ok() }
    }
}

/// An answer to the request for a record.
pub(crate) enum Fetched {
    /// Its bytes are in the blocks.
    Record,
    Missed(TierMiss),
    /// The server answered with an error.
    Refused(String),
}

/// An open connection. After a fault it is of no use, as answers may be left in it.
pub struct Connection(Stream);

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The server is not there, does not answer in time, or refuses.
    pub fn open(address: &Address, login: &Login) -> Result<Self, ServerFault> {
        let tls = login.tls.as_ref().map(|tls| tls.as_ref().map_err(Clone::clone)).transpose()?;
        let mut connection = Self(Stream::open(address, tls, login.deadline)?);
        if let Some(password) = &login.password {
            let user = login.user.as_ref().map(String::as_bytes);
            let words: Vec<&[u8]> =
                std::iter::once(b"AUTH".as_slice()).chain(user).chain([password.as_bytes()]).collect();
            connection.call(&words)?;
        }
        Ok(connection)
    }

    /// Sends a command and takes its answer.
    ///
    /// # Errors
    /// The server answers with an error, not in time, or not at all.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Reply, ServerFault> {
        self.send(&command(words, None))?;
        match self.answer()? {
            Reply::Error(text) => Err(ServerFault { text }),
            reply => Ok(reply),
        }
    }

    /// Sends bytes of commands.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ServerFault> {
        Ok(self.0.send(bytes)?)
    }

    /// The next answer. An error that the server answers is a value here.
    pub(crate) fn answer(&mut self) -> Result<Reply, ServerFault> {
        self.0.begin();
        Ok(reply(&mut self.0)?)
    }

    /// The answer to the request for a record, whose bytes go into its blocks.
    pub(crate) fn fetch(&mut self, op: &mut ReadOp, arena: &Arena) -> Result<Fetched, ServerFault> {
        let stream = &mut self.0;
        stream.begin();
        match head(stream)? {
            Head::Bytes(len) if len == u64::from(op.len) => {
                for slice in arena.slices_mut(&mut op.blocks, op.len).map_err(ServerFault::new)? {
                    stream.read(slice)?;
                }
                stream.skip(2)?;
                let checksum = arena.crc32c(&op.blocks, op.len).map_err(ServerFault::new)?;
                // Without a checksum nothing would tell a server's wrong bytes.
                Ok(if Some(checksum) == op.crc32c {
                    Fetched::Record
                } else {
                    Fetched::Missed(TierMiss::Wrong)
                })
            }
            Head::Bytes(len) if len <= RECORD_BYTES_MAX => {
                stream.skip(len + 2)?;
                Ok(Fetched::Missed(TierMiss::Wrong))
            }
            Head::Whole(Reply::Nil) => Ok(Fetched::Missed(TierMiss::Absent)),
            Head::Whole(Reply::Error(text)) => Ok(Fetched::Refused(text)),
            Head::Bytes(_) | Head::List(_) | Head::Whole(_) => Err(ServerFault::new("a record that is none")),
        }
    }

    /// Settings of these names; without those that the server does not tell.
    pub(crate) fn settings(&mut self, names: &[&str]) -> HashMap<String, String> {
        let one = |name: &&str| {
            let Ok(Reply::List(pair)) = self.call(&[b"CONFIG", b"GET", name.as_bytes()]) else { return None };
            let [name, value] = pair.as_slice() else { return None };
            Some((name.text()?, value.text()?))
        };
        names.iter().filter_map(one).collect()
    }

    /// The lines `name:value` of a section of INFO.
    pub(crate) fn info(&mut self, section: &str) -> Result<HashMap<String, String>, ServerFault> {
        let text = self.call(&[b"INFO", section.as_bytes()])?.text().unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
