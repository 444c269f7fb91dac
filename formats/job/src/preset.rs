//! The tables of policies and presets: names and help lines, and what a preset is made of.

use crate::names::names;
use crate::{Capacity, Order, Sampler};

/// The cache of the presets that follow papers: what their experiments have.
const PAPERS_CACHE: Capacity = Capacity::Share(0.2);

names! {
    /// Which records the cache admits and evicts. The table of names; the policies are in
    /// `loader/core/src/cache`.
    Policy, "policy",
    #[default]
    Lookahead = "lookahead":
        "What the epoch's plan uses soonest, and behind that the samples of highest importance",
    App = "app":
        "The samples of highest importance; of equals those that were used most (SHADE)",
    TopC = "topc":
        "The samples of highest importance, however often they were used",
    Lfu = "lfu":
        "The most used since they came in; the least used leaves, of equals the one unused for longest",
    Lru = "lru":
        "The latest used: what a page cache does. Over permutations it hits nearly never",
    Fifo = "fifo":
        "The latest read: a use changes nothing",
    Arc = "arc":
        "The latest used and those used again, in a balance that follows what was missed soon after it left (ARC)",
    Static = "static":
        "What came first, for good (CoorDL's MinIO): hits as often as its share of the dataset",
    Icache = "icache":
        "Nine tenths for samples of high importance; the others stand in for one another (iCACHE's two regions)",
    Quiver = "quiver":
        "What the epoch has not used yet; batches take what is cached of the next ten batches (Quiver)",
}

names! {
    /// A system as a whole, ours or a published one: a sampler, a policy and an order. What is
    /// known to be wrong in the code of a published system is left out on purpose.
    Preset, "preset",
    #[default]
    Permutations = "permutations":
        "uniform + lookahead: each sample once an epoch, and a cache that knows the plan (the default)",
    Clairvoyant = "clairvoyant":
        "pads + lookahead: draws by importance, and a cache that knows the plan",
    /// SHADE (FAST 2023). Not reproduced from its code: losses credited to other samples, cached
    /// samples delivered first, and replication that ends in an epoch of hits only.
    ///
    Shade = "shade":
        "pads + app: SHADE as its paper means it. Not its code's losses credited to other samples, hits first and \
         epochs without a miss",
    /// iCACHE (HPCA 2023). Not reproduced from its code: tags that ignore importance, the hardest
    /// hundredth that is never selected, and substitutes that make others miss their turn and are
    /// counted as hits.
    ///
    Icache = "icache":
        "iis + icache: iCACHE as its paper means it. Not its code's random tags, never-selected hardest samples and \
         substitutes counted as hits",
    /// CoorDL (VLDB 2021). Not reproduced from its code: reading twice in the first epoch, and a
    /// look at the slow store before each cached read.
    ///
    Coordl = "coordl":
        "uniform + static: CoorDL. Not its second read in the first epoch",
    /// Quiver (FAST 2020). Not reproduced from a published re-implementation: samples that lose
    /// their turn to a substitute.
    ///
    Quiver = "quiver":
        "uniform + quiver: Quiver. Not the samples that lose their turn in its re-implementations",
    /// DeepIO (MASCOTS 2018).
    ///
    Deepio = "deepio":
        "uniform + quiver, in opportunistic order: DeepIO; every sample still comes once an epoch",
    /// CoorDL's coordinated prep (VLDB 2021), for jobs at the same time. In the paper each job
    /// prepares a part for all, and the others wait for it; here nobody waits.
    ///
    CoordlPrep = "coordl-prep":
        "coordl in a group: CoorDL's coordinated prep, read and decoded once for all jobs that run at the same time",
    /// OneAccess (HotCloud 2019), for jobs at the same time.
    ///
    Oneaccess = "oneaccess":
        "uniform + fifo in a group: OneAccess, read and decoded once for all jobs, little is kept for the next epoch",
    Default = "default":
        "uniform + lru: what the papers call Default",
    Base = "base":
        "cis + lru: what the papers call Base; unimportant samples are delivered with weight 0",
    Ilfu = "ilfu":
        "iis + lfu: what the iCACHE paper calls iLFU",
}

impl Preset {
    /// Its sampler, policy and order.
    const fn parts(self) -> (Sampler, Policy, Order) {
        match self {
            Self::Permutations => (Sampler::Uniform, Policy::Lookahead, Order::Shuffled),
            Self::Clairvoyant => (Sampler::Pads, Policy::Lookahead, Order::Shuffled),
            Self::Shade => (Sampler::Pads, Policy::App, Order::Shuffled),
            Self::Icache => (Sampler::Iis, Policy::Icache, Order::Shuffled),
            Self::Coordl | Self::CoordlPrep => (Sampler::Uniform, Policy::Static, Order::Shuffled),
            Self::Quiver => (Sampler::Uniform, Policy::Quiver, Order::Shuffled),
            Self::Deepio => (Sampler::Uniform, Policy::Quiver, Order::Opportunistic),
            Self::Oneaccess => (Sampler::Uniform, Policy::Fifo, Order::Shuffled),
            Self::Default => (Sampler::Uniform, Policy::Lru, Order::Shuffled),
            Self::Base => (Sampler::Cis, Policy::Lru, Order::Shuffled),
            Self::Ilfu => (Sampler::Iis, Policy::Lfu, Order::Shuffled),
        }
    }

    /// Its way of drawing samples.
    #[must_use]
    pub fn sampler(self) -> Sampler {
        self.parts().0
    }

    /// Its cache policy.
    #[must_use]
    pub fn policy(self) -> Policy {
        self.parts().1
    }

    /// Capacity of its cache; `None` for what the memory allows.
    #[must_use]
    pub fn cache(self) -> Option<Capacity> {
        (!matches!(self, Self::Permutations | Self::Clairvoyant)).then_some(PAPERS_CACHE)
    }

    /// Whether its jobs on a dataset are a group.
    #[must_use]
    pub fn is_group(self) -> bool {
        matches!(self, Self::CoordlPrep | Self::Oneaccess)
    }

    /// Its order of delivery.
    #[must_use]
    pub fn order(self) -> Order {
        self.parts().2
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
