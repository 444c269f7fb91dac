//! The steps for CPUs with AVX2, up to [`TAPS_MAX`] taps: sums of 16 bits, and tiles turned in
//! registers.
//!
//! From `plain` the compiler makes neither: it widens sums to 32 bits and turns tiles value by
//! value, which takes three times as long. Nothing is unsafe here: a function's type says which CPU
//! it needs, and vectors are read and written as arrays.

use std::arch::x86_64::{
    __m256i, _mm_packs_epi16, _mm_set1_epi8, _mm_xor_si128, _mm256_add_epi16, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_mulhrs_epi16, _mm256_permute4x64_epi64, _mm256_set_m128i,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_setzero_si256, _mm256_srai_epi16, _mm256_unpackhi_epi8,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_xor_si256,
};

use bytemuck::must_cast;

use super::plain::{CHUNK, Column, LINES, TILE, Tile, chunk};
use super::weights::Weights;

/// Taps whose rounding errors, of half a 256th each, add up to at most an eighth of a step.
pub(super) const TAPS_MAX: usize = 64;

/// As [`plain::down`](super::plain::down).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn down<const N: usize>(
    rgb: &[u8],
    pitch: usize,
    weights: [i16; N],
    tiles: &mut [Tile],
    line: usize,
) {
    let mut rows = [(&[][..], _mm256_setzero_si256()); N];
    for ((tap, row), weight) in rows.iter_mut().enumerate().zip(weights) {
        *row = (rgb.get(tap * pitch..).unwrap_or_default(), _mm256_set1_epi16(weight));
    }
    for (at, tiles) in tiles.as_chunks_mut::<{ CHUNK / TILE }>().0.iter_mut().enumerate() {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (row, weight) in rows {
            sums = add(sums, chunk(row, at), weight);
        }
        place(sums, tiles, line);
    }
}

/// As [`plain::down`](super::plain::down), for any number of taps up to [`TAPS_MAX`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn down_many(rgb: &[u8], pitch: usize, weights: &[i16], tiles: &mut [Tile], line: usize) {
    for (at, tiles) in tiles.as_chunks_mut::<{ CHUNK / TILE }>().0.iter_mut().enumerate() {
        let mut sums = [_mm256_setzero_si256(); 2];
        for (tap, &weight) in weights.iter().enumerate() {
            let row = rgb.get(tap * pitch..).unwrap_or_default();
            sums = add(sums, chunk(row, at), _mm256_set1_epi16(weight));
        }
        place(sums, tiles, line);
    }
}

/// Adds a chunk's weighted values to sums in the order of unpacking, which treats each half of a
/// vector by itself.
#[inline]
#[target_feature(enable = "avx2")]
fn add([low, high]: [__m256i; 2], chunk: [u8; CHUNK], weight: __m256i) -> [__m256i; 2] {
    let zero = _mm256_setzero_si256();
    // Minus 128, then times 256.
    let values = _mm256_xor_si256(must_cast(chunk), _mm256_set1_epi8(i8::MIN));
    [
        _mm256_add_epi16(low, _mm256_mulhrs_epi16(_mm256_unpacklo_epi8(zero, values), weight)),
        _mm256_add_epi16(high, _mm256_mulhrs_epi16(_mm256_unpackhi_epi8(zero, values), weight)),
    ]
}

/// Writes sums as line `line` of a chunk's tiles.
#[inline]
#[target_feature(enable = "avx2")]
fn place([low, high]: [__m256i; 2], tiles: &mut [Tile; CHUNK / TILE], line: usize) {
    let in_order = [
        _mm256_castsi256_si128(low),
        _mm256_castsi256_si128(high),
        _mm256_extracti128_si256::<1>(low),
        _mm256_extracti128_si256::<1>(high),
    ];
    for (tile, values) in tiles.iter_mut().zip(in_order) {
        if let Some(to) = tile.as_chunks_mut::<TILE>().0.get_mut(line) {
            *to = must_cast(values);
        }
    }
}

