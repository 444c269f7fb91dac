//! The transform for CPUs with AVX2: sums of two products in one instruction, and blocks transposed
//! in registers.
//! Nothing is unsafe here: a function's type says which CPU it needs, and vectors are read and
//! written as arrays.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi16, _mm_packs_epi16, _mm_set1_epi8, _mm_slli_epi16, _mm_sub_epi16,
    _mm_unpackhi_epi8, _mm_unpackhi_epi16, _mm_unpackhi_epi32, _mm_unpacklo_epi8, _mm_unpacklo_epi16,
    _mm_unpacklo_epi32, _mm_xor_si128, _mm256_add_epi32, _mm256_castsi256_si128, _mm256_cvtepi16_epi32,
    _mm256_extracti128_si256, _mm256_madd_epi16, _mm256_or_si256, _mm256_packs_epi32,
    _mm256_permute4x64_epi64, _mm256_set_m128i, _mm256_set1_epi32, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_sub_epi32, _mm256_testz_si256,
};

use bytemuck::must_cast;

use super::plain::{
    BETWEEN_BITS, CONSTANT_BITS, Coefficients, EVEN, INNER, OUTER, Rows, SHIFTS, SIDE, SUMS, Samples,
};

/// Rows of 16 bits.
type Vectors = [__m128i; SIDE];

/// As [`plain::inverse`](super::plain::inverse).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn inverse(block: &Coefficients, rows: &Rows, samples: &mut Samples) {
    let rows = rows.map(must_cast);
    let [first, below @ ..]: [[i64; 4]; 4] = must_cast(*block);
    let below = below.into_iter().fold(must_cast([0, 0, first[2], first[3]]), |below, coefficients| {
        _mm256_or_si256(below, must_cast(coefficients))
    });
    let between = if _mm256_testz_si256(below, below) == 1 {
        [_mm_slli_epi16::<{ BETWEEN_BITS as i32 }>(rows[0]); SIDE]
    } else {
        pass::<{ SHIFTS[0] as i32 }>(rows)
    };
    let columns = pass::<{ SHIFTS[1] as i32 }>(turned(between));

    // 8 columns, 8 bits each: halves are interleaved until rows are left.
    let bytes = |a, b| _mm_xor_si128(_mm_packs_epi16(a, b), _mm_set1_epi8(i8::MIN));
    let [a, b, c, d, e, f, g, h] = columns;
    let [ae, bf, cg, dh] = [bytes(a, e), bytes(b, f), bytes(c, g), bytes(d, h)];
    let [ab, cd] = [_mm_unpacklo_epi8(ae, bf), _mm_unpacklo_epi8(cg, dh)];
    let [ef, gh] = [_mm_unpackhi_epi8(ae, bf), _mm_unpackhi_epi8(cg, dh)];
    let left = [_mm_unpacklo_epi16(ab, cd), _mm_unpackhi_epi16(ab, cd)];
    let right = [_mm_unpacklo_epi16(ef, gh), _mm_unpackhi_epi16(ef, gh)];
    for ((to, left), right) in samples.as_chunks_mut::<4>().0.iter_mut().zip(left).zip(right) {
        *to = must_cast([_mm_unpacklo_epi32(left, right), _mm_unpackhi_epi32(left, right)]);
    }
}

/// The transform of each column, divided by 2^`SHIFT`.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const SHIFT: i32>([r0, r1, r2, r3, r4, r5, r6, r7]: Vectors) -> Vectors {
    let half = _mm256_set1_epi32(1 << (SHIFT - 1));
    let plus = _mm256_add_epi32(one(_mm_add_epi16(r0, r4)), half);
    let minus = _mm256_add_epi32(one(_mm_sub_epi16(r0, r4)), half);
    let r26 = zipped(r2, r6);
    let [outer, inner] = EVEN.map(|factors| sum(r26, factors));
    let even = [
        _mm256_add_epi32(plus, outer),
        _mm256_add_epi32(minus, inner),
        _mm256_sub_epi32(minus, inner),
        _mm256_sub_epi32(plus, outer),
    ];

    let sums = zipped(_mm_add_epi16(r7, r3), _mm_add_epi16(r5, r1));
    let (r71, r53) = (zipped(r7, r1), zipped(r5, r3));
    let [to_73, to_51] = SUMS.map(|factors| sum(sums, factors));
    let [fourth, first] = OUTER.map(|factors| sum(r71, factors));
    let [third, second] = INNER.map(|factors| sum(r53, factors));
    let odd = [
        _mm256_add_epi32(first, to_51),
        _mm256_add_epi32(second, to_73),
        _mm256_add_epi32(third, to_51),
        _mm256_add_epi32(fourth, to_73),
    ];

    let (mut upper, mut lower) = (even, even);
    for ((upper, lower), odd) in upper.iter_mut().zip(&mut lower).zip(odd) {
        *upper = _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(*upper, odd));
        *lower = _mm256_srai_epi32::<SHIFT>(_mm256_sub_epi32(*lower, odd));
    }
    let ([a, b, c, d], [h, g, f, e]) = (upper, lower);
    let [[r0, r1], [r2, r3]] = [packed(a, b), packed(c, d)];
    let [[r4, r5], [r6, r7]] = [packed(e, f), packed(g, h)];
    [r0, r1, r2, r3, r4, r5, r6, r7]
}

/// Values with the constants' fractional bits.
#[inline]
#[target_feature(enable = "avx2")]
fn one(values: __m128i) -> __m256i {
    _mm256_slli_epi32::<{ CONSTANT_BITS as i32 }>(_mm256_cvtepi16_epi32(values))
}

/// The values of two rows, in turn.
#[inline]
#[target_feature(enable = "avx2")]
fn zipped(a: __m128i, b: __m128i) -> __m256i {
    _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b))
}

/// The sums of two products.
#[inline]
#[target_feature(enable = "avx2")]
fn sum(pairs: __m256i, factors: [i16; 2]) -> __m256i {
    _mm256_madd_epi16(pairs, _mm256_set1_epi32(must_cast(factors)))
}

/// Two rows in 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn packed(a: __m256i, b: __m256i) -> [__m128i; 2] {
    // Each half of a vector by itself: its values come as a, b, a, b.
    let both = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b));
    [_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both)]
}

/// Columns as rows.
#[inline]
#[target_feature(enable = "avx2")]
fn turned(mut rows: Vectors) -> Vectors {
    // Halves are interleaved until columns are left.
    for _ in 0..3 {
        let [a, b, c, d, e, f, g, h] = rows;
        rows = [
            _mm_unpacklo_epi16(a, e),
            _mm_unpackhi_epi16(a, e),
            _mm_unpacklo_epi16(b, f),
            _mm_unpackhi_epi16(b, f),
            _mm_unpacklo_epi16(c, g),
            _mm_unpackhi_epi16(c, g),
            _mm_unpacklo_epi16(d, h),
            _mm_unpackhi_epi16(d, h),
        ];
    }
    rows
}
