//! The named systems: which sampler, order and cache policy each of them is.

use super::types::{Order, Sampler, names};

names! {
    /// Who is evicted from the cache, and who is admitted.
    Policy, "policy", "lookahead, app, topc, lfu, lru, fifo, arc, static, icache or quiver",
    /// The plan's: a newcomer is admitted only if every sample it displaces is used later, where uses that are not known
    /// come last, in APP's order.
    #[default]
    Lookahead = "lookahead",
    /// SHADE's: a newcomer is admitted only if every sample it displaces is worth less: (score, uses, -id).
    App = "app",
    /// Holds the bytes of highest score: as `App`, but a sample is worth (score, -id), however often it was used. It fills
    /// on demand, too: what has the highest score comes in when it is read, not before.
    TopC = "topc",
    /// Every newcomer is admitted and displaces the least recently touched among the least frequently used. Uses count
    /// from admission, which is the first, to eviction.
    Lfu = "lfu",
    /// Every newcomer is admitted and displaces the least recently used.
    Lru = "lru",
    /// Every newcomer is admitted and displaces the earliest admitted; a hit moves nothing.
    Fifo = "fifo",
    /// Megiddo and Modha's ARC (FAST 2003) in bytes: every newcomer is admitted. It displaces the least recently used
    /// of those that were used once or of the others, as the misses on what was evicted lately suggest.
    Arc = "arc",
    /// CoorDL's MinIO: whoever finds room is admitted and stays.
    Static = "static",
    /// iCACHE's two regions: samples of high importance displace those of lower importance, the others one another.
    Icache = "icache",
    /// Quiver's: samples that the epoch has used give way to newcomers, those that it has not stay; and a batch takes
    /// residents of the next batches in place of samples that would have to be read.
    Quiver = "quiver"
}

names! {
    /// A system as a whole, ours or a published one.
    Preset, "preset", "clairvoyant, shade, icache, coordl, quiver, deepio, default, base or ilfu",
    /// Ours, the default: SHADE's draws, and a cache that knows the plan.
    #[default]
    Clairvoyant = "clairvoyant",
    /// SHADE (FAST 2023) as its paper means it: draws by importance, APP eviction. Not reproduced of its code: losses
    /// credited to other samples, cached samples delivered first, and replication that ends in an epoch of hits only.
    Shade = "shade",
    /// iCACHE (HPCA 2023) as its paper means it: samples of low importance are left out or stand in for one another. Not
    /// reproduced of its code: tags that ignore importance, the hardest hundredth that is never selected, substitutes that
    /// make others miss their turn and are counted as hits.
    Icache = "icache",
    /// CoorDL (VLDB 2021): permutations, and a cache that never evicts. Not reproduced of its code: reading twice in the
    /// first epoch, and a look at the slow store before each cached read.
    Coordl = "coordl",
    /// Quiver (FAST 2020): permutations whose batches take what is cached first. Not reproduced of a published
    /// re-implementation: samples that lose their turn to a substitute.
    Quiver = "quiver",
    /// DeepIO (MASCOTS 2018): permutations in an order drawn from what is in memory. Every sample still comes once.
    Deepio = "deepio",
    /// What the papers call Default: permutations and LRU.
    Default = "default",
    /// What the papers call Base: importance decides what is trained on after it was read, and LRU.
    Base = "base",
    /// What the iCACHE paper calls iLFU: its sampler and LFU.
    Ilfu = "ilfu"
}

impl Preset {
    /// Its cache policy.
    #[must_use]
    pub fn policy(self) -> Policy {
        match self {
            Self::Clairvoyant => Policy::Lookahead,
            Self::Shade => Policy::App,
            Self::Icache => Policy::Icache,
            Self::Coordl => Policy::Static,
            Self::Quiver | Self::Deepio => Policy::Quiver,
            Self::Default | Self::Base => Policy::Lru,
            Self::Ilfu => Policy::Lfu,
        }
    }

    /// Its way of drawing samples.
    #[must_use]
    pub fn sampler(self) -> Sampler {
        match self {
            Self::Clairvoyant | Self::Shade => Sampler::Pads,
            Self::Icache | Self::Ilfu => Sampler::Iis,
            Self::Base => Sampler::Cis,
            Self::Coordl | Self::Quiver | Self::Deepio | Self::Default => Sampler::Uniform,
        }
    }

    /// Its order of delivery.
    #[must_use]
    pub fn order(self) -> Order {
        match self {
            Self::Deepio => Order::Opportunistic,
            _ => Order::Shuffled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert!(Policy::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        assert!(Preset::ALL.iter().all(|value| value.as_str().parse() == Ok(*value)));
        let error = "SHADE".parse::<Preset>().unwrap_err().to_string();
        assert!(Preset::ALL.iter().all(|value| error.contains(value.as_str())), "{error}");
        let error = "belady".parse::<Policy>().unwrap_err().to_string();
        assert!(Policy::ALL.iter().all(|value| error.contains(value.as_str())), "{error}");
    }
}
