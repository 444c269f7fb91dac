//! Which node holds which strata, and so which samples.
//!
//! Rank r of W has the seats q with q mod W = r, and seat q stratum q. When a node is lost, the
//! ranks of the others are numbered anew, and the seats are those that a training's nodes agree on:
//! each keeps what it has.

use std::collections::HashSet;
use std::ops::Range;

use shade_core::plan::mixed;
use shade_job::{Held, PlanSpec, seats_for};

use crate::error::SimulateError;

/// The strata of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seats {
    samples: u32,
    strata: u32,
    ranks_per_node: u32,
    /// The nodes that are there, in the order of their ranks.
    nodes: Vec<u32>,
    /// The stratum of each seat.
    order: shade_job::Seats,
    /// By node; empty where a node is lost.
    held: Vec<Vec<u32>>,
}

/// A node's share of a training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The strata that it has.
    pub(crate) held: Vec<u32>,
    /// The stratum of each seat, of all nodes.
    pub(crate) order: shade_job::Seats,
    /// Its ranks.
    pub(crate) ranks: Range<u32>,
    /// Number of ranks of all nodes.
    pub(crate) world_size: u32,
}

impl Seats {
    /// The seats of nodes with this many ranks each.
    ///
    /// # Errors
    /// The strata cannot be dealt to the ranks in equal numbers.
    pub(crate) fn new(
        nodes: u32,
        ranks_per_node: u32,
        strata: u32,
        samples: u32,
    ) -> Result<Self, SimulateError> {
        let held = vec![Vec::new(); nodes as usize];
        let order = shade_job::Seats::IN_ORDER;
        let mut seats = Self { samples, strata, ranks_per_node, nodes: vec![0], order, held };
        if nodes == 1 {
            seats.held = vec![(0..strata).collect()];
        } else {
            seats.deal((0..nodes).collect())?;
        }
        Ok(seats)
    }

    /// What a node has that is there.
    pub(crate) fn of(&self, node: usize) -> Share {
        let before = (0..).zip(&self.nodes).find(|&(_, &number)| number as usize == node);
        let first = before.map_or(0, |(before, _)| before * self.ranks_per_node);
        Share {
            held: self.held[node].clone(),
            order: self.order.clone(),
            ranks: first..first + self.ranks_per_node,
            world_size: self.world_size(),
        }
    }

    fn world_size(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).saturating_mul(self.ranks_per_node)
    }

    /// A node is lost. Deals its strata to the others, and returns how many have changed nodes.
    ///
    /// # Errors
    /// No node is left, or the strata cannot be dealt to the ranks in equal numbers.
    pub(crate) fn lose(&mut self, node: usize) -> Result<u32, SimulateError> {
        let lost = self.held.get_mut(node).map(std::mem::take).unwrap_or_default();
        let left: Vec<u32> =
            (0..).zip(&self.held).filter(|(_, held)| !held.is_empty()).map(|(node, _)| node).collect();
        if left.is_empty() || lost.is_empty() {
            let what = format!("--lose: node {node} is lost already, or the last one");
            return Err(SimulateError::Usage(what));
        }
        let before = self.held.clone();
        self.deal(left)?;
        Ok(self.moved(&before))
    }

    /// Goes over to the seats of `epoch`, from those of the epoch before. Returns how many strata
    /// have changed nodes.
    pub(crate) fn mix(&mut self, plan: &PlanSpec, epoch: u32) -> u32 {
        let before = self.held.clone();
        self.order = mixed(plan, self.samples, &self.order, epoch.saturating_sub(1), epoch);
        self.hold();
        self.moved(&before)
    }

    /// Number of strata that have changed nodes since each held these.
    fn moved(&self, before: &[Vec<u32>]) -> u32 {
        let gained = |(before, held): (&Vec<u32>, &Vec<u32>)| {
            let before: HashSet<&u32> = before.iter().collect();
            held.iter().filter(|stratum| !before.contains(stratum)).count()
        };
        let moved: usize = before.iter().zip(&self.held).map(gained).sum();
        u32::try_from(moved).unwrap_or(u32::MAX)
    }

    /// Deals the strata to these nodes, whose ranks are numbered in their order.
    fn deal(&mut self, nodes: Vec<u32>) -> Result<(), SimulateError> {
        self.nodes = nodes;
        check(self.strata, self.world_size())?;
        let ranks = self.ranks_per_node as usize;
        let node_of: Vec<u32> =
            self.nodes.iter().flat_map(|&node| std::iter::repeat_n(node, ranks)).collect();
        let all = |held: &Vec<u32>| held.iter().map(|&stratum| (stratum, u8::MAX)).collect();
        let held: Vec<Vec<Held>> = self.held.iter().map(all).collect();
        self.order = seats_for(self.samples, self.strata, &node_of, &held);
        self.hold();
        Ok(())
    }

    /// Each node holds the strata of its ranks' seats.
    fn hold(&mut self) {
        self.held.iter_mut().for_each(Vec::clear);
        let ranks = self.ranks_per_node as usize;
        let node_of = self.nodes.iter().flat_map(|&node| std::iter::repeat_n(node, ranks));
        for (seat, node) in (0..self.strata).zip(node_of.cycle()) {
            self.held[node as usize].push(self.order.stratum(seat));
        }
    }
}

