//! The choice of the number of strata of a plan, which all nodes of a training make alike.

/// Smallest stratum that a choice of their number leaves: sums of scores differ by chance.
const MEMBERS_MIN: u32 = 256;
/// Stratum that is halved where it remains as large as this.
const MEMBERS_ENOUGH: u64 = 1024;
/// Numbers of nodes around N, as steps from it, that the number of strata is made a multiple of.
const NODE_STEPS: [i32; 5] = [-1, 1, -2, 2, -3];

/// The number of strata for `nodes` nodes of `ranks_per_node` ranks, and `samples` samples.
///
/// One node needs one stratum. More get a number that can be shared out evenly also if a few nodes
/// come or go: `ranks_per_node` times a multiple of N and of as many of N - 1, N + 1, N - 2, N + 2,
/// N - 3, in this order, as leave 256 samples in a stratum. It is doubled while 1,024 are left.
/// Where nodes have different numbers of ranks, take all ranks for `nodes`, and 1 rank each.
#[must_use]
pub fn strata_for(ranks_per_node: u32, nodes: u32, samples: u32) -> u32 {
    if nodes <= 1 {
        return 1;
    }
    let ranks = u64::from(ranks_per_node.max(1));
    let most = u64::from(samples / MEMBERS_MIN);
    let mut multiple = u64::from(nodes);
    for step in NODE_STEPS {
        let Some(other) = nodes.checked_add_signed(step).filter(|&other| other > 0) else { continue };
        let other = u64::from(other);
        let with_other = multiple / gcd(multiple, other) * other;
        if with_other.saturating_mul(ranks) > most {
            break;
        }
        multiple = with_other;
    }
    let mut strata = multiple * ranks;
    while strata.saturating_mul(2 * MEMBERS_ENOUGH) <= u64::from(samples) {
        strata *= 2;
    }
    u32::try_from(strata).unwrap_or(u32::MAX)
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_strata_by_hand() {
        let chosen = [
            ((8, 1, 1_281_167), 1),
            ((8, 8, 1_281_167), 4032),
            ((8, 8, 100_000_000), 80_640),
            // Too few samples for a second number of nodes.
            ((8, 8, 20_000), 64),
            ((2, 2, 50_000), 48),
            ((1, 2, 1000), 2),
            ((8, 1000, 1_281_167), 8000),
        ];
        for ((ranks, nodes, samples), strata) in chosen {
            assert_eq!(strata_for(ranks, nodes, samples), strata, "{ranks} x {nodes}, {samples} samples");
        }
        assert_eq!(strata_for(u32::MAX, u32::MAX, u32::MAX), u32::MAX);
    }

    proptest! {
        #[test]
        fn every_rank_has_as_many_strata(ranks in 1..9_u32, nodes in 2..200_u32, samples: u32) {
            prop_assert_eq!(strata_for(ranks, nodes, samples) % (ranks * nodes), 0);
        }
    }
}
