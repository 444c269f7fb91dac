//! `shade-load status`, `stop`, `drain` and `resize`: ask running daemons what they do, end them,
//! or give their caches another size.
//!
//! `find` lists the sockets of this user's daemons, and `target` goes through those that are meant.
//! `table` shows what they say. `status` asks all of them, `change` ends daemons or
//! gives them another size.

mod change;
mod cli;
mod error;
mod find;
mod status;
mod table;
mod target;

pub use change::{drain, resize, stop};
pub use cli::{Drain, Resize, Status, Stop};
pub use error::AskError;
pub use status::status;
pub(crate) use status::{Answered, Answers, ask_all, promised_to_others};
pub(crate) use target::target_of;