/// The number of strata for these nodes, as a training chooses it; with nodes that are `lost` one
/// that suits all numbers of nodes that are left, too.
pub(crate) fn strata_for(ranks_per_node: u32, nodes: u32, lost: u32, samples: u32) -> u32 {
    let strata = shade_job::strata_for(ranks_per_node, nodes, samples);
    let left = nodes.saturating_sub(lost).max(1)..nodes;
    left.map(|count| count.saturating_mul(ranks_per_node))
        .fold(strata, |strata, world| (strata / gcd(strata, world)).saturating_mul(world))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn check(strata: u32, world: u32) -> Result<(), SimulateError> {
    if strata > 0 && strata.is_multiple_of(world) {
        return Ok(());
    }
    let what = format!(
        "--strata {strata}: {world} ranks cannot have the same number of them: give a multiple of the number \
         of ranks, before and after each --lose"
    );
    Err(SimulateError::Usage(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(seats: &Seats, nodes: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..nodes).flat_map(|node| seats.of(node).held).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn strata_go_to_ranks_by_turns_and_a_lost_nodes_to_the_others() {
        let mut seats = Seats::new(4, 2, 24, 2400).unwrap();
        assert_eq!(seats.of(1).held, [2, 3, 10, 11, 18, 19]);
        assert_eq!((seats.of(3).ranks, seats.of(3).world_size), (6..8, 8));
        let before = seats.clone();
        assert_eq!(seats.lose(1).unwrap(), 6);
        assert_eq!([0, 1, 2, 3].map(|node| seats.of(node).held.len()), [8, 0, 8, 8]);
        assert_eq!((seats.of(3).ranks, seats.of(3).world_size), (4..6, 6));
        assert_eq!(all(&seats, 4), (0..24).collect::<Vec<_>>());
        for node in [0, 2, 3] {
            let kept = before.of(node).held.iter().all(|stratum| seats.of(node).held.contains(stratum));
            assert!(kept, "nobody gives a stratum up");
        }
        assert!(seats.lose(1).is_err(), "it is gone already");
        // Two nodes of two ranks, then one.
        assert_eq!((seats.lose(0).unwrap(), seats.lose(3).unwrap()), (8, 12));
        assert!(seats.lose(2).is_err(), "nobody is left");
    }

    #[test]
    fn strata_that_ranks_cannot_share_equally_are_refused() {
        assert!(Seats::new(4, 2, 12, 2400).is_err() && Seats::new(4, 2, 0, 2400).is_err());
        assert!(Seats::new(4, 1, 8, 2400).unwrap().lose(0).is_err(), "8 strata on 3 ranks");
    }

    #[test]
    fn strata_suit_other_numbers_of_nodes_as_far_as_samples_last() {
        assert_eq!(strata_for(8, 1, 0, 1_281_167), 1);
        // 8, 7, 9 and 6 nodes; with 10 it would be 2,520 strata for each rank of a node.
        assert_eq!(strata_for(8, 8, 0, 1_281_167), 8 * 504);
        assert_eq!(strata_for(1, 8, 0, 8 * 256), 8);
        assert_eq!(strata_for(1, 8, 2, 8 * 256), 168, "8, 7 and 6 nodes, whatever is left in each");
        assert_eq!(strata_for(1, 1000, 0, 320_000), 1000);
    }
}
