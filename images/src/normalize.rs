//! Bytes of images to floats in the same layout, in one pass: the arithmetic of the daemon's rows
//! of floats and of `shade_load.Normalize`.
//!
//! It is torchvision's, step by step: a byte times 1/255, less the mean, over the deviation, each
//! in single precision and rounded; then rounded once to the type, to the even one of two. So
//! results are equal to the last bit. Each byte and its float have a lane, with mean and deviation
//! of its colour, so that one loop does planes and interleaved colours, and becomes wide
//! instructions. A try, an image of 224 x 224: look-ups in a table of 256 floats take 46 us for any
//! type. With AVX2 this takes 43 to 48 us for float16, 25 to 28 for bfloat16 and 15 for float32,
//! with AVX-512 31, 20 and 15.
//!
//! Images are read and written through functions, piece by piece. No reference to their memory is
//! formed here, as it may be shared with another process or not yet initialised.

#![expect(clippy::indexing_slicing, reason = "a pixel has COLOURS, and a piece at most PIXELS")]

use multiversion::multiversion;
use shade_formats::Dtype;
use shade_job::Floats;

/// Colours of a pixel.
pub const COLOURS: usize = 3;
/// Lanes: a multiple of the colours, and of the values in a vector register.
const LANES: usize = 48;
/// Pixels converted at a time: their bytes and floats stay in the L1 cache.
const PIXELS: usize = 1024;
/// Bytes of the largest float.
const VALUE_BYTES_MAX: usize = 4;
/// What a byte is multiplied by: torchvision's `1 / 255`, as torch rounds it.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
const LEVEL: f32 = (1.0 / 255.0_f64) as f32;

/// Mean and deviation of the colour of each of [`LANES`] bytes, again and again.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    dtype: Dtype,
    mean: [f32; LANES],
    std: [f32; LANES],
}

impl Lanes {
    /// Those of bytes of one colour, 0 to 2; grey has the first one's.
    ///
    /// # Panics
    /// There is no such colour.
    #[must_use]
    pub fn plane(floats: &Floats, colour: usize) -> Self {
        let (mean, std) = (floats.mean[colour], floats.std[colour]);
        Self { dtype: floats.dtype, mean: [mean; LANES], std: [std; LANES] }
    }

    /// Those of interleaved colours, from red on.
    #[must_use]
    pub fn interleaved(floats: &Floats) -> Self {
        let of = |numbers: [f32; COLOURS]| std::array::from_fn(|lane| numbers[lane % COLOURS]);
        Self { dtype: floats.dtype, mean: of(floats.mean), std: of(floats.std) }
    }

    /// Fills `values`, little-endian and without gaps, with the floats of `bytes`.
    ///
    /// # Panics
    /// There is not just room for them.
    pub fn fill(&self, bytes: &[u8], values: &mut [u8]) {
        assert_eq!(values.len(), bytes.len() * self.dtype.bytes(), "as many floats as bytes");
        match self.dtype {
            Dtype::Uint8 => values.copy_from_slice(bytes),
            Dtype::Float16 => fill_float16(bytes, &self.mean, &self.std, values.as_chunks_mut().0),
            Dtype::Bfloat16 => fill_bfloat16(bytes, &self.mean, &self.std, values.as_chunks_mut().0),
            Dtype::Float32 => fill_float32(bytes, &self.mean, &self.std, values.as_chunks_mut().0),
        }
    }
}

