//! This daemon's configuration and settings, and their comparison with those of a trainer.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, getppid};
use serde_json::{Map, Value};
use shade_core::{Samples, capacity_bytes};
use shade_job::{Capacity, DaemonSpec, Fields, LINGERS_FOR_EVER, Settings};

/// A validated configuration of `serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Path of the dataset.
    pub dataset: PathBuf,
    /// How the daemon runs.
    pub settings: DaemonSpec,
    /// Socket file; `None` for the abstract name of the dataset.
    pub socket: Option<PathBuf>,
    /// Whether it was started for trainers, and ends when the last one has left.
    pub is_private: bool,
    /// Take the place of the daemon that serves the dataset, if there is one.
    pub replaces: bool,
    /// The process that wanted this daemon, whose job may resize the cache.
    pub started_by: Option<i32>,
}

impl ServeConfig {
    /// Time after which the daemon ends when the last rank has left; `None` runs until stopped.
    #[must_use]
    pub(super) fn linger(&self) -> Option<Duration> {
        self.is_private.then(|| Duration::from_secs_f64(self.settings.linger))
    }
}

/// A running daemon's settings.
#[derive(Clone, Debug)]
pub(super) struct Running {
    settings: DaemonSpec,
    linger: Option<Duration>,
    started_by: Option<i32>,
    cache_bytes: u64,
    /// Bytes of arena blocks that the whole dataset needs.
    dataset_bytes: u64,
}

impl Running {
    pub(super) fn new(
        config: &ServeConfig,
        samples: &dyn Samples,
        cache_bytes: u64,
        block_bytes: u32,
    ) -> Self {
        let dataset_bytes = capacity_bytes(Capacity::Share(1.0), samples, block_bytes);
        let (settings, linger, started_by) = (config.settings.clone(), config.linger(), config.started_by);
        Self { settings, linger, started_by, cache_bytes, dataset_bytes }
    }

    /// All settings. A value that means the same as in `asked` is spelled as there. Not so fields,
    /// of which it may read more: a successor has to know all of them.
    pub(super) fn in_words_of(&self, asked: &Settings) -> Map<String, Value> {
        let spec = asked.spec();
        let mut own = self.own();
        for (name, value) in own.iter_mut().filter(|(name, _)| *name != "fields") {
            if let Some(asked) = asked.get(name).filter(|asked| self.is(name, value, asked, &spec)) {
                value.clone_from(asked);
            }
        }
        own
    }

    /// How long this daemon lingers; `None` if it runs until it is stopped.
    pub(super) fn linger(&self) -> Option<Duration> {
        self.linger
    }

    /// The process that wanted this daemon: its parent, if it is not detached.
    pub(super) fn started_by(&self) -> Option<Pid> {
        self.started_by.and_then(Pid::from_raw).or_else(getppid)
    }

    /// Whether all these fields of samples are read with their records.
    pub(super) fn reads(&self, fields: &Fields) -> bool {
        fields.iter().all(|(name, _)| self.settings.fields.has(name))
    }

    /// Capacity of the cache.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// What a capacity is for this dataset: never more than all of it takes.
    pub(super) fn bytes_of(&self, cache: Capacity) -> u64 {
        cache.within(self.dataset_bytes)
    }

    /// The cache has another capacity, which is `cache_bytes`.
    pub(super) fn resized(&mut self, cache: Capacity, cache_bytes: u64) {
        (self.settings.cache, self.cache_bytes) = (Some(cache), cache_bytes);
    }

    /// Takes over the linger time of `asked`, if it has one and this daemon lingers at all.
    pub(super) fn linger_as(&mut self, asked: &Settings) {
        if self.linger.is_some() && asked.get("linger").is_some() {
            self.settings.linger = asked.spec().linger;
            self.linger = Some(Duration::from_secs_f64(self.settings.linger));
        }
    }

    /// Whether a trainer that asks for this would have started another daemon.
    pub(super) fn differs_from(&self, asked: &Settings) -> bool {
        let spec = asked.spec();
        let is = |(name, own): (&String, &Value)| {
            asked.get(name).is_none_or(|asked| self.is(name, own, asked, &spec))
        };
        !self.own().iter().all(is)
    }

    /// Every setting by name.
    fn own(&self) -> Map<String, Value> {
        let mut own = self.settings.to_map();
        if self.linger.is_none() {
            own.insert("linger".to_owned(), LINGERS_FOR_EVER.into());
        }
        own
    }

    /// Whether a setting, whose value is `own` here, has the value that `asked` means, which `spec`
    /// has as well.
    fn is(&self, name: &str, own: &Value, asked: &Value, spec: &DaemonSpec) -> bool {
        let package_bytes = |asked| DaemonSpec::package_bytes_of(asked, self.settings.policy);
        match name {
            "cache" => match spec.cache {
                Some(cache) => self.bytes_of(cache) == self.cache_bytes,
                None => own == asked,
            },
            "package_bytes" => {
                package_bytes(spec.package_bytes) == package_bytes(self.settings.package_bytes)
            }
            "fields" => own == asked || self.settings.fields.serves(&spec.fields),
            _ => own == asked,
        }
    }
}
