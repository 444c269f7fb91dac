//! How many reads are in flight: the setting, their count and its limit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::depth::{DEPTH_MAX, DepthController, OBJECTS_DEPTH_MAX};

/// How many reads are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As many as the store gains from ([`DepthController`]).
    Auto,
    /// This number, 1 to [`READS_DEPTH_MAX`](shade_formats::limits::READS_DEPTH_MAX).
    Fixed(u32),
}

impl From<Option<u32>> for Depth {
    /// As a daemon's settings have it.
    fn from(depth: Option<u32>) -> Self {
        depth.map_or(Self::Auto, Self::Fixed)
    }
}

impl Depth {
    /// Most reads worth submitting at a time, of shards that are files or objects: twice as many as
    /// can be in flight.
    #[must_use]
    pub fn submitted_max(self, are_objects: bool) -> u32 {
        2 * match self {
            Self::Auto if are_objects => OBJECTS_DEPTH_MAX,
            Self::Auto => DEPTH_MAX,
            Self::Fixed(depth) => depth,
        }
    }
}

/// The count and its limit, shared by an engine's threads. It only counts; no thread waits in it.
pub(super) struct Gate {
    in_flight: AtomicU32,
    /// Reads in flight when the last one began. Reads end and begin in bursts; fewer are in flight
    /// in the middle of a burst, but only for a moment.
    level: AtomicU32,
    /// The controller's last depth.
    depth: AtomicU32,
    controller: Mutex<DepthController>,
    /// Nodes that read from the store.
    nodes: AtomicU32,
    most: u32,
    started: Instant,
    /// When it started, as time since 1970: nodes act at the same times.
    started_at: Duration,
}

impl Gate {
    pub(super) fn new(depth: Depth) -> Self {
        Self::with(depth, DepthController::new(), DEPTH_MAX)
    }

    /// The gate of an object store, where an answer takes long and many are worth waiting for. Each
    /// takes a connection.
    pub(super) fn of_objects(depth: Depth, connections_max: u32) -> Self {
        let most = connections_max.min(OBJECTS_DEPTH_MAX);
        let depth = match depth {
            Depth::Fixed(depth) => Depth::Fixed(depth.min(most)),
            Depth::Auto => depth,
        };
        Self::with(depth, DepthController::of_objects(most), most)
    }

    fn with(depth: Depth, auto: DepthController, auto_most: u32) -> Self {
        let (controller, most) = match depth {
            Depth::Auto => (auto, auto_most),
            Depth::Fixed(depth) => (DepthController::fixed(depth), depth),
        };
        let depth = AtomicU32::new(controller.depth());
        Self {
            in_flight: AtomicU32::new(0),
            level: AtomicU32::new(0),
            depth,
            controller: Mutex::new(controller),
            nodes: AtomicU32::new(1),
            most,
            started: Instant::now(),
            started_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
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

    /// Whether one more read may begin. Two threads that both ask before either enters exceed the
    /// depth by one: ask and enter on one thread or under one lock.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) < self.depth()
    }

    /// Sets how many nodes read from the store, this one included.
    pub(super) fn share(&self, nodes: u32) {
        if self.nodes.swap(nodes, Ordering::Relaxed) != nodes {
            self.tell(|controller| controller.share(nodes));
        }
    }

    /// A read begins.
    pub(super) fn enter(&self, now: Instant) {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.level.store(before + 1, Ordering::Relaxed);
        if before == 0 {
            self.tell(|controller| controller.begins(self.since_1970_ns(now)));
        }
    }

    /// A read is over, or waits before another try: a waiting read holds no place. `went_well` is
    /// its latency and its end, if it went well; `failed` says that the store had trouble.
    pub(super) fn leave(&self, went_well: Option<(Duration, Instant)>, failed: bool) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.tell(|controller| {
            if let Some((latency, now)) = went_well {
                let level = self.level.load(Ordering::Relaxed);
                controller.completed(level, ns(latency), self.since_1970_ns(now));
            }
            if failed {
                controller.failed();
            }
        });
    }

    fn tell(&self, what: impl FnOnce(&mut DepthController)) {
        let mut controller = self.controller.lock().unwrap_or_else(PoisonError::into_inner);
        what(&mut controller);
        self.depth.store(controller.depth(), Ordering::Relaxed);
    }

    fn since_1970_ns(&self, now: Instant) -> u64 {
        ns(self.started_at + now.saturating_duration_since(self.started))
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
