//! Pillow's `ImageFilter.GaussianBlur`: box blurs that come close to a Gaussian one, in its
//! arithmetic. SimCLR, DINO, MoCo v3 and DeiT use it.
//!
//! A box has a radius that need not be whole: its outermost pixels count in part (Gwosdek et al.,
//! Theoretical Foundations of Gaussian Convolution by Extended Box Filtering, SSVM 2011).

use multiversion::multiversion;

use crate::{Size, scratch};

/// Box blurs along each side.
const PASSES: u8 = 3;
/// Bits of a weight behind the point.
const PRECISION: u32 = 24;
/// Half of a level.
const HALF: u32 = 1 << (PRECISION - 1);

/// Blurs a row. `radius` is Pillow's: the standard deviation in pixels.
pub(super) fn blur(row: &mut [u8], size: Size, radius: f32, spare: &mut Vec<u8>) {
    let Some(filter) = BoxFilter::of(radius) else { return };
    let (width, height) = (size.width as usize, size.height as usize);
    let mut sums = vec![0; width];
    for plane in row.chunks_exact_mut((width * height).max(1)) {
        let other = scratch(spare, plane.len());
        for line in plane.chunks_exact_mut(width) {
            let Some(other) = other.get_mut(..width) else { return };
            for _ in 0..PASSES {
                other.copy_from_slice(line);
                along(other, line, &filter);
            }
        }
        for _ in 0..PASSES {
            other.copy_from_slice(plane);
            down(other, plane, &mut sums, &filter);
        }
    }
}

/// The mean of the pixels up to a distance, and of those one further in part.
struct BoxFilter {
    /// Distance of the outermost pixel that counts in full.
    reach: u32,
    /// Weight of each pixel within reach, and of the two beyond, in units of 2^-[`PRECISION`].
    within: u32,
    beyond: u32,
}

impl BoxFilter {
    /// The box whose blurs, one after the other, have this standard deviation; `None` for none.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as Pillow does, of numbers that are not negative"
    )]
    fn of(deviation: f32) -> Option<Self> {
        let variance = deviation * deviation / f32::from(PASSES);
        let length = (12.0 * f64::from(variance) + 1.0).sqrt() as f32;
        let whole = ((f64::from(length) - 1.0) / 2.0).floor() as f32;
        let part = (2.0 * whole + 1.0) * (whole * (whole + 1.0) - 3.0 * variance)
            / (6.0 * (variance - (whole + 1.0) * (whole + 1.0)));
        let radius = whole + part;
        if radius == 0.0 {
            return None;
        }
        let reach = radius as u32;
        let within = ((1 << PRECISION) as f32 / (radius * 2.0 + 1.0)) as u32;
        let beyond = ((1 << PRECISION) - (reach * 2 + 1) * within) / 2;
        Some(Self { reach, within, beyond })
    }

    /// The level of a pixel, from the sum of those within reach and of the two beyond.
    #[inline(always)]
    fn level(&self, within: u32, beyond: u32) -> u8 {
        ((within * self.within + beyond * self.beyond + HALF) >> PRECISION) as u8
    }
}

/// Blurs a line. Beyond its ends it is continued by its outermost pixels.
fn along(line: &[u8], to: &mut [u8], filter: &BoxFilter) {
    let Some(last) = line.len().checked_sub(1) else { return };
    let level = |at: usize| line.get(at.min(last)).copied().map_or(0, u32::from);
    let reach = filter.reach as usize;
    // Around the pixel before the first one.
    let mut sum: u32 = (0..reach).map(level).sum::<u32>() + level(0) * (filter.reach + 1);
    for (x, to) in to.iter_mut().enumerate() {
        let before = level(x.saturating_sub(reach + 1));
        sum = sum + level(x + reach) - before;
        *to = filter.level(sum, before + level(x + reach + 1));
    }
}

