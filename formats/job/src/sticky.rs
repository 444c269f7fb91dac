//! How strata stay at the nodes that have them cached, when nodes are lost, join or are numbered
//! anew.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::seats::{Seats, words};
use shade_formats::limits::STRATA_MAX;

const _: () = assert!(STRATA_MAX as u64 * 256 <= 1 << 32);

/// A stratum that a node has cached, and how much of it: 1 to 255, which is all.
pub type Held = (u32, u8);

/// The strata that are held, from their cached and all samples: 4 bytes for each of them.
#[must_use]
pub fn held_to_bytes(cached: &[u32], samples: u32) -> Vec<u8> {
    let count = u32::try_from(cached.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    for (stratum, &cached) in (0..count).zip(cached).filter(|&(_, &cached)| cached > 0) {
        let len = samples.saturating_sub(stratum).div_ceil(count).max(1);
        let share = (u64::from(cached) * 255 / u64::from(len)).clamp(1, 255);
        // Below 2³²: there are at most 2²⁴ strata.
        bytes.extend_from_slice(&(stratum << 8 | u32::try_from(share).unwrap_or(255)).to_le_bytes());
    }
    bytes
}

/// Reads the strata that are held. Those that do not exist, or of which nothing is held, are left
/// out.
#[must_use]
pub fn held_from_bytes(bytes: &[u8], strata: u32) -> Vec<Held> {
    let held = words(bytes).map(|word| (word >> 8, word.to_le_bytes()[0]));
    held.filter(|&(stratum, share)| stratum < strata && share > 0).collect()
}

/// The seats by which as many strata as possible stay where they are cached.
///
/// `node_of` has the node of each rank, and `held` what each node has cached. A node takes no more
/// strata than its ranks have seats. What it must give up, or nobody holds, goes to its seat in
/// order, if that is free, else to any. So all strata are in order where nothing is held. If a node
/// is lost or joins, its strata move, and besides at most one for each rank of the others: only
/// where strata have different lengths.
///
/// Equal arguments give equal seats on every machine. If the number of ranks does not divide that
/// of strata, all are in order.
#[must_use]
#[expect(clippy::indexing_slicing, reason = "strata and seats below their number, ranks below theirs")]
pub fn seats_for(samples: u32, strata: u32, node_of: &[u32], held: &[Vec<Held>]) -> Seats {
    let world_size = u32::try_from(node_of.len()).unwrap_or(u32::MAX);
    if strata == 0 || world_size == 0 || !strata.is_multiple_of(world_size) {
        return Seats::IN_ORDER;
    }
    let node_at = |seat: u32| node_of[(seat % world_size) as usize];
    let is_longer = |number: u32| number < samples % strata;
    // The free seats of each node, of either length, the first on top. Some have been taken since.
    let mut free = HashMap::<(u32, bool), Vec<u32>>::new();
    (0..strata).rev().for_each(|seat| free.entry((node_at(seat), is_longer(seat))).or_default().push(seat));
    let mut taken: Vec<Option<u32>> = vec![None; strata as usize];
    // A stratum takes its seat in order, or else the first of the node that is free.
    let mut take = |node: u32, stratum: u32| {
        let own = Some(stratum).filter(|&seat| node_at(seat) == node && taken[seat as usize].is_none());
        let seats = free.get_mut(&(node, is_longer(stratum)));
        let seat = own.or_else(|| {
            let seats = seats?;
            while seats.pop_if(|&mut seat| taken[seat as usize].is_some()).is_some() {}
            seats.pop()
        });
        seat.inspect(|&seat| taken[seat as usize] = Some(stratum)).is_some()
    };
    // By stratum: who holds it, most first, and at equal shares the node of its seat in order.
    let mut holders: Vec<Vec<(Reverse<u8>, bool, u32)>> = vec![Vec::new(); strata as usize];
    for (node, held) in (0..).zip(held) {
        for &(stratum, share) in held.iter().filter(|&&(stratum, _)| stratum < strata) {
            holders[stratum as usize].push((Reverse(share), node_at(stratum) != node, node));
        }
    }
    holders.iter_mut().for_each(|holders| holders.sort_unstable());
    // First the strata that cost most elsewhere.
    let mut rest: Vec<u32> = (0..strata).collect();
    rest.sort_by_cached_key(|&stratum| {
        let share = |at| holders[stratum as usize].get(at).map_or(0, |&(Reverse(share), _, _)| share);
        (Reverse(share(0) - share(1)), Reverse(share(0)), stratum)
    });
    rest.retain(|&stratum| !holders[stratum as usize].iter().any(|&(_, _, node)| take(node, stratum)));
    rest.sort_unstable();
    rest.retain(|&stratum| !take(node_at(stratum), stratum));
    let nodes: BTreeSet<u32> = node_of.iter().copied().collect();
    rest.retain(|&stratum| !nodes.iter().any(|&node| take(node, stratum)));
    assert!(rest.is_empty(), "there are as many seats as strata, of either length");
    match Seats::new(taken.into_iter().flatten().collect(), samples) {
        Ok(seats) => seats,
        Err(error) => unreachable!("each seat has one stratum, of its length: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(seats: &Seats, strata: u32, of: impl Fn(u32, u32) -> bool) -> usize {
        (0..strata).filter(|&seat| of(seat, seats.stratum(seat))).count()
    }

    /// What each node has, if it has all of the strata at its seats.
    fn all_of(seats: &Seats, strata: u32, node_of: &[u32], nodes: u32) -> Vec<Vec<Held>> {
        let node = |seat: u32| node_of[seat as usize % node_of.len()];
        let of = |number| (0..strata).filter(move |&seat| node(seat) == number);
        (0..nodes).map(|number| of(number).map(|seat| (seats.stratum(seat), 255)).collect()).collect()
    }

    /// Strata that `node` has after and had not before.
    fn gained(before: &[Vec<Held>], after: &[Vec<Held>]) -> usize {
        let gained = |(before, after): (&Vec<Held>, &Vec<Held>)| {
            after.iter().filter(|held| !before.contains(held)).count()
        };
        before.iter().zip(after).map(gained).sum()
    }

    #[test]
    fn what_is_held_comes_back() {
        // 10 samples in 4 strata of 3, 3, 2 and 2.
        let bytes = held_to_bytes(&[3, 1, 0, 7], 10);
        assert_eq!(held_from_bytes(&bytes, 4), [(0, 255), (1, 85), (3, 255)]);
        assert_eq!(held_from_bytes(&bytes, 3), [(0, 255), (1, 85)]);
        assert_eq!(held_from_bytes(&bytes[..7], 4), [(0, 255)]);
        assert_eq!(held_from_bytes(&[0, 0, 0, 0], 4), []);
    }

    #[test]
    fn a_node_keeps_what_it_holds_under_other_ranks() {
        // The ranks of nodes 0 and 1 have changed places.
        let held = [vec![(0, 200), (2, 9)], vec![(1, 255), (3, 255)]];
        let seats = seats_for(40, 4, &[1, 0], &held);
        assert_eq!([0, 1, 2, 3].map(|seat| seats.stratum(seat)), [1, 0, 3, 2]);
        // A sample more in stratum 0 keeps it in seat 0, which is node 1's now.
        let seats = seats_for(41, 4, &[1, 0], &held);
        assert_eq!([0, 1, 2, 3].map(|seat| seats.stratum(seat)), [0, 2, 1, 3]);
    }

    #[test]
    fn what_several_hold_goes_where_it_is_missed_most() {
        // Node 0 holds all a little more than node 1, which has room for two: those that node 0
        // would lose least by.
        let held = [vec![(0, 250), (1, 250), (2, 250), (3, 250)], vec![(1, 249), (2, 249)]];
        let seats = seats_for(40, 4, &[0, 1], &held);
        assert_eq!([0, 2].map(|seat| seats.stratum(seat)), [0, 3]);
    }

    #[test]
    fn ranks_that_strata_cannot_be_shared_by_have_them_in_order() {
        for node_of in [&[][..], &[0, 1, 1], &[0; 9]] {
            assert_eq!(seats_for(40, 4, node_of, &[vec![(3, 255)]]), Seats::IN_ORDER);
        }
        assert_eq!(seats_for(40, 0, &[0], &[]), Seats::IN_ORDER);
    }

    /// The node of each rank: `ranks` has their number by node, dealt in an order by `seed`.
    fn dealt(ranks: &[usize], seed: u64) -> Vec<u32> {
        let mut node_of: Vec<u32> =
            (0..).zip(ranks).flat_map(|(node, &ranks)| std::iter::repeat_n(node, ranks)).collect();
        node_of.sort_by_cached_key(|&node| (node_of_key(seed, node), node));
        let by = usize::try_from(seed % 7).unwrap() % node_of.len();
        node_of.rotate_left(by);
        node_of
    }

    fn node_of_key(seed: u64, node: u32) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(&node.to_le_bytes(), seed)
    }

    proptest! {
        #[test]
        fn any_holdings_make_seats(
            ranks in prop::collection::vec(1..4_usize, 1..6), per_rank in 1..6_u32, more in 0..50_u32, seed: u64,
            held in prop::collection::vec(prop::collection::vec((0..200_u32, any::<u8>()), 0..30), 0..8),
        ) {
            let node_of = dealt(&ranks, seed);
            let strata = u32::try_from(node_of.len()).unwrap() * per_rank;
            let samples = strata * 2 + more;
            let seats = seats_for(samples, strata, &node_of, &held);
            let order = (0..strata).map(|seat| seats.stratum(seat)).collect();
            prop_assert_eq!(Seats::new(order, samples).unwrap(), seats);
            prop_assert_eq!(seats_for(samples, strata, &node_of, &[]), Seats::IN_ORDER);
        }

        /// Where no two nodes hold the same, each keeps as much as its seats allow.
        #[test]
        fn nodes_keep_what_they_have_seats_for(
            ranks in prop::collection::vec(1..4_usize, 1..6), per_rank in 1..6_u32, more in 0..50_u32, seed: u64,
            holders in prop::collection::vec(0..7_usize, 90),
        ) {
            let node_of = dealt(&ranks, seed);
            let strata = u32::try_from(node_of.len()).unwrap() * per_rank;
            let samples = strata * 2 + more;
            let mut held = vec![Vec::new(); 7];
            for (stratum, &node) in (0..strata).zip(&holders) {
                held[node].push((stratum, 1 + u8::try_from(stratum % 250).unwrap()));
            }
            let seats = seats_for(samples, strata, &node_of, &held);
            let node_at = |seat: u32| node_of[seat as usize % node_of.len()] as usize;
            for (node, held) in held.iter().enumerate().take(ranks.len()) {
                for longer in [false, true] {
                    let is = |stratum: u32| (stratum < samples % strata) == longer;
                    let has = held.iter().filter(|&&(stratum, _)| is(stratum)).count();
                    let room = (0..strata).filter(|&seat| is(seat) && node_at(seat) == node).count();
                    let kept = count(&seats, strata, |seat, stratum| {
                        node_at(seat) == node && is(seat) && held.iter().any(|&(held, _)| held == stratum)
                    });
                    prop_assert_eq!(kept, has.min(room), "node {}", node);
                }
            }
        }

        /// One of N equal nodes is lost, then comes back, with its cache or without. Its strata
        /// move, and at most one more for each rank that stays.
        #[test]
        fn a_lost_node_moves_its_share_and_so_does_one_that_joins(
            nodes in 2..7_u32, per_node in 1..4_u32, factor in 1..3_u32, more in 0..200_u32, lost in 0..7_u32,
            seeds: [u64; 3], keeps_cache: bool,
        ) {
            let lost = lost % nodes;
            let strata = nodes * (nodes - 1) * per_node * factor;
            let samples = strata * 3 + more;
            let slack = if samples.is_multiple_of(strata) { 0 } else { ((nodes - 1) * per_node) as usize };
            let ranks = vec![per_node as usize; nodes as usize];
            let mut others = ranks.clone();
            others[lost as usize] = 0;
            let [all, left, back] =
                [(&ranks, seeds[0]), (&others, seeds[1]), (&ranks, seeds[2])].map(|(ranks, seed)| dealt(ranks, seed));
            let share = (strata / nodes) as usize;

            let before = all_of(&Seats::IN_ORDER, strata, &all, nodes);
            let mut held = before.clone();
            held[lost as usize].clear();
            let seats = seats_for(samples, strata, &left, &held);
            let without = all_of(&seats, strata, &left, nodes);
            prop_assert!(gained(&held, &without) <= share + slack, "{} moved of {strata}", gained(&held, &without));

            let mut held = without.clone();
            if keeps_cache {
                held[lost as usize].clone_from(&before[lost as usize]);
            }
            let seats = seats_for(samples, strata, &back, &held);
            let again = all_of(&seats, strata, &back, nodes);
            prop_assert!(gained(&without, &again) <= share + slack, "{} moved of {strata}", gained(&without, &again));
            if keeps_cache && slack == 0 {
                prop_assert_eq!(gained(&held, &again), 0, "what it has is nobody's loss");
            }
        }
    }
}
