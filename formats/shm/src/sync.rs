//! The one switch between the machine's memory model and loom's, which explores every order that it
//! allows.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{Ordering, fence};
