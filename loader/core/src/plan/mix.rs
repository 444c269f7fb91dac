//! Seats that change from epoch to epoch, so that a rank does not see the same samples for ever.
//!
//! At the begin of an epoch a share of the seats, chosen at random, pass their strata around in a
//! circle. Seats of longer strata do so among themselves, as no other seats fit them. The circle
//! follows from seed and epoch alone, so it is the same for any number of ranks, and can be undone.

use shade_job::{PlanSpec, Seats};

use super::random::{Random, Stage};

/// Limit of the epochs between two plans. A jump over more has the circles of the last ones only: a
/// rank may ask for any epoch.
const EPOCHS_MAX: u32 = 1000;

/// The seats in epoch `to`, from those in epoch `from`, in the plans of `samples` samples.
#[must_use]
pub fn mixed(spec: &PlanSpec, samples: u32, seats: &Seats, from: u32, to: u32) -> Seats {
    let count = spec.strata;
    if spec.mix <= 0.0 || count < 2 || from == to {
        return seats.clone();
    }
    let from = from.clamp(to.saturating_sub(EPOCHS_MAX), to.saturating_add(EPOCHS_MAX));
    let mut order: Vec<u32> = (0..count).map(|seat| seats.stratum(seat)).collect();
    for epoch in from..to {
        each_circle(spec, samples, epoch + 1, |circle| {
            for pair in circle.windows(2) {
                swap(&mut order, pair);
            }
        });
    }
    for epoch in (to..from).rev() {
        each_circle(spec, samples, epoch + 1, |circle| {
            for pair in circle.windows(2).rev() {
                swap(&mut order, pair);
            }
        });
    }
    match Seats::new(order, samples) {
        Ok(seats) => seats,
        Err(error) => unreachable!("a circle has seats of one length: {error}"),
    }
}

fn swap(order: &mut [u32], pair: &[u32]) {
    if let [one, other] = *pair {
        order.swap(one as usize, other as usize);
    }
}

/// Calls `pass` with the seats of each circle by which `epoch` begins, in their order there.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the seats")]
fn each_circle(spec: &PlanSpec, samples: u32, epoch: u32, mut pass: impl FnMut(&[u32])) {
    let seed = if spec.group == 0 { spec.seed } else { spec.group };
    let mut random = Random::of_stratum(seed, epoch, Stage::Mix, 0);
    let longer = samples % spec.strata;
    for seats in [0..longer, longer..spec.strata] {
        let mut seats: Vec<u32> = seats.collect();
        let chosen = (spec.mix * seats.len() as f64).round() as usize;
        random.shuffle(&mut seats);
        pass(seats.get(..chosen).unwrap_or(&seats));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(strata: u32, mix: f64, seed: u64) -> PlanSpec {
        PlanSpec { strata, mix, seed, ..PlanSpec::default() }
    }

    fn order(seats: &Seats, strata: u32) -> Vec<u32> {
        (0..strata).map(|seat| seats.stratum(seat)).collect()
    }

    proptest! {
        #[test]
        fn a_share_of_the_seats_has_other_strata_and_all_can_be_undone(
            strata in 2..300_u32, more in 0..1000_u32, mix in 0.0..=1.0_f64, seed: u64,
            from in 0..9_u32, epochs in 1..5_u32,
        ) {
            let (spec, samples) = (spec(strata, mix, seed), strata + more);
            let before = mixed(&spec, samples, &Seats::IN_ORDER, 0, from);
            let next = mixed(&spec, samples, &before, from, from + 1);
            let changed = (0..strata).filter(|&seat| before.stratum(seat) != next.stratum(seat)).count();
            // A circle of one seat changes nothing.
            let of = |seats: u32| Some((mix * f64::from(seats)).round()).filter(|&seats| seats > 1.0).unwrap_or(0.0);
            let longer = samples % strata;
            prop_assert_eq!(changed as f64, of(longer) + of(strata - longer));
            // Seats that are no seats of this plan would be refused.
            prop_assert!(Seats::new(order(&next, strata), samples).is_ok());
            let to = from + epochs;
            let later = mixed(&spec, samples, &before, from, to);
            prop_assert_eq!(&mixed(&spec, samples, &next, from + 1, to), &later, "step by step");
            prop_assert_eq!(&mixed(&spec, samples, &later, to, from), &before);
        }
    }

    #[test]
    fn seeds_and_epochs_have_circles_of_their_own() {
        let after =
            |seed, epoch| order(&mixed(&spec(100, 0.3, seed), 1000, &Seats::IN_ORDER, epoch, epoch + 1), 100);
        let first = after(1, 0);
        assert_eq!(first, after(1, 0));
        assert!(first != after(2, 0) && first != after(1, 1));
        let grouped = PlanSpec { group: 1, ..spec(100, 0.3, 9) };
        assert_eq!(order(&mixed(&grouped, 1000, &Seats::IN_ORDER, 0, 1), 100), first, "a group has one seed");
    }

    /// After 20 epochs of a tenth, few strata are where they were, and each is anywhere.
    #[test]
    fn strata_come_to_any_node() {
        let (strata, nodes) = (400, 4);
        let seats = mixed(&spec(strata, 0.1, 5), 4000, &Seats::IN_ORDER, 0, 40);
        let mut counts = [[0_u32; 4]; 4];
        for seat in 0..strata {
            counts[(seat % nodes) as usize][(seats.stratum(seat) % nodes) as usize] += 1;
        }
        // 25 each, standard deviation 4.3: five of them.
        assert!(counts.iter().flatten().all(|count| count.abs_diff(25) < 22), "{counts:?}");
    }
}
