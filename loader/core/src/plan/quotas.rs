//! How many rows each part of a mixture has in the batches of one size.
//!
//! A batch of B rows has ⌊sB⌋ or ⌈sB⌉ rows of a part with the share s. After any number of batches
//! a part has had less than one row more or less than its share of all. Largest remainders of each
//! batch alone would not keep the second promise, and those of all batches together not the first.
//!
//! Both are those of a schedule: the parts are tasks, a batch is a slot, and each slot has as many
//! processors as there are rows left when every part has its whole ones. A part's i-th such row is
//! due in a window of slots that follows from its share. The one whose window ends first comes
//! first, and among equal ones the one that would leave the least choice to later slots: this is
//! the algorithm PD² (Anderson and Srinivasan, 2001), which meets every window.

use std::cmp::Reverse;

use shade_job::Ratio;

use crate::number::to_u32;

/// The rows of the batches of one size, batch by batch.
pub(super) struct Quotas {
    shares: Vec<Share>,
    /// Sum of the ratio.
    sum: u64,
    /// Rows that are left in each batch when every part has its whole ones.
    left: usize,
    /// Number of the next batch, from one on before which the ratio was met exactly.
    batch: u64,
}

/// What a part has of each batch.
struct Share {
    /// Whole rows.
    whole: u64,
    /// The rest of its share, in parts of the sum.
    rest: u64,
    /// Rows that it has had for its rests.
    given: u64,
}

/// What decides between rows that are due: the least comes first.
type Urgency = (u64, bool, Reverse<u64>, usize);

impl Quotas {
    /// The batches of `size` rows from number `from` on, and how many rows each part has had before
    /// that.
    pub(super) fn from(ratio: &Ratio, size: u32, from: u64) -> (Self, Vec<u128>) {
        let (size, sum) = (u64::from(size), ratio.sum);
        let share = |term: &u64| Share { whole: term * size / sum, rest: term * size % sum, given: 0 };
        let shares: Vec<Share> = ratio.terms.iter().map(share).collect();
        let left = shares.iter().map(|share| share.rest).sum::<u64>() / sum;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let mut quotas = Self { shares, sum, left, batch: 0 };
        let period = ratio.period(size);
        let periods = u128::from(from / period);
        let rows = |term: &u64| periods * u128::from(term * size) * u128::from(period) / u128::from(sum);
        let mut before: Vec<u128> = ratio.terms.iter().map(rows).collect();
        for _ in 0..from % period {
            before.iter_mut().zip(quotas.next()).for_each(|(before, rows)| *before += u128::from(rows));
        }
        (quotas, before)
    }

    /// The next batch's rows of each part.
    pub(super) fn next(&mut self) -> Vec<u32> {
        let (batch, sum) = (self.batch, self.sum);
        let numbered = self.shares.iter().enumerate();
        let mut due: Vec<Urgency> =
            numbered.filter_map(|(part, share)| share.urgency(part, batch, sum)).collect();
        assert!(due.len() >= self.left, "as many rows are due as a batch has left");
        due.sort_unstable();
        let mut rows: Vec<u32> = self.shares.iter().map(|share| to_u32(share.whole)).collect();
        for &(.., part) in due.iter().take(self.left) {
            self.shares[part].given += 1;
            rows[part] += 1;
        }
        self.batch += 1;
        rows
    }
}

impl Share {
    /// How urgent the next row for the part's rests is in this batch; `None` if it is not due yet.
    fn urgency(&self, part: usize, batch: u64, sum: u64) -> Option<Urgency> {
        let &Self { rest, given, .. } = self;
        if rest == 0 || given * sum / rest > batch {
            return None;
        }
        let end = (given + 1) * sum;
        let deadline = end.div_ceil(rest);
        let overlaps = !end.is_multiple_of(rest);
        // Rows of more than half a batch each come in runs: the batch in which such a run has room
        // again.
        let gap = sum - rest;
        let run = if 2 * rest >= sum { ((deadline * gap).div_ceil(sum) * sum).div_ceil(gap) } else { 0 };
        Some((deadline, !overlaps, Reverse(if overlaps { run } else { 0 }), part))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ratio(most: u64) -> impl Strategy<Value = Ratio> {
        let term = prop_oneof![1..10_u64, 1..most];
        prop::collection::vec(term, 1..=16).prop_map(|terms| Ratio { sum: terms.iter().sum(), terms })
    }

    /// A ratio and the number of a batch; many batches only of a ratio that soon comes again.
    fn anywhere() -> impl Strategy<Value = (Ratio, u64)> {
        prop_oneof![(ratio(60_000), 0..500_u64), (ratio(100), 0..u64::MAX / 2)]
    }

    #[test]
    fn short_ratios_by_hand() {
        let all = |terms: &[u64], size, batches: usize| -> Vec<Vec<u32>> {
            let ratio = Ratio { sum: terms.iter().sum(), terms: terms.to_vec() };
            let (mut quotas, before) = Quotas::from(&ratio, size, 0);
            assert_eq!(before, vec![0; terms.len()]);
            (0..batches).map(|_| quotas.next()).collect()
        };
        assert_eq!(all(&[7, 3], 10, 2), [[7, 3], [7, 3]]);
        assert_eq!(all(&[7, 3], 4, 5), [[3, 1], [3, 1], [3, 1], [3, 1], [2, 2]]);
        assert_eq!(all(&[1, 1, 1], 4, 3), [[2, 1, 1], [1, 2, 1], [1, 1, 2]]);
        assert_eq!(all(&[1], 5, 1), [[5]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn every_batch_and_all_batches_together_keep_the_ratio(
            (ratio, from) in anywhere(), size in prop_oneof![1..20_u32, 1..3000_u32],
        ) {
            let (mut quotas, before) = Quotas::from(&ratio, size, from);
            let mut had = before;
            prop_assert_eq!(had.iter().sum::<u128>(), u128::from(from) * u128::from(size));
            for batch in from..from + 300 {
                let share = |term: &u64, batches: u64| u128::from(*term * u64::from(size)) * u128::from(batches);
                let rows = quotas.next();
                prop_assert_eq!(rows.iter().sum::<u32>(), size);
                for ((had, rows), term) in had.iter_mut().zip(&rows).zip(&ratio.terms) {
                    *had += u128::from(*rows);
                    let exact = share(term, 1);
                    let sum = u128::from(ratio.sum);
                    prop_assert!(u128::from(*rows) == exact / sum || u128::from(*rows) == exact.div_ceil(sum));
                    prop_assert!((*had * sum).abs_diff(share(term, batch + 1)) < sum, "after batch {batch}");
                }
            }
        }

        #[test]
        fn batches_from_anywhere_on_are_those_from_the_first(ratio in ratio(60), size in 1..99_u32, from in 0..999_u64) {
            let (mut all, mut had) = Quotas::from(&ratio, size, 0);
            for _ in 0..from {
                had.iter_mut().zip(all.next()).for_each(|(had, rows)| *had += u128::from(rows));
            }
            let (mut some, before) = Quotas::from(&ratio, size, from);
            prop_assert_eq!(before, had);
            for _ in 0..20 {
                prop_assert_eq!(some.next(), all.next());
            }
        }
    }
}
