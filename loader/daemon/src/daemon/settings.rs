//! This daemon's settings in the words of its command line, for comparison with what a trainer
//! would have started.

use std::time::Duration;

use rustix::process::{Pid, getppid};
use shade_core::{Capacity, PackageBytes};
use shade_formats::control::{LINGERS_FOR_EVER, Settings};
use shade_formats::index::Index;
use shade_reads::{Depth, StoreModel, parse_time};

use shade_tier::Servers;

use super::config::ServeConfig;

/// Value of what is left to the daemon.
const AUTO: &str = "auto";
/// No tier.
const NO_TIER: &str = "none";
/// No simulated store.
const NO_STORE: &str = "none";

/// A running daemon's settings.
#[derive(Clone, Debug)]
pub(super) struct Running {
    config: ServeConfig,
    cache_bytes: u64,
    /// Bytes of arena blocks that the whole dataset needs.
    dataset_bytes: u64,
}

impl Running {
    pub(super) fn new(config: &ServeConfig, index: &Index, cache_bytes: u64, block_bytes: u32) -> Self {
        let dataset_bytes = Capacity::Share(1.0).bytes(index, block_bytes);
        Self { config: config.clone(), cache_bytes, dataset_bytes }
    }

    /// All settings. A value that means the same as in `asked` is spelled as there, so that texts
    /// can be compared.
    pub(super) fn in_words_of(&self, asked: &Settings) -> Settings {
        let setting = |(name, own): (&str, String)| {
            let asked = asked.get(name).filter(|asked| self.is(name, asked));
            (name.to_owned(), asked.map_or(own, str::to_owned))
        };
        self.own().into_iter().map(setting).collect()
    }

    /// How long this daemon lingers; `None` if it runs until it is stopped.
    pub(super) fn linger(&self) -> Option<Duration> {
        self.config.linger
    }

    /// The process that wanted this daemon: its parent, if it is not detached.
    pub(super) fn started_by(&self) -> Option<Pid> {
        self.config.started_by.and_then(Pid::from_raw).or_else(getppid)
    }

    /// Capacity of the cache.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// What a capacity is for this dataset: never more than all of it takes.
    pub(super) fn bytes_of(&self, cache: Capacity) -> u64 {
        cache.of(self.dataset_bytes).min(self.dataset_bytes)
    }

    /// The cache has another capacity, which is `cache_bytes`.
    pub(super) fn resized(&mut self, cache: Capacity, cache_bytes: u64) {
        (self.config.cache, self.cache_bytes) = (cache, cache_bytes);
    }

    /// Takes over the linger time of `asked`, if it has one and this daemon lingers at all. Returns
    /// the time that now holds.
    pub(super) fn linger_as(&mut self, asked: &Settings) -> Option<Duration> {
        let asked = asked.get("linger").and_then(|time| parse_time(time).ok());
        self.config.linger = self.config.linger.map(|linger| asked.unwrap_or(linger));
        self.config.linger
    }

    /// Whether a trainer that asks for this would have started another daemon.
    pub(super) fn differs_from(&self, asked: &Settings) -> bool {
        asked.iter().any(|(name, value)| !self.is(name, value))
    }

    fn own(&self) -> [(&'static str, String); 15] {
        let Self { config, .. } = self;
        let ServeConfig { reads, .. } = config;
        let cache = match config.cache {
            Capacity::Bytes(bytes) => bytes.to_string(),
            // To a millionth, so that 20 % is no 20.000000000000004 %.
            Capacity::Share(share) => format!("{}%", (share * 1e8).round() / 1e6),
        };
        let depth = match reads.depth {
            Depth::Auto => AUTO.to_owned(),
            Depth::Fixed(depth) => depth.to_string(),
        };
        let tier_bytes = config.tier.as_ref().and_then(|tier| tier.bytes);
        let linger =
            config.linger.map_or(LINGERS_FOR_EVER.to_owned(), |time| format!("{}s", time.as_secs_f64()));
        [
            ("cache", cache),
            ("policy", config.policy.as_str().to_owned()),
            ("lookahead", config.lookahead.to_string()),
            ("package-bytes", config.package_bytes.to_string()),
            ("tier", config.tier.as_ref().map_or(NO_TIER.to_owned(), |tier| tier.servers.to_string())),
            ("tier-cache", tier_bytes.map_or(AUTO.to_owned(), |bytes| bytes.to_string())),
            ("store", reads.store.map_or(NO_STORE.to_owned(), |store| store.to_string())),
            ("depth", depth),
            ("hedge", if config.hedge { "yes" } else { "no" }.to_owned()),
            ("workers", config.workers.map_or(AUTO.to_owned(), |workers| workers.to_string())),
            ("decode-once", config.decoded_bytes.to_string()),
            ("jpeg", config.jpeg.as_str().to_owned()),
            ("engine", reads.engine.as_str().to_owned()),
            ("io", reads.io.as_str().to_owned()),
            ("linger", linger),
        ]
    }

    /// Whether the setting has the value that `asked` means. True for a setting that this version
    /// does not know.
    fn is(&self, name: &str, asked: &str) -> bool {
        let Self { config, cache_bytes, .. } = self;
        match name {
            "cache" => asked.parse().is_ok_and(|asked: Capacity| self.bytes_of(asked) == *cache_bytes),
            "lookahead" => asked.parse() == Ok(config.lookahead),
            "package-bytes" => asked.parse().is_ok_and(|asked: PackageBytes| {
                asked.of(config.policy) == config.package_bytes.of(config.policy)
            }),
            "tier" => match (&config.tier, asked) {
                (tier, NO_TIER) => tier.is_none(),
                (tier, asked) => asked
                    .parse()
                    .is_ok_and(|asked: Servers| tier.as_ref().is_some_and(|tier| tier.servers == asked)),
            },
            "store" => is_store(config.reads.store, asked),
            "linger" => match config.linger {
                Some(linger) => parse_time(asked) == Ok::<Duration, _>(linger),
                None => asked == LINGERS_FOR_EVER,
            },
            _ => self.own().iter().find(|(own, _)| *own == name).is_none_or(|(_, own)| own == asked),
        }
    }
}

/// Whether `store` is what `asked` means. A text that cannot be parsed matches nothing.
fn is_store(store: Option<StoreModel>, asked: &str) -> bool {
    match asked {
        NO_STORE | "" => store.is_none(),
        asked => asked.parse::<StoreModel>().is_ok_and(|asked| store == Some(asked)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_be_read_is_not_the_absence_of_one() {
        let slow: StoreModel = "latency=2ms".parse().unwrap();
        for asked in [NO_STORE, ""] {
            assert!(is_store(None, asked) && !is_store(Some(slow), asked), "{asked:?}");
        }
        assert!(is_store(Some(slow), "latency=2ms") && is_store(Some(slow), "latency=2000us"));
        for asked in ["latncy=2ms", "latency=2", "latency=3ms"] {
            assert!(!is_store(None, asked) && !is_store(Some(slow), asked), "{asked:?}");
        }
    }
}
