//! Coefficients back to samples: the inverse DCT of libjpeg's "islow", bit for bit, by its own
//! constants.
//!
//! ```text
//!   coefficients   times   8 columns at once       8 rows at once
//!   of a block  -------->  16 bits  -----> turned -----> 8 bits -----> turned ----> samples
//!              quantization
//! ```
//!
//! The transform in one dimension is Loeffler's, Ligtenberg's and Moschytz' (1989) with fixed-point
//! numbers of 13 bits, in sums of two products, which a CPU's vectors have an instruction for. What
//! damage or malice makes too large for 16 bits wraps or is cut off as in libjpeg-turbo's own code
//! for x86-64: then a part of a JPEG that is decoded here has the pixels of a whole that is left to
//! libjpeg-turbo, whatever its bytes are.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod plain;
mod reduced;

use multiversion::multiversion;
use multiversion::target::match_target;

use super::frame::COEFFICIENTS;
use super::scan::Block;

/// Coefficients of a block's side, and samples where the image is not reduced.
const SIDE: usize = 8;

/// Bits behind the point: of the constants, and of what is between the two passes.
const CONSTANT_BITS: u32 = 13;
const BETWEEN_BITS: u32 = 2;
/// Bits that the passes shift out: the second one divides by 8, too.
const SHIFTS: [u32; 2] = [CONSTANT_BITS - BETWEEN_BITS, CONSTANT_BITS + BETWEEN_BITS + 3];

/// Factors of rows 2 and 6 for outputs 0, 7, 3 and 4, and for the others.
const EVEN: [[i16; 2]; 2] = [[10_703, 4433], [4433, -10_704]];
/// Factors of the sums of rows 7 and 3 and of rows 5 and 1: for outputs 3, 4, 1 and 6, and for the
/// others.
const SUMS: [[i16; 2]; 2] = [[-6436, 9633], [9633, 6437]];
/// Factors of rows 7 and 1 beside them: for outputs 3 and 4, and for outputs 0 and 7.
const OUTER: [[i16; 2]; 2] = [[-4927, -7373], [-7373, 4926]];
/// Factors of rows 5 and 3 beside them: for outputs 2 and 5, and for outputs 1 and 6.
const INNER: [[i16; 2]; 2] = [[-4176, -20_995], [-20_995, 4177]];

/// A block's samples, row by row.
pub(super) type Samples = [[u8; SIDE]; SIDE];

/// Coefficients times their quantization.
type Rows = [[i16; SIDE]; SIDE];

/// The samples of `block`: `side` rows of `side` each, 8, 4, 2 or 1.
#[multiversion(targets("x86_64+avx2"))]
pub(super) fn inverse(block: &Block, quantization: &[i16; COEFFICIENTS], side: usize, samples: &mut Samples) {
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
            let mut whole = [0; COEFFICIENTS];
            for (to, from) in whole.iter_mut().zip(block.into_iter().cycle()).take(filled) {
                *to = from;
            }
            let rows = std::array::from_fn(|row| {
                std::array::from_fn(|column| whole[SIDE * row + column].wrapping_mul(factor))
            });
            let (mut expected, mut found) = Default::default();
            plain::inverse(&whole, &rows, &mut expected);
            inverse(&whole, &[factor; COEFFICIENTS], SIDE, &mut found);
            prop_assert_eq!(found, expected);
        }
    }
}
