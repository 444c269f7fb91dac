//! Brightness, contrast, saturation and grey: blends of an image with a simpler one.

use multiversion::multiversion;

use crate::augment::planes::grey_of as grey;
use crate::scratch;

/// Pillow's blend of `from` and `to`, in its arithmetic. A factor above 1 goes beyond `to`.
#[inline]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a byte's values")]
pub(super) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (i32::from(from), i32::from(to));
    let blended = from as f32 + factor * (to - from) as f32;
    blended.clamp(0.0, 255.0) as i32 as u8
}

/// `adjust_brightness`: black is blended with the row.
pub(super) fn brightness(row: &mut [u8], factor: f32) {
    if factor != 1.0 {
        blend_with_level(row, 0, factor);
    }
}

/// `adjust_contrast`: the level of the mean grey is blended with the row.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of bytes")]
pub(super) fn contrast(row: &mut [u8], factor: f32) {
    let Some([red, green, blue]) = planes(row) else { return };
    if factor != 1.0 {
        let mean = grey_sum(red, green, blue) as f64 / red.len() as f64;
        blend_with_level(row, (mean + 0.5) as u8, factor);
    }
}

/// `adjust_saturation`: each pixel's grey is blended with its colour.
pub(super) fn saturation(row: &mut [u8], factor: f32) {
    let Some([red, green, blue]) = planes(row) else { return };
    if factor != 1.0 {
        blend_with_grey(red, green, blue, factor);
    }
}

/// `rgb_to_grayscale` with three channels.
pub(super) fn grayscale(row: &mut [u8]) {
    if let Some([red, green, blue]) = planes(row) {
        to_grey(red, green, blue);
    }
}

/// `permute_channels`: each plane becomes the one of the number in `from`.
pub(super) fn permute(row: &mut [u8], from: [u8; 3], spare: &mut Vec<u8>) {
    let before = scratch(spare, row.len());
    before.copy_from_slice(row);
    if let (Some(planes), Some(before)) = (planes(row), planes(before)) {
        for (plane, from) in planes.into_iter().zip(from) {
            if let Some(before) = before.get(usize::from(from)) {
                plane.copy_from_slice(before);
            }
        }
    }
}

/// The three planes of a row. `None` for no pixels.
pub(super) fn planes(row: &mut [u8]) -> Option<[&mut [u8]; 3]> {
    let plane = row.len() / 3;
    let (red, rest) = row.split_at_mut_checked(plane)?;
    let (green, blue) = rest.split_at_mut_checked(plane)?;
    (plane > 0).then_some([red, green, blue])
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn blend_with_level(row: &mut [u8], level: u8, factor: f32) {
    for value in row {
        *value = blend(level, *value, factor);
    }
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn blend_with_grey(red: &mut [u8], green: &mut [u8], blue: &mut [u8], factor: f32) {
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        let level = grey(*red, *green, *blue);
        *red = blend(level, *red, factor);
        *green = blend(level, *green, factor);
        *blue = blend(level, *blue, factor);
    }
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn to_grey(red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        let level = grey(*red, *green, *blue);
        (*red, *green, *blue) = (level, level, level);
    }
}

/// Pixels of which the greys' sum is in 32 bits.
const SUMMED: usize = 1 << 16;

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn grey_sum(red: &[u8], green: &[u8], blue: &[u8]) -> u64 {
    let pieces = red.chunks(SUMMED).zip(green.chunks(SUMMED)).zip(blue.chunks(SUMMED));
    pieces
        .map(|((red, green), blue)| {
            let pixels = red.iter().zip(green).zip(blue);
            u64::from(pixels.map(|((&r, &g), &b)| u32::from(grey(r, g, b))).sum::<u32>())
        })
        .sum()
}
