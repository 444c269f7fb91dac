//! `shade-load status`, `stop`, `drain` and `resize`: ask running daemons what they do, end them,
//! or give their caches another size.
//!
//! `find` lists the sockets of this user's daemons, and `target` goes through those that are meant.
//! `told` reads a daemon's answer, `table` shows it.

mod cli;
mod end;
mod error;
mod find;
mod resize;
mod status;
mod table;
mod target;
mod told;

pub use cli::{Drain, Resize, Status, Stop};
pub use end::{drain, stop};
pub use error::AskError;
pub use resize::resize;
pub use status::status;
pub(crate) use status::{Answered, Answers, ask_all};
pub(crate) use target::target_of;
pub(crate) use told::DaemonStatus;
