//! The random numbers of one row's image, from its [`Draw`] only: seed, epoch and position in the
//! plan, or group, epoch, sample and use. So a row is the same on any worker, after a resume, and
//! with any number of ranks.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use shade_formats::Draw;
use std::f64::consts::TAU;

/// Change the last byte when images of equal inputs are meant to change.
const GEOMETRY: [u8; 20] = *b"shade-load images v1";
/// As [`GEOMETRY`], of the operations on pixels: with or without them a row has the same crop.
const PIXELS: [u8; 20] = *b"shade-load pixels v1";
/// As [`GEOMETRY`], of the numbers of an operation's single pixels.
const NOISE: [u8; 20] = *b"shade-load noise  v1";

/// A row's stream of random numbers. It is made at the first draw, as most rows of small images
/// need none.
pub(super) struct Randomness {
    draw: Draw,
    /// What they are for, and which view of the image.
    domain: [u8; 20],
    numbers: Option<ChaCha8Rng>,
}

impl Randomness {
    /// The numbers of one view's geometry. Those of the first do not depend on there being others.
    pub(super) fn new(draw: Draw, view: u8) -> Self {
        Self { draw, domain: of_view(GEOMETRY, view), numbers: None }
    }

    /// The numbers of the operations on the pixels of one view's row.
    pub(super) fn of_pixels(draw: Draw, view: u8) -> Self {
        Self { draw, domain: of_view(PIXELS, view), numbers: None }
    }

    fn number(&mut self) -> u64 {
        self.numbers.get_or_insert_with(|| stream(self.draw, self.domain)).next_u64()
    }

    /// A number from 0 to below 1, each multiple of 2⁻⁵³ equally likely.
    pub(super) fn share(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.number() >> 11) as f64 * UNIT
    }

    /// A number from `from` to `to`.
    pub(super) fn between(&mut self, [from, to]: [f64; 2]) -> f64 {
        from + (to - from) * self.share()
    }

    /// A number of the standard normal distribution (Box and Muller, 1958).
    pub(super) fn normal(&mut self) -> f64 {
        // Not 0, which has no logarithm.
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (TAU * self.share()).cos()
    }

    /// The start of a stream of its own.
    pub(super) fn noise(&mut self) -> Noise {
        Noise(self.number())
    }

    /// A whole number from 0 to `last`.
    pub(super) fn up_to(&mut self, last: u32) -> u32 {
        let count = u64::from(last) + 1;
        // The bias is below count / 2^64.
        let high = (u128::from(self.number()) * u128::from(count)) >> 64;
        u32::try_from(high).unwrap_or(last)
    }
}

/// A number of which a stream of numbers follows: for an operation that needs one for each pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise(u64);

impl Noise {
    /// Numbers from -1 to below 1, without end.
    pub(super) fn numbers(self) -> impl Iterator<Item = f32> {
        const UNIT: f32 = 2.0 / (1_u32 << 24) as f32;
        let mut key = [0; 32];
        let (number, rest) = key.split_at_mut(8);
        number.copy_from_slice(&self.0.to_le_bytes());
        rest.iter_mut().zip(NOISE).for_each(|(byte, of_domain)| *byte = of_domain);
        let mut numbers = ChaCha8Rng::from_seed(key);
        std::iter::repeat_with(move || (numbers.next_u32() >> 8) as f32 * UNIT - 1.0)
    }
}

fn of_view(mut domain: [u8; 20], view: u8) -> [u8; 20] {
    if let Some(first) = domain.first_mut() {
        *first ^= view;
    }
    domain
}

fn stream(draw: Draw, of: [u8; 20]) -> ChaCha8Rng {
    let mut key = [0; 32];
    let (seed, rest) = key.split_at_mut(8);
    let (epoch, domain) = rest.split_at_mut(4);
    seed.copy_from_slice(&draw.draws.seed.to_le_bytes());
    epoch.copy_from_slice(&draw.draws.epoch.to_le_bytes());
    domain.copy_from_slice(&of);
    let mut numbers = ChaCha8Rng::from_seed(key);
    numbers.set_stream(draw.row.number());
    numbers
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use shade_formats::{DrawnRow, EpochDraws, SampleId};

    use super::*;

    #[test]
    fn seed_epoch_and_position_each_change_the_numbers() {
        let first = |draw| Randomness::new(draw, 0).up_to(u32::MAX);
        let draw = Draw::at(1, 2, 3);
        assert_eq!(first(draw), first(draw));
        for other in [Draw::at(2, 2, 3), Draw::at(1, 3, 3), Draw::at(1, 2, 4)] {
            assert_ne!(first(draw), first(other), "{other:?}");
        }
        assert_ne!(first(draw), Randomness::of_pixels(draw, 0).up_to(u32::MAX));
    }

    #[test]
    fn each_view_has_its_own_numbers() {
        let first = |view| Randomness::new(Draw::at(1, 2, 3), view).up_to(u32::MAX);
        let numbers: HashSet<u32> = (0..16).map(first).collect();
        assert_eq!(numbers.len(), 16);
        // As in the first release: rows of plans that were saved then stay as they are.
        assert_eq!(first(0), 4_155_219_006);
    }

    #[test]
    fn the_uses_of_a_group_are_other_rows_than_positions() {
        let first = |draw| Randomness::new(draw, 0).up_to(u32::MAX);
        let draws = EpochDraws { seed: 1, epoch: 2 };
        let of_use = |sample, nth| Draw { draws, row: DrawnRow::of_use(SampleId(sample), nth) };
        let draws = [of_use(0, 0), of_use(0, 1), of_use(1, 0), Draw::at(1, 2, 0), Draw::at(1, 2, 1 << 16)];
        let numbers: HashSet<u32> = draws.into_iter().map(first).collect();
        assert_eq!(numbers.len(), draws.len());
    }

    #[test]
    fn noise_is_even_and_each_draw_has_its_own() {
        let mut random = Randomness::of_pixels(Draw::at(1, 2, 3), 0);
        let [first, second] = [random.noise(), random.noise()];
        let numbers: Vec<f32> = first.numbers().take(40_000).collect();
        assert!(first.numbers().zip(&numbers).take(9).all(|(again, &number)| again == number));
        assert!(second.numbers().zip(&numbers).take(9).all(|(other, &number)| other != number));
        assert!(numbers.iter().all(|number| (-1.0..1.0).contains(number)));
        let [sum, squares] = [1, 2].map(|power| numbers.iter().map(|number| number.powi(power)).sum::<f32>());
        // Five standard deviations of 115 and 60.
        assert!(sum.abs() < 577.0 && (squares - 40_000.0 / 3.0).abs() < 298.0, "{sum} {squares}");
    }

    #[test]
    fn numbers_are_even_and_in_range() {
        let mut counts = [0; 5];
        let mut sum = 0.0;
        for position in 0..50_000 {
            let mut random = Randomness::new(Draw::at(1, 2, position), 0);
            counts[random.up_to(4) as usize] += 1;
            let share = random.share();
            assert!((0.0..1.0).contains(&share));
            sum += share;
        }
        // Five standard deviations of 89 and 65.
        assert!(counts.iter().all(|&count: &i32| count.abs_diff(10_000) < 450), "{counts:?}");
        assert!((sum - 25_000.0).abs() < 325.0, "{sum}");
        assert_eq!(Randomness::new(Draw::default(), 0).up_to(0), 0);
    }
}
