//! The control socket: a listener, and one thread per rank that turns its messages and doorbells
//! into [`Message`]s.
//!
//! `admission` limits connections, `peer` identifies the process at the other end, `socket_file`
//! decides which daemon has a path. `observe` is the recorder's side: it asks a running daemon for
//! a trace.

mod admission;
mod listener;
mod message;
mod observe;
mod peer;
mod served_job;
mod session;
mod socket;
mod socket_file;

pub(crate) use listener::Listener;
pub(crate) use message::{Asked, Message, Welcomed};
pub(crate) use observe::{ObserveError, Observed, observe};
pub(crate) use served_job::ServedJob;
pub(crate) use socket::send;
