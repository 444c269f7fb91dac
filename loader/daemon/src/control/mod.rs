//! The control socket: a listener, and one thread per rank that turns its messages and doorbells into [`Message`]s.
//!
//! `admission` bounds connections, `peer` says who is at the other end, `socket_file` decides which
//! daemon has a path. `observe` is the other side of it: how a recorder asks a running daemon for a
//! trace.

mod admission;
mod identity;
mod listener;
mod message;
mod observe;
mod peer;
mod session;
mod socket;
mod socket_file;

pub use identity::Identity;
pub use listener::Listener;
pub use message::{Asked, Message, Welcomed};
pub use observe::{ObserveError, Observed, observe};
pub use socket::send;
