//! The operations among which `RandAugment` and `TrivialAugmentWide` choose, and their magnitudes.

use super::operation::{Motion, Moved, Operation};
use crate::Size;
use crate::augment::randomness::Randomness;

/// Number of operations; the first of them does nothing.
const OPERATIONS: u32 = 14;
/// Share of a side by which `RandAugment` translates at most: 150 pixels of 331.
const TRANSLATE: f64 = 150.0 / 331.0;

/// The largest magnitudes of a policy.
struct Space {
    shear: f64,
    translate_x: f64,
    translate_y: f64,
    rotate: f64,
    /// Difference from 1 of the factors of brightness, colour, contrast and sharpness.
    enhance: f64,
    /// Bits that posterize removes.
    posterize: f32,
}

/// One operation of `RandAugment` on a row of this size; `None` is torchvision's `Identity`.
pub(super) fn rand_augment(
    magnitude: u8,
    bins: u8,
    moved: Moved,
    row: Size,
    random: &mut Randomness,
) -> Option<Operation> {
    let space = Space {
        shear: 0.3,
        translate_x: TRANSLATE * f64::from(row.width),
        translate_y: TRANSLATE * f64::from(row.height),
        rotate: 30.0,
        enhance: 0.9,
        posterize: 4.0,
    };
    let nth = random.up_to(OPERATIONS - 1);
    space.operation(nth, bins, moved, |_| magnitude, random)
}

/// The operation of `TrivialAugmentWide`; `None` is torchvision's `Identity`.
pub(super) fn trivial_augment_wide(bins: u8, moved: Moved, random: &mut Randomness) -> Option<Operation> {
    let space = Space {
        shear: 0.99,
        translate_x: 32.0,
        translate_y: 32.0,
        rotate: 135.0,
        enhance: 0.99,
        posterize: 6.0,
    };
    let nth = random.up_to(OPERATIONS - 1);
    let magnitude =
        |random: &mut Randomness| u8::try_from(random.up_to(u32::from(bins) - 1)).unwrap_or_default();
    space.operation(nth, bins, moved, magnitude, random)
}

impl Space {
    /// The operation number `nth` of torchvision's table, with its magnitude and sign.
    fn operation(
        &self,
        nth: u32,
        bins: u8,
        moved: Moved,
        magnitude: impl FnOnce(&mut Randomness) -> u8,
        random: &mut Randomness,
    ) -> Option<Operation> {
        let bin = match nth {
            0 | 12.. => 0,
            _ => magnitude(random),
        };
        // Operations 1 to 9 have a sign.
        let negative = (1..=9).contains(&nth) && random.up_to(1) == 1;
        let sign = if negative { -1.0 } else { 1.0 };
        let signed = |largest: f64| sign * linspace(0.0, largest, bins, bin);
        let factor = || single(1.0 + signed(self.enhance));
        Some(match nth {
            0 => return None,
            1 => Operation::Move(Motion::ShearX(signed(self.shear)), moved),
            2 => Operation::Move(Motion::ShearY(signed(self.shear)), moved),
            3 => Operation::Move(Motion::TranslateX(pixels(signed(self.translate_x))), moved),
            4 => Operation::Move(Motion::TranslateY(pixels(signed(self.translate_y))), moved),
            5 => Operation::Move(Motion::Rotate(signed(self.rotate)), moved),
            6 => Operation::Brightness(factor()),
            7 => Operation::Saturation(factor()),
            8 => Operation::Contrast(factor()),
            9 => Operation::Sharpness(factor()),
            10 => {
                let removed = f32::from(bin) / (f32::from(bins - 1) / self.posterize);
                Operation::Posterize(8_u8.saturating_sub(bits(removed.round_ties_even())))
            }
            11 => Operation::Solarize(single(linspace(255.0, 0.0, bins, bin))),
            12 => Operation::Autocontrast,
            _ => Operation::Equalize,
        })
    }
}

/// Number `at` of `torch.linspace(from, to, count)`: in single precision, from the nearer end.
fn linspace(from: f64, to: f64, count: u8, at: u8) -> f64 {
    let (from, to) = (single(from), single(to));
    let step = (to - from) / f32::from(count - 1);
    let number =
        if at < count / 2 { from + step * f32::from(at) } else { to - step * f32::from(count - 1 - at) };
    f64::from(number)
}

#[expect(clippy::cast_possible_truncation, reason = "torchvision has it in single precision")]
fn single(number: f64) -> f32 {
    number as f32
}

#[expect(clippy::cast_possible_truncation, reason = "torchvision takes the whole part")]
fn pixels(number: f64) -> i32 {
    number as i32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 0 to 8")]
fn bits(number: f32) -> u8 {
    number as u8
}
