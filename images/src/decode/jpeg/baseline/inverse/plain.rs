//! The transform for any CPU, and the constants and types of all transforms: libjpeg's factors, as
//! fixed-point numbers.

/// Coefficients of a block's side, and samples where the image is not reduced.
pub(super) const SIDE: usize = 8;

/// Fractional bits of the constants, and of the values between the two passes.
pub(super) const CONSTANT_BITS: u32 = 13;
pub(super) const BETWEEN_BITS: u32 = 2;
/// Bits that the passes shift out: the second one divides by 8, too.
pub(super) const SHIFTS: [u32; 2] = [CONSTANT_BITS - BETWEEN_BITS, CONSTANT_BITS + BETWEEN_BITS + 3];

/// Factors of rows 2 and 6 for outputs 0, 7, 3 and 4, and for the others.
pub(super) const EVEN: [[i16; 2]; 2] = [[10_703, 4433], [4433, -10_704]];
/// Factors of the sums of rows 7 and 3 and of rows 5 and 1: for outputs 3, 4, 1 and 6, and for the
/// others.
pub(super) const SUMS: [[i16; 2]; 2] = [[-6436, 9633], [9633, 6437]];
/// Factors of rows 7 and 1 beside them: for outputs 3 and 4, and for outputs 0 and 7.
pub(super) const OUTER: [[i16; 2]; 2] = [[-4927, -7373], [-7373, 4926]];
/// Factors of rows 5 and 3 beside them: for outputs 2 and 5, and for outputs 1 and 6.
pub(super) const INNER: [[i16; 2]; 2] = [[-4176, -20_995], [-20_995, 4177]];

/// A block's coefficients, or their quantization, row by row.
pub(super) type Coefficients = [i16; SIDE * SIDE];

/// A block's samples, row by row.
pub(crate) type Samples = [[u8; SIDE]; SIDE];

/// Coefficients times their quantization.
pub(super) type Rows = [[i16; SIDE]; SIDE];

/// Samples of `rows`, which are `block` times its quantization.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "cut off at 0 and 255")]
pub(super) fn inverse(block: &Coefficients, rows: &Rows, samples: &mut Samples) {
    let between = match block.as_chunks::<SIDE>().0 {
        // Nothing varies from row to row.
        [_, below @ ..] if below.as_flattened().iter().all(|&coefficient| coefficient == 0) => {
            [rows[0].map(|value| value << BETWEEN_BITS); SIDE]
        }
        _ => pass(rows, SHIFTS[0]),
    };
    for (row, to) in turned(&pass(&turned(&between), SHIFTS[1])).into_iter().zip(samples) {
        *to = row.map(|value| (i32::from(value) + 128).clamp(0, 255) as u8);
    }
}

/// The transform of each column, divided by 2^`shift`.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "arrays of 8; cut off at 16 bits"
)]
fn pass(rows: &Rows, shift: u32) -> Rows {
    let mut out = *rows;
    for column in 0..SIDE {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = rows.map(|row| row[column]);
        let one = |value: i16| i32::from(value) << CONSTANT_BITS;
        let (plus, minus) = (one(r0.wrapping_add(r4)), one(r0.wrapping_sub(r4)));
        let [outer, inner] = EVEN.map(|factors| sum([r2, r6], factors));
        let even = [plus + outer, minus + inner, minus - inner, plus - outer];

        let sums = [r7.wrapping_add(r3), r5.wrapping_add(r1)];
        let [to_73, to_51] = SUMS.map(|factors| sum(sums, factors));
        let [fourth, first] = OUTER.map(|factors| sum([r7, r1], factors));
        let [third, second] = INNER.map(|factors| sum([r5, r3], factors));
        let odd = [first + to_51, second + to_73, third + to_51, fourth + to_73];

        let scaled = |sum: i32| {
            let rounded = sum.wrapping_add(1 << (shift - 1)) >> shift;
            rounded.clamp(i16::MIN.into(), i16::MAX.into()) as i16
        };
        for (at, (even, odd)) in even.into_iter().zip(odd).enumerate() {
            out[at][column] = scaled(even.wrapping_add(odd));
            out[SIDE - 1 - at][column] = scaled(even.wrapping_sub(odd));
        }
    }
    out
}

/// The sum of two products: 31 bits, as factors have 15.
#[inline(always)]
fn sum([a, b]: [i16; 2], factors: [i16; 2]) -> i32 {
    i32::from(a) * i32::from(factors[0]) + i32::from(b) * i32::from(factors[1])
}

/// Columns as rows.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "arrays of 8")]
fn turned(rows: &Rows) -> Rows {
    std::array::from_fn(|row| rows.map(|values| values[row]))
}
