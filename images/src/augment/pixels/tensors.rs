//! Operations as torchvision does them to a tensor of bytes, which AugMix and ElasticTransform make
//! of a PIL image: in single precision, with the fused steps of torch on a CPU that has them.

use multiversion::multiversion;
use shade_job::Interpolation;

use super::colours::planes;
use crate::{Size, scratch};

/// torch's weights of red, green and blue.
const GREY: [f32; 3] = [0.2989, 0.587, 0.114];

/// One operation, under the name of torchvision's function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OfTensor {
    /// `adjust_brightness`.
    Brightness(f64),
    /// `adjust_saturation`.
    Saturation(f64),
    /// `adjust_contrast`.
    Contrast(f64),
    /// `adjust_sharpness`.
    Sharpness(f64),
    /// `autocontrast`.
    Autocontrast,
    /// `affine` or `rotate`, by the matrix from a pixel of the result to its place in the source,
    /// both seen from the middle.
    Move([f64; 6], Sampled),
}

/// How pixels that move are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampled {
    /// From the nearest pixel or the four nearest ones: torchvision has no more for tensors.
    pub(super) interpolation: Interpolation,
    /// Colour of what lies outside; without one the outside is black, and edges are other ones than
    /// on black.
    pub(super) fill: Option<[u8; 3]>,
}

/// Does `operation` to the planes of a row.
pub(super) fn change(row: &mut [u8], size: Size, operation: OfTensor, spare: &mut Vec<u8>) {
    match operation {
        OfTensor::Brightness(factor) => brighten(row, single(factor)),
        OfTensor::Saturation(factor) => {
            if let Some([red, green, blue]) = planes(row) {
                saturate(red, green, blue, Blend::of(factor));
            }
        }
        OfTensor::Contrast(factor) => {
            if let Some([red, green, blue]) = planes(row) {
                let mean = single(grey_sum(red, green, blue) / red.len() as f64);
                blend_with(row, mean, Blend::of(factor));
            }
        }
        OfTensor::Sharpness(factor) => sharpen(row, size, Blend::of(factor), spare),
        OfTensor::Autocontrast => planes(row).into_iter().flatten().for_each(stretch),
        OfTensor::Move(matrix, sampled) => shift(row, size, matrix, sampled, spare),
    }
}

/// `affine`: the matrix is in double precision, and places in single precision.
#[multiversion(targets("x86_64+avx2+fma"))]
fn shift(row: &mut [u8], size: Size, matrix: [f64; 6], sampled: Sampled, spare: &mut Vec<u8>) {
    let [width, height] = [size.width, size.height].map(|side| side as f32);
    // To places from -1 to 1, as torch has them.
    let [a, b, c, d, e, f] = matrix.map(single);
    let [a, b, c] = [a, b, c].map(|number| number / (0.5 * width));
    let [d, e, f] = [d, e, f].map(|number| number / (0.5 * height));
    let (middle, center) = ((width - 1.0) / 2.0, (height - 1.0) / 2.0);
    sample(row, size, sampled, spare, |x, y| {
        let (x, y) = (x as f32 - middle, y as f32 - center);
        [x * a + y * b + c, x * d + y * e + f]
    });
}

/// The shares of an image and of another one in their blend.
#[derive(Clone, Copy)]
struct Blend {
    own: f32,
    other: f32,
}

impl Blend {
    fn of(factor: f64) -> Self {
        Self { own: single(factor), other: single(1.0 - factor) }
    }

