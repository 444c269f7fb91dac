//! `AutoAugment`: 25 pairs of operations for each dataset for which Cubuk et al. searched them
//! (AutoAugment, CVPR 2019), as torchvision has them.

use shade_job::AutoAugmentPolicy;

use super::operation::{Moved, Operation};
use super::policies::Name::{
    self, AutoContrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate, Sharpness, ShearX,
    ShearY, Solarize, TranslateX, TranslateY,
};
use super::policies::Space;
use crate::Size;
use crate::augment::randomness::Randomness;

/// Magnitudes of each operation.
const BINS: u8 = 10;

/// An operation, how often of ten times it is done, and the number of its magnitude.
struct Step {
    name: Name,
    tenths: u8,
    bin: u8,
}

/// Passes the operations of one pair, drawn for a row of this size, to `each`.
pub(super) fn auto_augment(
    policy: AutoAugmentPolicy,
    moved: Moved,
    row: Size,
    random: &mut Randomness,
    each: &mut impl FnMut(Operation),
) {
    let pairs = match policy {
        AutoAugmentPolicy::Imagenet => &IMAGENET,
        AutoAugmentPolicy::Cifar10 => &CIFAR10,
        AutoAugmentPolicy::Svhn => &SVHN,
    };
    let space = Space::of_row(row, BINS);
    let nth = random.up_to(u32::try_from(pairs.len() - 1).unwrap_or_default());
    for step in pairs.get(nth as usize).into_iter().flatten() {
        let (is_done, negative) = (random.share() * 10.0 < f64::from(step.tenths), random.up_to(1) == 1);
        if is_done {
            each(space.operation(step.name, step.bin, negative, moved));
        }
    }
}

const fn step(name: Name, tenths: u8, bin: u8) -> Step {
    Step { name, tenths, bin }
}

const IMAGENET: [[Step; 2]; 25] = [
    [step(Posterize, 4, 8), step(Rotate, 6, 9)],
    [step(Solarize, 6, 5), step(AutoContrast, 6, 0)],
    [step(Equalize, 8, 0), step(Equalize, 6, 0)],
    [step(Posterize, 6, 7), step(Posterize, 6, 6)],
    [step(Equalize, 4, 0), step(Solarize, 2, 4)],
    [step(Equalize, 4, 0), step(Rotate, 8, 8)],
    [step(Solarize, 6, 3), step(Equalize, 6, 0)],
    [step(Posterize, 8, 5), step(Equalize, 10, 0)],
    [step(Rotate, 2, 3), step(Solarize, 6, 8)],
    [step(Equalize, 6, 0), step(Posterize, 4, 6)],
    [step(Rotate, 8, 8), step(Color, 4, 0)],
    [step(Rotate, 4, 9), step(Equalize, 6, 0)],
    [step(Equalize, 0, 0), step(Equalize, 8, 0)],
    [step(Invert, 6, 0), step(Equalize, 10, 0)],
    [step(Color, 6, 4), step(Contrast, 10, 8)],
    [step(Rotate, 8, 8), step(Color, 10, 2)],
    [step(Color, 8, 8), step(Solarize, 8, 7)],
    [step(Sharpness, 4, 7), step(Invert, 6, 0)],
    [step(ShearX, 6, 5), step(Equalize, 10, 0)],
    [step(Color, 4, 0), step(Equalize, 6, 0)],
    [step(Equalize, 4, 0), step(Solarize, 2, 4)],
    [step(Solarize, 6, 5), step(AutoContrast, 6, 0)],
    [step(Invert, 6, 0), step(Equalize, 10, 0)],
    [step(Color, 6, 4), step(Contrast, 10, 8)],
    [step(Equalize, 8, 0), step(Equalize, 6, 0)],
];

const CIFAR10: [[Step; 2]; 25] = [
    [step(Invert, 1, 0), step(Contrast, 2, 6)],
    [step(Rotate, 7, 2), step(TranslateX, 3, 9)],
    [step(Sharpness, 8, 1), step(Sharpness, 9, 3)],
    [step(ShearY, 5, 8), step(TranslateY, 7, 9)],
    [step(AutoContrast, 5, 0), step(Equalize, 9, 0)],
    [step(ShearY, 2, 7), step(Posterize, 3, 7)],
    [step(Color, 4, 3), step(Brightness, 6, 7)],
    [step(Sharpness, 3, 9), step(Brightness, 7, 9)],
    [step(Equalize, 6, 0), step(Equalize, 5, 0)],
    [step(Contrast, 6, 7), step(Sharpness, 6, 5)],
    [step(Color, 7, 7), step(TranslateX, 5, 8)],
    [step(Equalize, 3, 0), step(AutoContrast, 4, 0)],
    [step(TranslateY, 4, 3), step(Sharpness, 2, 6)],
    [step(Brightness, 9, 6), step(Color, 2, 8)],
    [step(Solarize, 5, 2), step(Invert, 0, 0)],
    [step(Equalize, 2, 0), step(AutoContrast, 6, 0)],
    [step(Equalize, 2, 0), step(Equalize, 6, 0)],
    [step(Color, 9, 9), step(Equalize, 6, 0)],
    [step(AutoContrast, 8, 0), step(Solarize, 2, 8)],
    [step(Brightness, 1, 3), step(Color, 7, 0)],
    [step(Solarize, 4, 5), step(AutoContrast, 9, 0)],
    [step(TranslateY, 9, 9), step(TranslateY, 7, 9)],
    [step(AutoContrast, 9, 0), step(Solarize, 8, 3)],
    [step(Equalize, 8, 0), step(Invert, 1, 0)],
    [step(TranslateY, 7, 9), step(AutoContrast, 9, 0)],
];

const SVHN: [[Step; 2]; 25] = [
    [step(ShearX, 9, 4), step(Invert, 2, 0)],
    [step(ShearY, 9, 8), step(Invert, 7, 0)],
    [step(Equalize, 6, 0), step(Solarize, 6, 6)],
    [step(Invert, 9, 0), step(Equalize, 6, 0)],
    [step(Equalize, 6, 0), step(Rotate, 9, 3)],
    [step(ShearX, 9, 4), step(AutoContrast, 8, 0)],
    [step(ShearY, 9, 8), step(Invert, 4, 0)],
    [step(ShearY, 9, 5), step(Solarize, 2, 6)],
    [step(Invert, 9, 0), step(AutoContrast, 8, 0)],
    [step(Equalize, 6, 0), step(Rotate, 9, 3)],
    [step(ShearX, 9, 4), step(Solarize, 3, 3)],
    [step(ShearY, 8, 8), step(Invert, 7, 0)],
    [step(Equalize, 9, 0), step(TranslateY, 6, 6)],
    [step(Invert, 9, 0), step(Equalize, 6, 0)],
    [step(Contrast, 3, 3), step(Rotate, 8, 4)],
    [step(Invert, 8, 0), step(TranslateY, 0, 2)],
    [step(ShearY, 7, 6), step(Solarize, 4, 8)],
    [step(Invert, 6, 0), step(Rotate, 8, 4)],
    [step(ShearY, 3, 7), step(TranslateX, 9, 3)],
    [step(ShearX, 1, 6), step(Invert, 6, 0)],
    [step(Solarize, 7, 2), step(TranslateY, 6, 7)],
    [step(ShearY, 8, 4), step(Invert, 8, 0)],
    [step(ShearX, 7, 9), step(TranslateY, 8, 3)],
    [step(ShearY, 8, 5), step(AutoContrast, 7, 0)],
    [step(ShearX, 7, 2), step(Invert, 1, 0)],
];