/// Blurs all columns of a plane. `sums` has a line's length.
fn down(plane: &[u8], to: &mut [u8], sums: &mut [u32], filter: &BoxFilter) {
    let (width, reach) = (sums.len(), filter.reach as usize);
    let Some(last) = (plane.len() / width.max(1)).checked_sub(1) else { return };
    let line = |at: usize| plane.chunks_exact(width).nth(at.min(last)).unwrap_or_default();
    for (sum, &level) in sums.iter_mut().zip(line(0)) {
        *sum = u32::from(level) * (filter.reach + 1);
    }
    for y in 0..reach {
        sums.iter_mut().zip(line(y)).for_each(|(sum, &level)| *sum += u32::from(level));
    }
    for (y, to) in to.chunks_exact_mut(width).enumerate() {
        let beside = [line(y.saturating_sub(reach + 1)), line(y + reach), line(y + reach + 1)];
        next_line(beside, sums, to, filter);
    }
}

/// Adds the line that comes within reach to the sums, takes the one that is beyond it off, and
/// makes a line. `before` is beyond reach above, `last` the last within it, `behind` beyond it
/// below.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn next_line([before, last, behind]: [&[u8]; 3], sums: &mut [u32], to: &mut [u8], filter: &BoxFilter) {
    let lines = before.iter().zip(last).zip(behind);
    for ((to, sum), ((&before, &last), &behind)) in to.iter_mut().zip(sums).zip(lines) {
        *sum = *sum + u32::from(last) - u32::from(before);
        *to = filter.level(*sum, u32::from(before) + u32::from(behind));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One box blur by its definition.
    fn expected(line: &[u8], filter: &BoxFilter) -> Vec<u8> {
        let reach = i64::from(filter.reach);
        let last = i64::try_from(line.len()).unwrap() - 1;
        let level = |at: i64| u32::from(line[usize::try_from(at.clamp(0, last)).unwrap()]);
        (0..=last)
            .map(|x| {
                let within = (x - reach..=x + reach).map(level).sum();
                filter.level(within, level(x - reach - 1) + level(x + reach + 1))
            })
            .collect()
    }

    proptest! {
        #[test]
        fn lines_and_columns_are_blurred_alike(
            [width, height] in [1_u32..9, 1_u32..9],
            levels: Vec<u8>,
            radius in prop_oneof![Just(0.0_f32), 0.01_f32..12.0],
        ) {
            let pixels = (width * height) as usize;
            let row: Vec<u8> = levels.into_iter().chain([255, 0, 7]).cycle().take(3 * pixels).collect();
            let mut found = row.clone();
            blur(&mut found, Size { width, height }, radius, &mut vec![1; 2]);
            let Some(filter) = BoxFilter::of(radius) else {
                prop_assert_eq!(found, row);
                return Ok(());
            };
            let blurred = |lines: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
                let thrice = |line: Vec<u8>| (0..PASSES).fold(line, |line, _| expected(&line, &filter));
                lines.into_iter().map(thrice).collect()
            };
            let turned = |lines: &[Vec<u8>]| -> Vec<Vec<u8>> {
                (0..lines[0].len()).map(|x| lines.iter().map(|line| line[x]).collect()).collect()
            };
            for (row, found) in row.chunks(pixels).zip(found.chunks(pixels)) {
                let lines = blurred(row.chunks(width as usize).map(<[u8]>::to_vec).collect());
                let columns = blurred(turned(&lines));
                prop_assert_eq!(turned(&columns).concat(), found);
            }
        }
    }

    #[test]
    fn one_colour_stays() {
        for radius in [0.3, 1.0, 2.0, 50.0, 1024.0] {
            for level in [0, 100, 255] {
                let mut row = vec![level; 3 * 20];
                blur(&mut row, Size { width: 5, height: 4 }, radius, &mut Vec::new());
                assert!(row.iter().all(|&found| found == level), "{radius}");
            }
        }
    }
}
