//! Which node holds which strata, and so which samples.
//!
//! Rank r of W takes the strata s with s mod W = r. A node that is lost leaves its strata to the
//! others, which keep what they have: seats are sticky. So a lost node of N moves one N-th of them.

use std::collections::VecDeque;

use shade_formats::control;

use crate::error::SimulateError;

/// The strata of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seats {
    strata: u32,
    /// By node; empty where a node is lost.
    held: Vec<Vec<u32>>,
}

impl Seats {
    /// The seats of nodes with this many ranks each.
    ///
    /// # Errors
    /// The strata cannot be dealt to the ranks in equal numbers.
    pub(super) fn new(nodes: u32, ranks_per_node: u32, strata: u32) -> Result<Self, SimulateError> {
        if nodes == 1 {
            return Ok(Self { strata, held: vec![(0..strata).collect()] });
        }
        let world = nodes * ranks_per_node;
        check(strata, world)?;
        let of = |node| (0..strata).filter(|stratum| stratum % world / ranks_per_node == node).collect();
        Ok(Self { strata, held: (0..nodes).map(of).collect() })
    }

    /// The strata of a node.
    pub(super) fn of(&self, node: usize) -> &[u32] {
        self.held.get(node).map_or(&[], Vec::as_slice)
    }

    /// A node is lost. Deals its strata to the others by turns, and returns how many that are.
    ///
    /// # Errors
    /// No node is left, or the strata cannot be dealt to the ranks in equal numbers.
    pub(super) fn lose(&mut self, node: usize, ranks_per_node: u32) -> Result<u32, SimulateError> {
        let lost = self.held.get_mut(node).map(std::mem::take).unwrap_or_default();
        let moved = u32::try_from(lost.len()).unwrap_or(u32::MAX);
        let mut others: VecDeque<&mut Vec<u32>> =
            self.held.iter_mut().filter(|held| !held.is_empty()).collect();
        let left = u32::try_from(others.len()).unwrap_or(u32::MAX);
        if left == 0 || moved == 0 {
            let what = format!("--lose: node {node} is lost already, or the last one");
            return Err(SimulateError::Usage(what));
        }
        check(self.strata, left * ranks_per_node)?;
        for stratum in lost {
            if let Some(held) = others.pop_front() {
                held.push(stratum);
                others.push_back(held);
            }
        }
        Ok(moved)
    }
}

/// The number of strata for these nodes, as a training chooses it; with nodes that are `lost` one
/// that suits all numbers of nodes that are left, too.
pub(super) fn strata_for(ranks_per_node: u32, nodes: u32, lost: u32, samples: u32) -> u32 {
    let strata = control::strata_for(ranks_per_node, nodes, samples);
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
        let mut all: Vec<u32> = (0..nodes).flat_map(|node| seats.of(node)).copied().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn strata_go_to_ranks_by_turns_and_a_lost_nodes_to_the_others_by_turns() {
        let mut seats = Seats::new(4, 2, 24).unwrap();
        assert_eq!(seats.of(1), [2, 3, 10, 11, 18, 19]);
        let before = seats.clone();
        assert_eq!(seats.lose(1, 2).unwrap(), 6);
        assert_eq!([0, 1, 2, 3].map(|node| seats.of(node).len()), [8, 0, 8, 8]);
        assert_eq!(all(&seats, 4), (0..24).collect::<Vec<_>>());
        for node in [0, 2, 3] {
            assert!(seats.of(node).starts_with(before.of(node)), "nobody gives a stratum up");
        }
        assert!(seats.lose(1, 2).is_err(), "it is gone already");
        // Two nodes of two ranks, then one.
        assert_eq!((seats.lose(0, 2).unwrap(), seats.lose(3, 2).unwrap()), (8, 12));
        assert!(seats.lose(2, 2).is_err(), "nobody is left");
    }

    #[test]
    fn strata_that_ranks_cannot_share_equally_are_refused() {
        assert!(Seats::new(4, 2, 12).is_err() && Seats::new(4, 2, 0).is_err());
        assert!(Seats::new(4, 1, 8).unwrap().lose(0, 1).is_err(), "8 strata on 3 ranks");
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
