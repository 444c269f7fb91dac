//! The conversion for CPUs with AVX2, in 16 bits: the fractional parts of `plain`'s factors fit
//! into that. Nothing is unsafe here: a function's type says which CPU it needs, and vectors are
//! read and written as arrays.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_or_si128, _mm_shuffle_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_castsi256_si128, _mm256_cvtepu8_epi16, _mm256_madd_epi16, _mm256_mulhi_epi16, _mm256_packs_epi32,
    _mm256_packus_epi16, _mm256_permute4x64_epi64, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_srai_epi16,
    _mm256_srai_epi32, _mm256_sub_epi16, _mm256_unpackhi_epi16, _mm256_unpacklo_epi16,
};

use bytemuck::must_cast;

use super::plain::GROUP;

/// 1.402 - 1, 1.772 - 2, -0.34414 and 1 - 0.71414, in 65536ths.
const CR_TO_R: i16 = 26_345;
const CB_TO_B: i16 = -14_942;
const CB_TO_G: i16 = -22_554;
const CR_TO_G: i16 = 18_734;

/// For each 16 bytes of a group's pixels and each colour: the value for each byte, or 0x80 for
/// none.
const PLACES: [[[u8; GROUP]; 3]; 3] = places();

/// As [`to_rgb`](super::to_rgb).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn to_rgb(lines: [[u8; GROUP]; 3], rgb: &mut [u8; 3 * GROUP]) {
    let [y, cb, cr] = lines.map(|line| _mm256_cvtepu8_epi16(must_cast(line)));
    let middle = _mm256_set1_epi16(128);
    let (cb, cr) = (_mm256_sub_epi16(cb, middle), _mm256_sub_epi16(cr, middle));
    let twice = |value| _mm256_add_epi16(value, value);

    let red = _mm256_add_epi16(_mm256_add_epi16(y, cr), part(cr, CR_TO_R));
    let blue = _mm256_add_epi16(_mm256_add_epi16(y, twice(cb)), part(cb, CB_TO_B));
    let both = _mm256_set1_epi32(must_cast([CB_TO_G, CR_TO_G]));
    let sum = |pairs| {
        let sum = _mm256_add_epi32(_mm256_madd_epi16(pairs, both), _mm256_set1_epi32(1 << 15));
        _mm256_srai_epi32::<16>(sum)
    };
    let parts = _mm256_packs_epi32(sum(_mm256_unpacklo_epi16(cb, cr)), sum(_mm256_unpackhi_epi16(cb, cr)));
    let green = _mm256_add_epi16(_mm256_sub_epi16(y, cr), parts);

    *rgb = must_cast(interleaved(bytes(red), bytes(green), bytes(blue)));
}

/// `value * factor / 65536`, rounded to the nearest: the high half of the doubled product is twice
/// that, rounded down.
#[inline]
#[target_feature(enable = "avx2")]
fn part(value: __m256i, factor: i16) -> __m256i {
    let double = _mm256_mulhi_epi16(_mm256_add_epi16(value, value), _mm256_set1_epi16(factor));
    _mm256_srai_epi16::<1>(_mm256_add_epi16(double, _mm256_set1_epi16(1)))
}

/// Values clamped to 8 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes(values: __m256i) -> __m128i {
    let packed = _mm256_packus_epi16(values, values);
    _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(packed))
}

/// The bytes of three vectors in turn.
#[inline]
#[target_feature(enable = "avx2")]
fn interleaved(red: __m128i, green: __m128i, blue: __m128i) -> [__m128i; 3] {
    PLACES.map(|[of_red, of_green, of_blue]| {
        let red = _mm_shuffle_epi8(red, must_cast(of_red));
        let green = _mm_shuffle_epi8(green, must_cast(of_green));
        _mm_or_si128(_mm_or_si128(red, green), _mm_shuffle_epi8(blue, must_cast(of_blue)))
    })
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn places() -> [[[u8; GROUP]; 3]; 3] {
    let mut places = [[[0x80; GROUP]; 3]; 3];
    let (mut at, mut value) = (0, 0);
    while at < 3 * GROUP {
        places[at / GROUP][at % 3][at % GROUP] = value;
        at += 1;
        if at.is_multiple_of(3) {
            value += 1;
        }
    }
    places
}