    #[inline(always)]
    fn level(self, own: u8, other: f32) -> u8 {
        cut(other.mul_add(self.other, f32::from(own) * self.own))
    }
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn brighten(row: &mut [u8], factor: f32) {
    for level in row {
        *level = cut(f32::from(*level) * factor);
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn saturate(red: &mut [u8], green: &mut [u8], blue: &mut [u8], blend: Blend) {
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        let level = grey(*red, *green, *blue);
        [*red, *green, *blue] = [*red, *green, *blue].map(|own| blend.level(own, level));
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn blend_with(row: &mut [u8], level: f32, blend: Blend) {
    for own in row {
        *own = blend.level(*own, level);
    }
}

/// The sum of grey levels, which double precision holds to the last digit.
#[multiversion(targets("x86_64+avx2+fma"))]
fn grey_sum(red: &[u8], green: &[u8], blue: &[u8]) -> f64 {
    let pixels = red.iter().zip(green).zip(blue);
    pixels.map(|((&red, &green), &blue)| f64::from(grey(red, green, blue))).sum()
}

/// The whole part of a colour's grey level.
#[inline(always)]
fn grey(red: u8, green: u8, blue: u8) -> f32 {
    let [red, green, blue] = [red, green, blue].map(f32::from);
    blue.mul_add(GREY[2], green.mul_add(GREY[1], red * GREY[0])).floor()
}

/// The outer pixels stay.
#[multiversion(targets("x86_64+avx2+fma"))]
fn sharpen(row: &mut [u8], size: Size, blend: Blend, spare: &mut Vec<u8>) {
    let width = size.width as usize;
    if size.width < 3 || size.height < 3 {
        return;
    }
    let source = scratch(spare, row.len());
    source.copy_from_slice(row);
    let plane_bytes = width * size.height as usize;
    for (plane, source) in row.chunks_exact_mut(plane_bytes).zip(source.chunks_exact(plane_bytes)) {
        let line = |at: usize| source.get(at * width..(at + 1) * width).unwrap_or_default();
        for (y, to) in plane.chunks_exact_mut(width).enumerate().skip(1).take(size.height as usize - 2) {
            let windows = [line(y - 1), line(y), line(y + 1)].map(|line| line.windows(3));
            let [above, own, below] = windows;
            let inner = to.iter_mut().skip(1).zip(above.zip(own).zip(below));
            for (to, ((above, own), below)) in inner {
                let around = above.iter().chain(own).chain(below).map(|&level| u16::from(level));
                let sum = around.sum::<u16>() + 4 * u16::from(*to);
                // A sum over 13 is never a half.
                let difference = f32::from((sum + 6) / 13) - f32::from(*to);
                *to = cut(difference.mul_add(blend.other, f32::from(*to)));
            }
        }
    }
}

/// Makes a plane's range 0 to 255.
fn stretch(plane: &mut [u8]) {
    let (least, most) =
        plane.iter().fold((255, 0), |(least, most), &level: &u8| (level.min(least), level.max(most)));
    if least >= most {
        return;
    }
    let scale = f32::from(most - least) * single(1.0 / 255.0);
    for level in plane {
        *level = cut(f32::from(*level - least) / scale);
    }
}

/// Fills the row with what lies at the places that `place` makes of column and line: from -1 to 1
/// in the image.
#[inline(always)]
pub(super) fn sample(
    row: &mut [u8],
    size: Size,
    sampled: Sampled,
    spare: &mut Vec<u8>,
    place: impl Fn(u32, u32) -> [f32; 2],
) {
    let source = scratch(spare, row.len());
    source.copy_from_slice(row);
    let (Some(colours), Some([red, green, blue])) = (planes(source), planes(row)) else { return };
    let source = Source { colours: colours.map(|colour| &*colour), size };
    let [half_width, half_height] = [size.width, size.height].map(|side| side as f32 / 2.0);
    let is_nearest = sampled.interpolation == Interpolation::Nearest;
    let width = size.width as usize;
    let lines = red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width));
    for (y, ((red, green), blue)) in (0..).zip(lines.zip(blue.chunks_exact_mut(width))) {
        for (x, ((red, green), blue)) in (0..).zip(red.iter_mut().zip(green).zip(blue)) {
            let [from_x, from_y] = place(x, y);
            let from_x = (from_x + 1.0).mul_add(half_width, -0.5);
            let from_y = (from_y + 1.0).mul_add(half_height, -0.5);
            [*red, *green, *blue] = if is_nearest {
                source.nearest(from_x, from_y).or(sampled.fill).unwrap_or_default()
            } else {
                source.bilinear(from_x, from_y, sampled.fill)
            };
        }
    }
}

/// The source of moved pixels.
struct Source<'a> {
    colours: [&'a [u8]; 3],
    size: Size,
}

impl Source<'_> {
    #[inline(always)]
    fn nearest(&self, x: f32, y: f32) -> Option<[u8; 3]> {
        let at = self.at(x.round_ties_even(), y.round_ties_even())?;
        let [red, green, blue] = self.colours;
        Some([*red.get(at)?, *green.get(at)?, *blue.get(at)?])
    }

    /// What is outside counts as black, or as `fill`, by its share.
    #[inline(always)]
    fn bilinear(&self, x: f32, y: f32, fill: Option<[u8; 3]>) -> [u8; 3] {
        let (left, top) = (x.floor(), y.floor());
        let (right_share, bottom_share) = (x - left, y - top);
        let (left_share, top_share) = (1.0 - right_share, 1.0 - bottom_share);
        let taps = [
            (self.at(left, top), top_share * left_share),
            (self.at(left + 1.0, top), top_share * right_share),
            (self.at(left, top + 1.0), bottom_share * left_share),
            (self.at(left + 1.0, top + 1.0), bottom_share * right_share),
        ];
        let sum = |levels: [f32; 4]| {
            let mut terms = levels.into_iter().zip(taps).map(|(level, (_, share))| (level, share));
            let start = terms.next().map_or(0.0, |(level, share)| level * share);
            terms.fold(start, |sum, (level, share)| level.mul_add(share, sum))
        };
        let mut made = self.colours.map(|plane| {
            let level =
                |at: Option<usize>| at.and_then(|at| plane.get(at)).map_or(0.0, |&level| f32::from(level));
            sum(taps.map(|(at, _)| level(at)))
        });
        if let Some(fill) = fill {
            let inside = sum(taps.map(|(at, _)| if at.is_some() { 1.0 } else { 0.0 }));
            for (level, fill) in made.iter_mut().zip(fill.map(f32::from)) {
                *level = (*level - fill) * inside + fill;
            }
        }
        made.map(|level| cut(level.round_ties_even()))
    }

    /// The number of the pixel in this column and line; `None` outside.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside the image")]
    fn at(&self, column: f32, line: f32) -> Option<usize> {
        let Size { width, height } = self.size;
        let is_inside = (0.0..width as f32).contains(&column) && (0.0..height as f32).contains(&line);
        is_inside.then(|| line as usize * width as usize + column as usize)
    }
}

/// The whole part, from 0 to 255.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a byte's values")]
fn cut(level: f32) -> u8 {
    level.clamp(0.0, 255.0) as i32 as u8
}

#[expect(clippy::cast_possible_truncation, reason = "torch has it in single precision")]
fn single(number: f64) -> f32 {
    number as f32
}
