//! 4, 2 or 1 samples along a block's side: libjpeg's "reduced" transforms, bit for bit.

use super::plain::{BETWEEN_BITS, CONSTANT_BITS, Coefficients, Rows, SIDE, Samples};

/// Four values: factors of rows 1, 3, 5 and 7 for the first and for the second. The fourth and the
/// third have the other sign.
const FOUR: [[i32; 4]; 2] = [[20_995, 7373, -4926, -4176], [8697, -17_799, 11_893, -1730]];
/// Factors of rows 2 and 6 for the first and fourth; the others have the other sign.
const FOUR_EVEN: [i32; 2] = [15_137, -6270];
/// Two values: factors of rows 1, 3, 5 and 7 for the first; the second has the other sign.
const TWO: [i32; 4] = [29_692, -10_426, 6967, -5906];

/// A column or a row.
type Line = [i32; SIDE];

/// Writes four rows of four samples. `rows` is `block` times its quantization.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "arrays of 8")]
pub(super) fn four_by_four(block: &Coefficients, rows: &Rows, samples: &mut Samples) {
    let mut between = [[0; SIDE]; 4];
    // The fifth row of coefficients is not used.
    let [_, upper @ .., _, sixth, seventh, eighth] = block.as_chunks::<SIDE>().0 else { return };
    let below = upper.iter().chain([sixth, seventh, eighth]);
    if below.flatten().all(|&coefficient| coefficient == 0) {
        between = [rows[0].map(|value| i32::from(value << BETWEEN_BITS)); 4];
    } else {
        for column in 0..SIDE {
            let values = four(rows.map(|row| row[column].into()));
            for (row, value) in between.iter_mut().zip(values) {
                row[column] = cut_off(rounded(value, CONSTANT_BITS - BETWEEN_BITS + 1));
            }
        }
    }
    for (row, to) in between.into_iter().zip(samples) {
        for (value, to) in four(row).into_iter().zip(to) {
            *to = sample(rounded(value, CONSTANT_BITS + BETWEEN_BITS + 3 + 1));
        }
    }
}

/// Writes two rows of two samples.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "arrays of 8")]
pub(super) fn two_by_two(rows: &Rows, samples: &mut Samples) {
    let mut between = [[0; SIDE]; 2];
    for column in 0..SIDE {
        let values = two(rows.map(|row| row[column].into()));
        for (row, value) in between.iter_mut().zip(values) {
            let value = rounded(value, CONSTANT_BITS - BETWEEN_BITS + 2);
            row[column] = if column == 0 { value } else { cut_off(value) };
        }
    }
    for (row, to) in between.into_iter().zip(samples) {
        for (value, to) in two(row).into_iter().zip(to) {
            *to = sample(rounded(value, CONSTANT_BITS + BETWEEN_BITS + 3 + 2));
        }
    }
}

/// The one sample of a block whose first coefficient is `mean`. It wraps beyond 10 bits.
pub(super) fn only(mean: i32) -> u8 {
    const WRAPS: u32 = i32::BITS - 10;
    sample(rounded(mean, 3) << WRAPS >> WRAPS)
}

#[inline(always)]
fn four([r0, r1, r2, r3, _, r5, r6, r7]: Line) -> [i32; 4] {
    let even = r0 << (CONSTANT_BITS + 1);
    let other = sum([r2, r6], FOUR_EVEN);
    let [outer, inner] = FOUR.map(|factors| sum([r1, r3, r5, r7], factors));
    let (plus, minus) = (even.wrapping_add(other), even.wrapping_sub(other));
    [plus.wrapping_add(outer), minus.wrapping_add(inner), minus.wrapping_sub(inner), plus.wrapping_sub(outer)]
}

#[inline(always)]
fn two([r0, r1, _, r3, _, r5, _, r7]: Line) -> [i32; 2] {
    let even = r0 << (CONSTANT_BITS + 2);
    let odd = sum([r1, r3, r5, r7], TWO);
    [even.wrapping_add(odd), even.wrapping_sub(odd)]
}

#[inline(always)]
fn sum<const N: usize>(values: [i32; N], factors: [i32; N]) -> i32 {
    values.into_iter().zip(factors).fold(0, |sum, (value, factor)| sum.wrapping_add(value * factor))
}

/// Divided by 2^`bits`.
#[inline(always)]
fn rounded(value: i32, bits: u32) -> i32 {
    value.wrapping_add(1 << (bits - 1)) >> bits
}

/// In 16 bits.
#[inline(always)]
fn cut_off(value: i32) -> i32 {
    value.clamp(i16::MIN.into(), i16::MAX.into())
}

#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "cut off at 0 and 255")]
fn sample(value: i32) -> u8 {
    value.saturating_add(128).clamp(0, 255) as u8
}
