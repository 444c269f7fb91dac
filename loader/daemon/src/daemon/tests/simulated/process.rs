//! One daemon's process: the real `Lifecycle`, `CacheMemory` and core, and its machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shade_core::driver::Driver;
use shade_core::{
    Attach, STAGING_BYTES_MAX, SessionId, TierEvent, WholeSamples, block_bytes_for, capacity_bytes,
    staging_bytes,
};
use shade_formats::SampleId;
use shade_formats::index::Index;
use shade_job::{Capacity, DaemonSpec, JobSpec, Settings, Tables};
use shade_reads::blocks::{Arena, FreeList};

use super::super::super::cache_memory::CacheMemory;
use super::super::super::lifecycle::{Lifecycle, Present};
use super::super::super::settings::{Running, ServeConfig};
use super::super::super::start::core_config;
use super::super::super::{Core, Event};
use super::dataset::{RECORD_BYTES, SAMPLES, index};
use super::machine::Machine;
use crate::control::{Asked, ServedDataset};

/// How all daemons of a life are started.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) settings: DaemonSpec,
    pub(super) is_private: bool,
    pub(super) has_tier: bool,
}

/// See the [module](self).
pub(super) struct Process {
    pub(super) driver: Driver<FreeList, Machine>,
    pub(super) lifecycle: Lifecycle,
    memory: CacheMemory,
    began_ns: u64,
    /// A batch of it was taken.
    pub(super) has_delivered: bool,
}

fn block_bytes(index: &Index) -> u32 {
    block_bytes_for((0..SAMPLES).map(|id| index.entry(SampleId(id)).unwrap().stored_len))
}

/// Bytes beside the cache.
fn staging(index: &Index) -> u64 {
    staging_bytes(index, block_bytes(index), 16, STAGING_BYTES_MAX)
}

impl Process {
    /// A daemon begins, from nothing.
    pub(super) fn begin(setup: &Setup, machine: Machine) -> Self {
        let (index, settings) = (index(), &setup.settings);
        let config = ServeConfig {
            dataset: PathBuf::new(),
            settings: settings.clone(),
            socket: None,
            is_private: setup.is_private,
            replaces: false,
            started_by: None,
        };
        let (block_bytes, staging) = (block_bytes(&index), staging(&index));
        let samples = Arc::new(WholeSamples::new(Arc::clone(&index), &settings.fields));
        let cache_bytes = capacity_bytes(settings.cache.expect("a size"), &*samples, block_bytes);
        let most_bytes = capacity_bytes(Capacity::Share(1.0), &*samples, block_bytes) + staging;
        let (arena, free) = Arena::create_up_to(cache_bytes + staging, most_bytes, block_bytes).unwrap();
        let memory = CacheMemory::new(Arc::new(arena), Arc::clone(&samples), settings.policy, staging);
        let running = Running::new(&config, &*samples, cache_bytes, block_bytes);
        let served = ServedDataset {
            folder: "dataset".to_owned(),
            address: "@shade".to_owned(),
            samples: SAMPLES,
            classes: index.class_count(),
            content_id: index.content_id().0,
            is_private: config.is_private,
        };
        let mut config = core_config(settings, &*samples, false, cache_bytes, block_bytes, 2);
        config.reads_max = 16;
        let began_ns = machine.now_ns;
        let mut driver = Driver::new(Core::new(samples, free, config), machine);
        // The machine's clock went on before.
        driver.wait(Duration::from_nanos(began_ns));
        driver.survives = true;
        let lifecycle = Lifecycle::new(served, running);
        let mut process = Self { driver, lifecycle, memory, began_ns, has_delivered: false };
        if setup.has_tier {
            let bytes = u64::from(SAMPLES * RECORD_BYTES) / 4;
            process.step(Event::Tier(TierEvent::Room { bytes, get: None }));
        }
        process
    }

    pub(super) fn is_dead(&self) -> bool {
        self.driver.world.fate.is_dead()
    }

    /// The time since it began.
    fn age(&self) -> Duration {
        Duration::from_nanos(self.driver.world.now_ns - self.began_ns)
    }

    /// Takes in an event, unless it is dead.
    pub(super) fn step(&mut self, event: Event) {
        if !self.is_dead() {
            self.driver.step(event);
        }
    }

