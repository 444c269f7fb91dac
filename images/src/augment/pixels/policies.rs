//! The operations of `RandAugment`, `TrivialAugmentWide` and `AutoAugment`, and their magnitudes.

use super::operation::{Motion, Moved, Operation};
use crate::Size;
use crate::augment::randomness::Randomness;

/// Share of a side by which `RandAugment` and `AutoAugment` translate at most: 150 pixels of 331.
const TRANSLATE: f64 = 150.0 / 331.0;

/// An operation under torchvision's name for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Name {
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

use Name::{
    AutoContrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate, Sharpness, ShearX,
    ShearY, Solarize, TranslateX, TranslateY,
};

/// What `RandAugment` and `TrivialAugmentWide` choose among, beside `Identity`, in torchvision's
/// order.
const CHOICES: [Name; 13] = [
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
];

impl Name {
    /// Whether its magnitude may be negative.
    pub(super) fn is_signed(self) -> bool {
        !matches!(self, Posterize | Solarize) && self.has_magnitude()
    }

    /// Whether it has magnitudes at all.
    pub(super) fn has_magnitude(self) -> bool {
        !matches!(self, AutoContrast | Equalize | Invert)
    }
}

/// The largest magnitudes of a policy, and how many there are from none to them.
pub(super) struct Space {
    bins: u8,
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
    Space::of_row(row, bins).any(moved, |_| magnitude, random)
}

/// The operation of `TrivialAugmentWide`; `None` is torchvision's `Identity`.
pub(super) fn trivial_augment_wide(bins: u8, moved: Moved, random: &mut Randomness) -> Option<Operation> {
    let space = Space {
        bins,
        shear: 0.99,
        translate_x: 32.0,
        translate_y: 32.0,
        rotate: 135.0,
        enhance: 0.99,
        posterize: 6.0,
    };
    let magnitude =
        |random: &mut Randomness| u8::try_from(random.up_to(u32::from(bins) - 1)).unwrap_or_default();
    space.any(moved, magnitude, random)
}

impl Space {
    /// The magnitudes of `RandAugment` and `AutoAugment` for a row of this size.
    pub(super) fn of_row(row: Size, bins: u8) -> Self {
        Self {
            bins,
            shear: 0.3,
            translate_x: TRANSLATE * f64::from(row.width),
            translate_y: TRANSLATE * f64::from(row.height),
            rotate: 30.0,
            enhance: 0.9,
            posterize: 4.0,
        }
    }

    /// One of [`CHOICES`] or none, each equally likely, and its sign.
    fn any(
        &self,
        moved: Moved,
        magnitude: impl FnOnce(&mut Randomness) -> u8,
        random: &mut Randomness,
    ) -> Option<Operation> {
        let nth = random.up_to(u32::try_from(CHOICES.len()).unwrap_or_default()) as usize;
        let name = *CHOICES.get(nth.checked_sub(1)?)?;
        let bin = if name.has_magnitude() { magnitude(random) } else { 0 };
        let negative = name.is_signed() && random.up_to(1) == 1;
        Some(self.operation(name, bin, negative, moved))
    }

    /// The operation with magnitude number `bin`; with the other sign if it has one.
    pub(super) fn operation(&self, name: Name, bin: u8, negative: bool, moved: Moved) -> Operation {
        let sign = if negative { -1.0 } else { 1.0 };
        let signed = |largest: f64| sign * linspace(0.0, largest, self.bins, bin);
        let factor = || single(1.0 + signed(self.enhance));
        match name {
            ShearX => Operation::Move(Motion::ShearX(signed(self.shear)), moved),
            ShearY => Operation::Move(Motion::ShearY(signed(self.shear)), moved),
            TranslateX => Operation::Move(Motion::TranslateX(pixels(signed(self.translate_x))), moved),
            TranslateY => Operation::Move(Motion::TranslateY(pixels(signed(self.translate_y))), moved),
            Rotate => Operation::Move(Motion::Rotate(signed(self.rotate)), moved),
            Brightness => Operation::Brightness(factor()),
            Color => Operation::Saturation(factor()),
            Contrast => Operation::Contrast(factor()),
            Sharpness => Operation::Sharpness(factor()),
            Posterize => {
                let removed = f32::from(bin) / (f32::from(self.bins - 1) / self.posterize);
                Operation::Posterize(8_u8.saturating_sub(bits(removed.round_ties_even())))
            }
            Solarize => Operation::Solarize(single(linspace(255.0, 0.0, self.bins, bin))),
            AutoContrast => Operation::Autocontrast,
            Equalize => Operation::Equalize,
            Invert => Operation::Invert,
        }
    }
}

/// Number `at` of `torch.linspace(from, to, count)`: in single precision, from the nearer end.
pub(super) fn linspace(from: f64, to: f64, count: u8, at: u8) -> f64 {
    let (from, to) = (single(from), single(to));
    let step = (to - from) / f32::from(count - 1);
    let number =
        if at < count / 2 { from + step * f32::from(at) } else { to - step * f32::from(count - 1 - at) };
    f64::from(number)
}

#[expect(clippy::cast_possible_truncation, reason = "torchvision has it in single precision")]
pub(super) fn single(number: f64) -> f32 {
    number as f32
}

#[expect(clippy::cast_possible_truncation, reason = "torchvision takes the whole part")]
pub(super) fn pixels(number: f64) -> i32 {
    number as i32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 0 to 8")]
fn bits(number: f32) -> u8 {
    number as u8
}