/// As [`plain::turn`](super::plain::turn).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn turn(tile: &mut Tile) {
    let (upper, lower) = tile.as_chunks::<TILE>().0.split_at(LINES / 2);
    let mut vectors = [_mm256_setzero_si256(); 8];
    for (vector, (&upper, &lower)) in vectors.iter_mut().zip(upper.iter().zip(lower)) {
        *vector = _mm256_set_m128i(must_cast(lower), must_cast(upper));
    }
    // In each half: 8 lines of 8 values. Their first half is interleaved with their second one
    // until columns are left.
    for _ in 0..3 {
        let [a, b, c, d, e, f, g, h] = vectors;
        vectors = [
            _mm256_unpacklo_epi16(a, e),
            _mm256_unpackhi_epi16(a, e),
            _mm256_unpacklo_epi16(b, f),
            _mm256_unpackhi_epi16(b, f),
            _mm256_unpacklo_epi16(c, g),
            _mm256_unpackhi_epi16(c, g),
            _mm256_unpacklo_epi16(d, h),
            _mm256_unpackhi_epi16(d, h),
        ];
    }
    for (column, vector) in tile.as_chunks_mut::<LINES>().0.iter_mut().zip(vectors) {
        *column = must_cast(vector);
    }
}

/// As [`plain::across`](super::plain::across), for weights of `N` taps.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn across<const N: usize>(
    pixels: &[[Column; 3]],
    weights: &Weights,
    done: &mut [[[u8; LINES]; 3]],
) {
    for (done, (start, weights)) in done.iter_mut().zip(weights.from(0)) {
        let pixels = pixels.get(start..).and_then(|pixels| pixels.first_chunk::<N>());
        if let (Some(pixels), Some(weights)) = (pixels, weights.first_chunk::<N>()) {
            *done = sum(pixels, weights);
        }
    }
}

/// As [`plain::across`](super::plain::across), for any number of taps up to [`TAPS_MAX`].
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn across_many(pixels: &[[Column; 3]], weights: &Weights, done: &mut [[[u8; LINES]; 3]]) {
    for (done, (start, weights)) in done.iter_mut().zip(weights.from(0)) {
        *done = sum(pixels.get(start..).unwrap_or_default(), weights);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum(pixels: &[[Column; 3]], weights: &[i16]) -> [[u8; LINES]; 3] {
    // Rounds to the nearest.
    let mut sums = [_mm256_set1_epi16(1 << 7); 3];
    for (pixel, &weight) in pixels.iter().zip(weights) {
        let weight = _mm256_set1_epi16(weight);
        for (sum, &column) in sums.iter_mut().zip(pixel) {
            *sum = _mm256_add_epi16(*sum, _mm256_mulhrs_epi16(must_cast(column), weight));
        }
    }
    let mut columns = [[0; LINES]; 3];
    for (column, sum) in columns.iter_mut().zip(sums) {
        let sum = _mm256_srai_epi16::<8>(sum);
        let bytes = _mm_packs_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
        *column = must_cast(_mm_xor_si128(bytes, _mm_set1_epi8(i8::MIN)));
    }
    columns
}

/// As [`plain::turn_back`](super::plain::turn_back).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn turn_back(columns: [&[u8; LINES]; LINES]) -> [[u8; LINES]; LINES] {
    let (left, right) = columns.split_at(LINES / 2);
    let mut vectors = [_mm256_setzero_si256(); 8];
    for (vector, (&&left, &&right)) in vectors.iter_mut().zip(left.iter().zip(right)) {
        *vector = _mm256_set_m128i(must_cast(right), must_cast(left));
    }
    // As in `turn`, until each half is 16 lines of 8 values.
    for _ in 0..3 {
        let [a, b, c, d, e, f, g, h] = vectors;
        vectors = [
            _mm256_unpacklo_epi8(a, e),
            _mm256_unpackhi_epi8(a, e),
            _mm256_unpacklo_epi8(b, f),
            _mm256_unpackhi_epi8(b, f),
            _mm256_unpacklo_epi8(c, g),
            _mm256_unpackhi_epi8(c, g),
            _mm256_unpacklo_epi8(d, h),
            _mm256_unpackhi_epi8(d, h),
        ];
    }
    // A vector is two lines: the left part of both, then the right one of both.
    must_cast::<[__m256i; 8], _>(vectors.map(|vector| _mm256_permute4x64_epi64::<0b11_01_10_00>(vector)))
}
