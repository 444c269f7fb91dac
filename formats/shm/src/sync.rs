//! The switch between the machine's atomics and loom's, which explores every allowed order.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{Ordering, fence};
