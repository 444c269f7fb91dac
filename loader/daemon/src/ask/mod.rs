//! `shade-load status`, `stop` and `drain`: ask running daemons what they do, and end them.
//!
//! `find` lists the sockets of this user's daemons, `told` reads a daemon's answer, `table` shows
//! it.

mod cli;
mod end;
mod error;
mod find;
mod status;
mod table;
mod told;

pub use cli::{Drain, Status, Stop};
pub use end::{drain, stop};
pub use error::AskError;
pub use status::status;
pub(crate) use told::DaemonStatus;
