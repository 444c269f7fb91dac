//! Coefficients back to samples: libjpeg's "islow" inverse DCT, bit for bit, with its constants.
//!
//! ```text
//!   coefficients   times   8 columns at once       8 rows at once
//!   of a block  -------->  16 bits  -----> turned -----> 8 bits -----> turned ----> samples
//!              quantization
//! ```
//!
//! The one-dimensional transform is Loeffler's, Ligtenberg's and Moschytz' (1989) with 13-bit
//! fixed-point numbers, in sums of two products, for which vector units have an instruction. Values
//! that damage or malice makes too large for 16 bits wrap or are clamped as in libjpeg-turbo's code
//! for x86-64. So a part of any JPEG decoded here equals the whole decoded by libjpeg-turbo.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod plain;
mod reduced;

use multiversion::multiversion;
use multiversion::target::match_target;

pub(super) use plain::Samples;
use plain::{Coefficients, Rows, SIDE};

/// The samples of `block`: `side` rows of `side` each, 8, 4, 2 or 1.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn inverse(block: &Coefficients, quantization: &Coefficients, side: usize, samples: &mut Samples) {
    let mut rows = Rows::default();
    for ((value, &coefficient), &factor) in rows.as_flattened_mut().iter_mut().zip(block).zip(quantization) {
        *value = coefficient.wrapping_mul(factor);
    }
    match side {
        SIDE => match_target! {
            "x86_64+avx2" => avx2::inverse(block, &rows, samples),
            _ => plain::inverse(block, &rows, samples),
        },
        4 => reduced::four_by_four(block, &rows, samples),
        2 => reduced::two_by_two(&rows, samples),
        _ => samples[0][0] = reduced::only(i32::from(block[0]) * i32::from(quantization[0])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_cpus_give_the_same(
            block in prop::array::uniform32(-1100..1100i16),
            // Coefficients in the first row only, in half of it, or everywhere.
            filled in prop::sample::select(vec![8, 32, 64]),
            factor in 0..256i16,
        ) {
            let mut whole = [0; SIDE * SIDE];
            for (to, from) in whole.iter_mut().zip(block.into_iter().cycle()).take(filled) {
                *to = from;
            }
            let rows = std::array::from_fn(|row| {
                std::array::from_fn(|column| whole[SIDE * row + column].wrapping_mul(factor))
            });
            let (mut expected, mut found) = Default::default();
            plain::inverse(&whole, &rows, &mut expected);
            inverse(&whole, &[factor; SIDE * SIDE], SIDE, &mut found);
            prop_assert_eq!(found, expected);
        }
    }
}
