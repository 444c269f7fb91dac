//! The control socket: a listener, and one thread per rank that turns its messages and doorbells into [`Message`]s.

mod listener;
mod message;
mod session;
mod socket;

pub use listener::Listener;
pub use message::Message;
pub use session::Identity;
pub use socket::send;