/// Numbers of each lane.
type Numbers = [f32; LANES];

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn fill_float16(bytes: &[u8], mean: &Numbers, std: &Numbers, values: &mut [[u8; 2]]) {
    fill(bytes, mean, std, values, float16);
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn fill_bfloat16(bytes: &[u8], mean: &Numbers, std: &Numbers, values: &mut [[u8; 2]]) {
    fill(bytes, mean, std, values, bfloat16);
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn fill_float32(bytes: &[u8], mean: &Numbers, std: &Numbers, values: &mut [[u8; 4]]) {
    fill(bytes, mean, std, values, f32::to_le_bytes);
}

#[inline(always)]
fn fill<const B: usize>(
    bytes: &[u8],
    mean: &Numbers,
    std: &Numbers,
    values: &mut [[u8; B]],
    rounded: impl Fn(f32) -> [u8; B],
) {
    let float = |byte: u8, mean: f32, std: f32| (f32::from(byte) * LEVEL - mean) / std;
    let (bytes, last_bytes) = bytes.as_chunks::<LANES>();
    let (values, last_values) = values.as_chunks_mut::<LANES>();
    for (values, bytes) in values.iter_mut().zip(bytes) {
        // Two loops of which each becomes wide instructions of one width.
        let mut floats = [0.0; LANES];
        for (((to, &byte), &mean), &std) in floats.iter_mut().zip(bytes).zip(mean).zip(std) {
            *to = float(byte, mean, std);
        }
        for (value, number) in values.iter_mut().zip(floats) {
            *value = rounded(number);
        }
    }
    for (((value, &byte), &mean), &std) in last_values.iter_mut().zip(last_bytes).zip(mean).zip(std) {
        *value = rounded(float(byte, mean, std));
    }
}

/// The nearest bfloat16 of a number, the even one of two.
#[inline(always)]
fn bfloat16(number: f32) -> [u8; 2] {
    let bits = number.to_bits();
    // A carry into the exponent is right: the next power of two, or infinity.
    let half = 0x7FFF + ((bits >> 16) & 1);
    (((bits + half) >> 16) as u16).to_le_bytes()
}

/// The nearest float16 of a number, the even one of two.
///
/// The number plus a power of two 13 steps above it has so small a fraction left that the addition
/// rounds it to float16's.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a sign, 5 bits of exponent and 10 of fraction")]
fn float16(number: f32) -> [u8; 2] {
    const EXPONENT: u32 = 0x7F80_0000;
    const STEP: u32 = 1 << 23;
    /// The exponent of float16's smallest normal number, 2^-14. Below it steps stay as large.
    const LEAST: u32 = (127 - 14) * STEP;
    // What is 2^16 or more becomes infinity, as does what is rounded up to it.
    let size = number.abs().min(65_536.0);
    let exponent = (size.to_bits() & EXPONENT).max(LEAST);
    let above = exponent + 13 * STEP;
    let steps = (size + f32::from_bits(above)).to_bits() - above;
    // A normal number's leading bit is in the steps, and adds the one that its exponent lacks.
    let unsigned = ((exponent - LEAST) >> 13) + steps;
    let sign = (number.to_bits() >> 16) & 0x8000;
    ((sign | unsigned) as u16).to_le_bytes()
}

/// Converts `pixels` pixels of interleaved colours. `read` copies bytes of the source from an
/// offset on, `write` copies values into the target at an offset.
pub fn interleaved(
    pixels: usize,
    floats: &Floats,
    read: impl Fn(usize, &mut [u8]),
    mut write: impl FnMut(usize, &[u8]),
) {
    convert(&Lanes::interleaved(floats), 0, pixels * COLOURS, &read, &mut write);
}

/// Converts `images` images of `pixels` pixels with a plane for each colour. `read` and `write` are
/// as in [`interleaved`].
pub fn planes(
    images: usize,
    pixels: usize,
    floats: &Floats,
    read: impl Fn(usize, &mut [u8]),
    mut write: impl FnMut(usize, &[u8]),
) {
    let lanes = [0, 1, 2].map(|colour| Lanes::plane(floats, colour));
    for (plane, lanes) in (0..images).flat_map(|_| &lanes).enumerate() {
        convert(lanes, plane * pixels, pixels, &read, &mut write);
    }
}

/// Converts `count` values from value `first` on.
fn convert(
    lanes: &Lanes,
    first: usize,
    count: usize,
    read: &impl Fn(usize, &mut [u8]),
    write: &mut impl FnMut(usize, &[u8]),
) {
    let mut bytes = [0; PIXELS * COLOURS];
    let mut values = [0; PIXELS * COLOURS * VALUE_BYTES_MAX];
    let value_bytes = lanes.dtype.bytes();
    for at in (0..count).step_by(PIXELS * COLOURS) {
        let some = (PIXELS * COLOURS).min(count - at);
        let (bytes, values) = (&mut bytes[..some], &mut values[..some * value_bytes]);
        read(first + at, bytes);
        lanes.fill(bytes, values);
        write((first + at) * value_bytes, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOATS: Floats =
        Floats { dtype: Dtype::Float32, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

    #[test]
    fn both_layouts_stay() {
        for (images, pixels) in [(1, 1), (2, 7), (1, 3 * PIXELS), (3, 3 * PIXELS + 5)] {
            let count = COLOURS * pixels * images;
            let source: Vec<u8> = (0..=250).cycle().step_by(7).take(count).collect();
            let read = |at: usize, into: &mut [u8]| into.copy_from_slice(&source[at..at + into.len()]);
            let expected = |colours: &mut dyn Iterator<Item = usize>| -> Vec<u8> {
                let floats = source.iter().zip(colours).map(|(&byte, colour)| {
                    (f32::from(byte) * LEVEL - FLOATS.mean[colour]) / FLOATS.std[colour]
                });
                floats.flat_map(f32::to_le_bytes).collect()
            };
            let mut found = vec![0; 4 * count];
            let write = |at: usize, from: &[u8]| found[at..at + from.len()].copy_from_slice(from);
            interleaved(pixels * images, &FLOATS, read, write);
            assert_eq!(found, expected(&mut (0..3).cycle()));
            let mut found = vec![0; 4 * count];
            let write = |at: usize, from: &[u8]| found[at..at + from.len()].copy_from_slice(from);
            planes(images, pixels, &FLOATS, read, write);
            let by_plane = (0..3).cycle().flat_map(|colour| std::iter::repeat_n(colour, pixels));
            assert_eq!(found, expected(&mut { by_plane }), "{images} images of {pixels} pixels");
        }
    }

    /// The value of a float16, which single precision has.
    fn value_of(bits: u16) -> f32 {
        let (exponent, fraction) = (i32::from((bits >> 10) & 31), f32::from(bits & 1023));
        let size = match exponent {
            0 => fraction * 2_f32.powi(-24),
            31 => 65_536.0,
            _ => (1024.0 + fraction) * 2_f32.powi(exponent - 25),
        };
        if bits >> 15 == 1 { -size } else { size }
    }

    /// Each float16, the numbers right in the middle of two, and those beside the middle.
    #[test]
    fn float16_is_the_nearest_and_the_even_one_of_two() {
        for bits in 0..0x7C00_u16 {
            let (low, high) = (value_of(bits), value_of(bits + 1));
            let middle = f32::midpoint(low, high);
            let even = bits + (bits & 1);
            for (number, expected) in
                [(low, bits), (middle, even), (middle.next_down(), bits), (middle.next_up(), bits + 1)]
            {
                assert_eq!(u16::from_le_bytes(float16(number)), expected, "{number}");
                assert_eq!(u16::from_le_bytes(float16(-number)), expected | 0x8000, "-{number}");
            }
        }
        for number in [65_536.0, 1e9, f32::MAX, f32::INFINITY] {
            assert_eq!(u16::from_le_bytes(float16(number)), 0x7C00, "{number}");
        }
    }

    #[test]
    fn bfloat16_is_the_nearest_and_the_even_one_of_two() {
        for bits in 0..0x7F80_u32 {
            let middle = f32::from_bits((bits << 16) | 0x8000);
            for (number, expected) in [
                (f32::from_bits(bits << 16), bits),
                (middle, bits + (bits & 1)),
                (middle.next_down(), bits),
                (middle.next_up(), bits + 1),
            ] {
                assert_eq!(u32::from(u16::from_le_bytes(bfloat16(number))), expected, "{number}");
                assert_eq!(u32::from(u16::from_le_bytes(bfloat16(-number))), expected | 0x8000);
            }
        }
        assert_eq!(u16::from_le_bytes(bfloat16(f32::INFINITY)), 0x7F80);
    }

    #[test]
    fn the_last_values_are_as_the_others() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * LANES + 40).collect();
        for dtype in Dtype::ALL {
            let lanes = Lanes::interleaved(&Floats { dtype, ..FLOATS });
            let filled = |bytes: &[u8]| {
                let mut values = vec![7; bytes.len() * dtype.bytes()];
                lanes.fill(bytes, &mut values);
                values
            };
            let whole = filled(&bytes);
            for len in [0, 3, 45, LANES, LANES + 3, 2 * LANES + 30] {
                assert_eq!(filled(&bytes[..len]), whole[..len * dtype.bytes()]);
            }
        }
    }
}
