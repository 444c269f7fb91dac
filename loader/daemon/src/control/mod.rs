//! The control socket: a listener, and one thread per rank that turns its messages and doorbells
//! into [`Message`]s.
//!
//! `admission` limits connections, `socket` passes messages and identifies the process at the other
//! end, `socket_file` decides which daemon has a path, `heritage` is what the next one is given.
//! `call` is the other side, for the commands that ask a running daemon; `observe` asks it for a
//! trace.

mod admission;
mod call;
mod heritage;
mod listener;
mod message;
mod observe;
mod session;
mod socket;
mod socket_file;

pub use call::default_socket;
pub(crate) use call::{Address, Call, CallError, LOOK_TIMEOUT};
pub(crate) use listener::Listener;
pub(crate) use message::{Asked, Message, Resized, Terms, Welcomed};
pub(crate) use observe::{Observed, observe};
pub(crate) use session::ServedDataset;
pub(crate) use socket::{process_id, send};
