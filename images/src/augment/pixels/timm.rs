//! timm's RandAugment: its operations, and what a magnitude means for each.

use shade_job::{Colour, Transform};

use super::operation::{Motion, Moved, Operation};
use crate::Size;
use crate::augment::randomness::Randomness;

/// The largest magnitude.
const MOST: f64 = 10.0;
/// Number of operations.
const OPERATIONS: u32 = 15;

/// An operation's number in timm's list. `Increasing` there: a larger magnitude changes more.
const AUTO_CONTRAST: u32 = 0;
const EQUALIZE: u32 = 1;
const INVERT: u32 = 2;
const ROTATE: u32 = 3;
const POSTERIZE: u32 = 4;
const SOLARIZE: u32 = 5;
const SOLARIZE_ADD: u32 = 6;
const COLOR: u32 = 7;
const CONTRAST: u32 = 8;
const BRIGHTNESS: u32 = 9;
const SHARPNESS: u32 = 10;
const SHEAR_X: u32 = 11;
const SHEAR_Y: u32 = 12;
const TRANSLATE_X: u32 = 13;

/// One operation of a `TimmRandAugment` on a row of this size; `None`: its chance did not come.
pub(super) fn rand_augment(transform: &Transform, row: Size, random: &mut Randomness) -> Option<Operation> {
    let Transform::TimmRandAugment {
        magnitude,
        magnitude_std,
        p,
        increasing,
        translate,
        interpolations,
        fill,
        ..
    } = transform
    else {
        unreachable!("it is timm's RandAugment: {transform:?}");
    };
    let nth = random.up_to(OPERATIONS - 1);
    if random.share() >= f64::from(*p) {
        return None;
    }
    let magnitude = magnitude + magnitude_std * random.normal();
    let share = magnitude.clamp(0.0, MOST) / MOST;
    let which = random.up_to(u32::try_from(interpolations.len()).unwrap_or(1) - 1) as usize;
    let Colour(fill) = *fill;
    let moved = Moved { interpolation: interpolations.get(which).copied().unwrap_or_default(), fill };
    let mut signed = |number: f64| if random.share() > 0.5 { -number } else { number };
    let mut factor = || {
        if *increasing { single((1.0 + signed(share * 0.9)).max(0.1)) } else { single(share * 1.8 + 0.1) }
    };
    let motion = |matrix: [f64; 6]| Operation::Move(Motion::By(matrix), moved);
    Some(match nth {
        AUTO_CONTRAST => Operation::Autocontrast,
        EQUALIZE => Operation::Equalize,
        INVERT => Operation::Invert,
        ROTATE => Operation::Move(Motion::Rotate(signed(share * 30.0)), moved),
        POSTERIZE => {
            let kept = whole(share * 4.0, 4);
            Operation::Posterize(if *increasing { 4 - kept } else { kept })
        }
        SOLARIZE => {
            let threshold = (share * 256.0).floor().min(256.0);
            Operation::Solarize(single(if *increasing { 256.0 - threshold } else { threshold }))
        }
        SOLARIZE_ADD => Operation::SolarizeAdd(whole(share * 110.0, 128)),
        COLOR => Operation::Saturation(factor()),
        CONTRAST => Operation::Contrast(factor()),
        BRIGHTNESS => Operation::Brightness(factor()),
        SHARPNESS => Operation::Sharpness(factor()),
        SHEAR_X => motion([1.0, signed(share * 0.3), 0.0, 0.0, 1.0, 0.0]),
        SHEAR_Y => motion([1.0, 0.0, 0.0, signed(share * 0.3), 1.0, 0.0]),
        TRANSLATE_X => {
            let pixels = signed(share * translate) * f64::from(row.width);
            motion([1.0, 0.0, pixels, 0.0, 1.0, 0.0])
        }
        _ => {
            let pixels = signed(share * translate) * f64::from(row.height);
            motion([1.0, 0.0, 0.0, 0.0, 1.0, pixels])
        }
    })
}

#[expect(clippy::cast_possible_truncation, reason = "Pillow has it in single precision")]
fn single(number: f64) -> f32 {
    number as f32
}

/// The whole part of a number that is not negative, at most `most`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "timm takes the whole part")]
fn whole(number: f64, most: u8) -> u8 {
    (number as u8).min(most)
}
