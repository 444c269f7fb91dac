//! How many reads are in flight, and how many may be.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Depth;
use crate::depth::{DEPTH_MAX, DepthController};

/// Shared by an engine's threads. Only counts: it lets nobody wait.
pub(super) struct Gate {
    in_flight: AtomicU32,
    /// Reads in flight when the last one began. Reads end and begin in bursts: in the middle of one fewer are in flight
    /// than before and after it, and a wait is never spent there.
    level: AtomicU32,
    /// What the controller said last.
    depth: AtomicU32,
    controller: Mutex<DepthController>,
    most: u32,
    started: Instant,
}

impl Gate {
    pub(super) fn new(depth: Depth) -> Self {
        let (controller, most) = match depth {
            Depth::Auto => (DepthController::new(), DEPTH_MAX),
            Depth::Fixed(depth) => (DepthController::fixed(depth), depth),
        };
        let depth = AtomicU32::new(controller.depth());
        Self {
            in_flight: AtomicU32::new(0),
            level: AtomicU32::new(0),
            depth,
            controller: Mutex::new(controller),
            most,
            started: Instant::now(),
        }
    }

    /// Reads that may be in flight now.
    pub(super) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Reads that may ever be in flight.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Whether one more read may begin. Two threads that both ask before either enters exceed the depth by one: ask and
    /// enter on one thread or under one lock.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) < self.depth()
    }

    /// A read begins.
    pub(super) fn enter(&self) {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.level.store(in_flight, Ordering::Relaxed);
    }

    /// A read is over, or waits before it is tried again: a read that waits holds no place. `went_well` is what it took and
    /// when it ended, if it went as reads should; `failed` says that the store had trouble.
    pub(super) fn leave(&self, went_well: Option<(Duration, Instant)>, failed: bool) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let mut controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((latency, now)) = went_well {
            let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let now_ns = ns(now.saturating_duration_since(self.started));
            controller.completed(self.level.load(Ordering::Relaxed), ns(latency), now_ns);
        }
        if failed {
            controller.failed();
        }
        self.depth.store(controller.depth(), Ordering::Relaxed);
    }
}
