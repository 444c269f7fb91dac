//! The options of several nodes.

use std::str::FromStr;

use clap::Args;
use shade_job::{StoreModel, parse_rate};

use crate::capacity::CacheSize;

/// Limit of the nodes.
const NODES_MAX: i64 = 1000;
/// Limit of a node's ranks.
const RANKS_PER_NODE_MAX: i64 = 64;
/// Limit of a straggler's sigma: a step that takes e times as long is no jitter any more.
const SIGMA_MAX: f64 = 1.0;

/// Nodes that train together.
#[derive(Clone, Debug, Args)]
pub struct NodesArgs {
    /// Nodes that train together, 1 to 1000. Each has its ranks, its cache (an equal part of
    /// --cache) and its strata of the dataset; all share --store. A step ends when the slowest rank
    /// has its batch and has computed it. `--strata` is chosen for the nodes unless it is given.
    #[arg(long, value_name = "N", conflicts_with = "trace",
          value_parser = clap::value_parser!(u32).range(1..=NODES_MAX))]
    pub nodes: Option<u32>,

    /// Ranks on each node. --batch-size is that of one rank.
    #[arg(long, value_name = "G", default_value_t = 1, requires = "nodes",
          value_parser = clap::value_parser!(u32).range(1..=RANKS_PER_NODE_MAX))]
    pub ranks_per_node: u32,

    /// Bytes a second that each node's own link carries, behind the store: 1Gbit, or 100MB.
    #[arg(long, value_name = "RATE", requires_all = ["nodes", "store"], value_parser = parse_rate)]
    pub nic: Option<u64>,

    /// Memory of other machines behind each node's cache, as --tier-cache of `shade-load serve`:
    /// bytes (8GiB), or a share of all samples' bytes (10%). Without sizes a number counts samples.
    /// What it brings is no hit of the cache and no read of the store.
    #[arg(long, value_name = "SIZE", requires = "nodes", conflicts_with = "global_plan")]
    pub tier: Option<CacheSize>,

    /// How fast each node's tier is, as --store. Writes take as long as reads.
    #[arg(long, value_name = "STORE", requires_all = ["tier", "store"],
          default_value = "latency=100us,bandwidth=10Gbit")]
    pub tier_store: StoreModel,

    /// How much the ranks' compute times vary, for each rank and step anew: lognormal:0.05 has the
    /// median --compute and varies by a twentieth.
    #[arg(long, value_name = "lognormal:SIGMA", requires = "nodes")]
    pub straggle: Option<Straggle>,

    /// Nodes that are lost, separated by commas: 3@5 is node 3 (from 0) at the start of epoch 5.
    /// Its strata are dealt to the others, which keep their own and know its scores.
    #[arg(long, value_name = "NODE@EPOCH", value_delimiter = ',', requires = "nodes")]
    pub lose: Vec<Loss>,

    /// Instead of strata: one plan of the whole dataset, whose positions go to the ranks by turns,
    /// whatever their nodes have cached. Nothing takes time then. Takes the memory of N datasets.
    #[arg(long, requires = "nodes", conflicts_with_all = ["store", "straggle", "lose", "jobs"])]
    pub global_plan: bool,
}

/// How compute times vary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Straggle {
    /// Standard deviation of the natural logarithm.
    pub(super) sigma: f64,
}

impl FromStr for Straggle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sigma = text.strip_prefix("lognormal:").and_then(|sigma| sigma.parse().ok());
        let sigma = sigma.filter(|sigma| (0.0..=SIGMA_MAX).contains(sigma));
        sigma.map(|sigma| Self { sigma }).ok_or_else(|| {
            format!(
                "{text:?}: write lognormal:SIGMA, as in lognormal:0.05, with a sigma from 0 to {SIGMA_MAX}"
            )
        })
    }
}

/// A node that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The node, from 0.
    pub(super) node: u32,
    /// The first epoch without it.
    pub(super) epoch: u32,
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (node, epoch) = text.split_once('@').unwrap_or((text, ""));
        match (node.parse(), epoch.parse()) {
            (Ok(node), Ok(epoch)) => Ok(Self { node, epoch }),
            _ => Err(format!("{text:?}: write NODE@EPOCH, as in 3@5, both from 0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_understood_or_refused() {
        assert_eq!("lognormal:0.05".parse(), Ok(Straggle { sigma: 0.05 }));
        assert_eq!("3@5".parse(), Ok(Loss { node: 3, epoch: 5 }));
        for bad in ["", "0.05", "lognormal:", "lognormal:-1", "lognormal:nan", "lognormal:2"] {
            assert!(bad.parse::<Straggle>().is_err(), "{bad}");
        }
        for bad in ["", "3", "@", "3@", "-1@2", "3@5@6"] {
            assert!(bad.parse::<Loss>().is_err(), "{bad}");
        }
    }
}