    /// The clock goes on without events.
    pub(super) fn wait_until(&mut self, at_ns: u64) {
        let passed_ns = at_ns - self.driver.world.now_ns;
        self.driver.world.now_ns = at_ns;
        self.driver.wait(Duration::from_nanos(passed_ns));
    }

    /// A rank says hello. Returns the code of a refusal.
    pub(super) fn hello(
        &mut self,
        session: SessionId,
        job: &str,
        rank: u32,
        spec: &JobSpec,
        tables: &Tables,
    ) -> Result<(), u16> {
        let asked = Asked {
            samples: SAMPLES,
            content_id: self.lifecycle.served.content_id,
            is_served: true,
            settings: Settings::from_text("{}").unwrap(),
            or_free_name: false,
        };
        let (name, tables) = (job.to_owned(), tables.clone());
        let attach =
            Attach { session, job: name, rank, spec: spec.clone(), tables: tables.clone(), survives: true };
        let jobs = self.driver.core.jobs().into_iter().map(|job| job.name).collect();
        let present = Present { has_ranks: self.has_sessions(), jobs };
        if let Err(refusal) = self.lifecycle.judge(&attach, &asked, &present) {
            assert!(self.lifecycle.is_draining(), "{}", refusal.text);
            return Err(refusal.code);
        }
        self.driver.attach(session, job, rank, spec, tables);
        self.lifecycle.admitted();
        Ok(())
    }

    /// A rank's session has ended.
    pub(super) fn leave(&mut self, session: SessionId) {
        if !self.is_dead() {
            self.driver.detach(session);
            self.lifecycle.left(self.age());
        }
    }

    pub(super) fn has_sessions(&self) -> bool {
        self.driver.core.session_count() > 0
    }

    /// Whether no rank needs it any more.
    pub(super) fn is_unneeded(&self) -> bool {
        self.lifecycle.is_unneeded(self.age(), self.has_sessions())
    }

    /// Whether it goes on until it is stopped.
    pub(super) fn stays(&self) -> bool {
        self.lifecycle.settings.linger().is_none() && !self.lifecycle.is_draining()
    }

    pub(super) fn resize(&mut self, percent: u32) {
        let settings = &mut self.lifecycle.settings;
        let cache = Capacity::Share(f64::from(percent) / 100.0);
        let (before_bytes, cache_bytes) = (settings.cache_bytes(), settings.bytes_of(cache));
        let resized = self.memory.resize(&mut self.driver.core, before_bytes, cache_bytes);
        settings.resized(cache, cache_bytes);
        self.step(Event::Resize { cache_bytes, window_bytes: resized.unwrap() });
    }

    pub(super) fn beat(&mut self) {
        self.memory.beat();
    }

    /// Whether the memory of a smaller cache is on its way to the system.
    pub(super) fn gives_back(&self) -> bool {
        self.memory.wait_max(Duration::ZERO) != Duration::MAX
    }

    pub(super) fn give_back(&mut self) {
        if self.gives_back() && !self.is_dead() && self.driver.world.fate.goes_on("give memory back") {
            self.memory.give_back(&mut self.driver.core);
        }
    }

    /// Asserts that it has no more memory than it may have.
    pub(super) fn check_memory(&self) {
        let (used, most) = (self.driver.core.arena_used_bytes(), self.memory.arena.bytes());
        assert!(used <= most, "{used} bytes of records in an arena of {most}");
        let most = self.lifecycle.settings.cache_bytes() + staging(&index());
        assert!(self.gives_back() || used <= most, "{used} bytes of records, and {most} may be");
    }

    /// All have left: what is under way ends, and nothing but the cache has memory.
    pub(super) fn end(mut self) {
        self.driver.world.fate.spare();
        while self.driver.tick() {}
        for _ in 0..100 {
            self.beat();
            self.give_back();
        }
        let stats = self.driver.core.stats(0);
        assert!(self.driver.core.is_idle(), "something is under way, and nobody is there");
        assert_eq!(stats.arena_used_bytes, stats.cache_used_bytes, "memory that nobody gives back");
        assert!(stats.cache_used_bytes <= stats.cache_bytes, "more than the cache may have");
        assert_eq!(stats.cache_bytes, self.lifecycle.settings.cache_bytes());
        assert!(!self.gives_back(), "a resize that never ends");
    }
}
