//! Constants and types of the transforms: libjpeg's factors, as fixed-point numbers.

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
