//! How strata stay at the nodes that have them cached, when nodes are lost, join or are numbered
//! anew.

use std::cmp::Reverse;

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
pub fn seats_for(samples: u32, strata: u32, node_of: &[u32], held: &[Vec<Held>]) -> Seats {
    let world_size = u32::try_from(node_of.len()).unwrap_or(u32::MAX);
    if strata == 0 || world_size == 0 || !strata.is_multiple_of(world_size) {
        return Seats::IN_ORDER;
    }
    let node_at = |seat: u32| node_of.get((seat % world_size) as usize).copied().unwrap_or(0);
    let node_of_stratum = nodes_of_strata(samples, strata, &node_at, held);
    // Within a node a stratum takes its seat in order, or else the first that is free.
    let mut taken: Vec<Option<u32>> = vec![None; strata as usize];
    let mut moved = Vec::new();
    for (stratum, &node) in (0..).zip(&node_of_stratum) {
        match taken.get_mut(stratum as usize).filter(|_| node_at(stratum) == node) {
            Some(slot) => *slot = Some(stratum),
            None => moved.push((node, stratum)),
        }
    }
    let is_longer = |stratum: u32| stratum < samples % strata;
    let mut free: Vec<(u32, bool, u32)> = (0..)
        .zip(&taken)
        .filter(|(_, taken)| taken.is_none())
        .map(|(seat, _)| (node_at(seat), is_longer(seat), seat))
        .collect();
    let mut moved: Vec<(u32, bool, u32)> =
        moved.into_iter().map(|(node, stratum)| (node, is_longer(stratum), stratum)).collect();
    // Equally many of each node and length: they pair up.
    free.sort_unstable();
    moved.sort_unstable();
    for ((_, _, seat), (_, _, stratum)) in free.into_iter().zip(moved) {
        taken.get_mut(seat as usize).into_iter().for_each(|slot| *slot = Some(stratum));
    }
    let order = (0..).zip(taken).map(|(seat, stratum)| stratum.unwrap_or(seat)).collect();
    match Seats::new(order, samples) {
        Ok(seats) => seats,
        Err(error) => unreachable!("seats and strata pair up by length: {error}"),
    }
}

/// By stratum: the node that gets it. Each node gets as many of each length as it has seats.
fn nodes_of_strata(samples: u32, strata: u32, node_at: &dyn Fn(u32) -> u32, held: &[Vec<Held>]) -> Vec<u32> {
    let is_longer = |stratum: u32| usize::from(stratum < samples % strata);
    let nodes = (0..strata).map(node_at).max().map_or(0, |last| last as usize + 1);
    // By node: its seats of either length that are free.
    let mut free = vec![[0_u32; 2]; nodes];
    for seat in 0..strata {
        if let Some(slot) =
            free.get_mut(node_at(seat) as usize).and_then(|free| free.get_mut(is_longer(seat)))
        {
            *slot += 1;
        }
    }
    let mut take = |node: u32, stratum: u32| -> bool {
        let slot = free.get_mut(node as usize).and_then(|free| free.get_mut(is_longer(stratum)));
        slot.filter(|slot| **slot > 0).is_some_and(|slot| {
            *slot -= 1;
            true
        })
    };
    // By stratum: who holds it, most first, and at equal shares the node of its seat in order.
    let mut holders: Vec<Vec<(Reverse<u8>, bool, u32)>> = vec![Vec::new(); strata as usize];
    for (node, held) in (0..).zip(held) {
        for &(stratum, share) in held {
            if let Some(holders) = holders.get_mut(stratum as usize) {
                holders.push((Reverse(share), node_at(stratum) != node, node));
            }
        }
    }
    holders.iter_mut().for_each(|holders| holders.sort_unstable());
    // First the strata that cost most elsewhere.
    let share = |holder: Option<&(Reverse<u8>, bool, u32)>| holder.map_or(0, |&(Reverse(share), _, _)| share);
    let mut order: Vec<u32> = (0..strata).collect();
    order.sort_by_cached_key(|&stratum| {
        let holders = holders.get(stratum as usize);
        let [first, second] = [0, 1].map(|at| share(holders.and_then(|holders| holders.get(at))));
        (Reverse(first - second), Reverse(first), stratum)
    });
    let mut node_of: Vec<Option<u32>> = vec![None; strata as usize];
    let mut give = |stratum: u32, node: Option<u32>| {
        node_of.get_mut(stratum as usize).into_iter().for_each(|slot| *slot = node);
        node.is_none()
    };
    order.retain(|&stratum| {
        let holders = holders.get(stratum as usize).into_iter().flatten();
        give(stratum, holders.map(|&(_, _, node)| node).find(|&node| take(node, stratum)))
    });
    order.sort_unstable();
    order.retain(|&stratum| give(stratum, Some(node_at(stratum)).filter(|&node| take(node, stratum))));
    for stratum in order {
        give(
            stratum,
            (0..nodes).filter_map(|node| u32::try_from(node).ok()).find(|&node| take(node, stratum)),
        );
    }
    // Each has one: there are as many seats as strata, of either length.
    (0..).zip(node_of).map(|(stratum, node)| node.unwrap_or_else(|| node_at(stratum))).collect()
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
