//! PADS "rep": draws of resident samples are multiplied, other draws are dropped, the length stays.
//!
//! An epoch of L has R draws of residents. The target is `round(rep·R)` of them, at most
//! `hit_cap·L`. Without the cap a large rep leaves no miss: nothing is ever admitted again, and the
//! rest of the dataset is not seen any more. Where residents already have more than the cap they
//! are left as they are: the cap withholds copies, it takes no draw away. Each draw of a resident
//! gets the whole part of target/R copies, and randomly chosen ones get one more, so that the sum
//! is exact.

use shade_job::PlanSpec;

use crate::number::to_u32;
use crate::plan::random::{Random, Select};

/// What replication did to the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Replicated {
    /// By how much the draws of residents became more.
    resident_factor: f64,
    /// Which part of the other draws was kept.
    other_factor: f64,
    /// Copies that `hit_cap` withheld.
    pub(super) withheld: u32,
}

impl Replicated {
    pub(super) const NONE: Self = Self { resident_factor: 1.0, other_factor: 1.0, withheld: 0 };

    /// What replication made of one draw of a sample, on average.
    pub(super) fn factor(&self, is_resident: bool) -> f64 {
        if is_resident { self.resident_factor } else { self.other_factor }
    }
}

/// The replication factor in force: `spec.rep` while the validation score improves, 1 otherwise.
///
/// `validation_history` has the score of each epoch with one, oldest first, higher is better. It
/// improves if the last score exceeds the one three epochs earlier (as in the published code: the
/// mean of the last three differences is positive), or the one before while there are fewer than
/// four. With fewer than two scores there is no trend, and `rep` holds as configured. Scores that
/// are not finite are ignored.
#[must_use]
pub fn rep_now(spec: &PlanSpec, validation_history: impl IntoIterator<Item = f64>) -> f64 {
    let scores: Vec<f64> = validation_history.into_iter().filter(|score| score.is_finite()).collect();
    let improves = match scores.as_slice() {
        [.., before, _, _, last] | [before, last] | [_, before, last] => last > before,
        _ => true,
    };
    if improves { spec.rep } else { 1.0 }
}

/// Changes `counts` in place; `resident[i]` says whether sample i is in the cache at the epoch's
/// boundary.
pub(super) fn replicate(
    counts: &mut [u32],
    resident: &[bool],
    rep: f64,
    hit_cap: f64,
    random: &mut Random,
) -> Replicated {
    let draws: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let of_residents: u64 = counts
        .iter()
        .zip(resident)
        .filter(|(_, resident)| **resident)
        .map(|(&count, _)| u64::from(count))
        .sum();
    let wanted = times(of_residents, rep.max(1.0), f64::round).min(draws);
    let cap = times(draws, hit_cap.clamp(0.0, 1.0), f64::floor);
    let target = wanted.min(cap.max(of_residents));
    let withheld = to_u32(wanted - target);
    let (Some(copies), true) = (target.checked_div(of_residents), target > of_residents) else {
        return Replicated { withheld, ..Replicated::NONE };
    };
    let copies = to_u32(copies);
    let mut one_more = Select::new(target % of_residents, of_residents);
    let mut kept = Select::new(draws - target, draws - of_residents);
    for (sample, count) in counts.iter_mut().enumerate() {
        *count = if resident[sample] {
            // At most `target` in all, which fits.
            *count * copies + one_more.next(*count, random)
        } else {
            kept.next(*count, random)
        };
    }
    let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    Replicated {
        resident_factor: share(target, of_residents),
        other_factor: share(draws - target, draws - of_residents),
        withheld,
    }
}

/// `draws · factor` as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and the cast saturates"
)]
fn times(draws: u64, factor: f64, to_whole: fn(f64) -> f64) -> u64 {
    to_whole(draws as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::random::Stage;

    fn run(counts: &[u32], residents: usize, rep: f64, hit_cap: f64) -> (Vec<u32>, Replicated) {
        let mut counts = counts.to_vec();
        let resident: Vec<bool> = (0..counts.len()).map(|sample| sample < residents).collect();
        let replicated =
            replicate(&mut counts, &resident, rep, hit_cap, &mut Random::new(5, 1, Stage::Replicate));
        (counts, replicated)
    }

    #[test]
    fn whole_factors_multiply_residents_and_keep_the_length() {
        let (counts, replicated) = run(&[1, 2, 0, 1, 1, 3, 1, 1], 2, 2.0, 1.0);
        assert_eq!(&counts[..2], [2, 4]);
        assert_eq!(counts.iter().sum::<u32>(), 10);
        assert_eq!(counts[2], 0);
        assert!((replicated.resident_factor - 2.0).abs() < 1e-12);
        assert!((replicated.other_factor - 4.0 / 7.0).abs() < 1e-12);
        assert_eq!(replicated.withheld, 0);
    }

    #[test]
    fn a_fraction_is_drawn_exactly() {
        let (counts, _) = run(&[1; 1000], 100, 2.25, 1.0);
        let residents: u32 = counts[..100].iter().sum();
        assert_eq!(residents, 225);
        assert!(counts[..100].iter().all(|count| (2..=3).contains(count)));
        assert_eq!(counts.iter().sum::<u32>(), 1000);
    }

    #[test]
    fn the_cap_binds_and_is_reported() {
        let (counts, replicated) = run(&[1; 1000], 300, 3.0, 0.6);
        assert_eq!(counts[..300].iter().sum::<u32>(), 600);
        assert_eq!(replicated.withheld, 300);
        // Residents already above the cap are left alone.
        let (counts, replicated) = run(&[1; 1000], 700, 1.2, 0.6);
        assert_eq!(counts, [1; 1000]);
        assert_eq!((replicated.withheld, replicated.resident_factor), (140, 1.0));
        // Without a cap the epoch's length is the limit.
        let (counts, replicated) = run(&[1; 1000], 500, 3.0, 1.0);
        assert_eq!(counts[..500].iter().sum::<u32>(), 1000);
        assert!(replicated.other_factor.abs() < 1e-12);
    }

    #[test]
    fn nothing_resident_or_everything_resident_changes_nothing() {
        for residents in [0, 4] {
            let (counts, replicated) = run(&[1, 0, 2, 1], residents, 3.0, 1.0);
            assert_eq!(counts, [1, 0, 2, 1]);
            assert_eq!(replicated, Replicated::NONE);
        }
    }

    #[test]
    fn a_poor_parameter_means_none() {
        for rep in [f64::NAN, 0.0, -1.0] {
            assert_eq!(run(&[1; 10], 3, rep, 1.0).0, [1; 10]);
        }
        assert_eq!(run(&[1; 10], 3, f64::INFINITY, f64::NAN).0, [1; 10]);
    }

    #[test]
    fn validation_decides_between_rep_and_1() {
        let spec = PlanSpec { rep: 3.0, ..PlanSpec::default() };
        let decided = |history: &[f64]| rep_now(&spec, history.iter().copied());
        for improving in
            [&[][..], &[0.5], &[0.5, 0.6], &[0.9, 0.5, 0.6], &[0.4, 0.9, 0.1, 0.5], &[0.5, f64::NAN]]
        {
            assert!((decided(improving) - 3.0).abs() < 1e-12, "{improving:?}");
        }
        for relaxed in [&[0.5, 0.5][..], &[0.1, 0.6, 0.5], &[0.5, 0.1, 0.2, 0.5], &[0.1, 0.9, 0.1, 0.5, 0.8]]
        {
            assert!((decided(relaxed) - 1.0).abs() < 1e-12, "{relaxed:?}");
        }
    }
}
