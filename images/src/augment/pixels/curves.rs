//! Operations that give each level of a colour a new one: solarize, posterize, invert,
//! autocontrast, equalize.

#![expect(clippy::indexing_slicing, reason = "a table has an entry for each value of a byte")]

use multiversion::multiversion;

use super::colours::planes;

const LEVELS: usize = 256;

/// `solarize`: levels from `threshold` on are inverted.
pub(super) fn solarize(row: &mut [u8], threshold: f32) {
    // The least byte that is not below the threshold; above 255 there is none.
    let from = threshold.ceil();
    if from <= 255.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
        invert_from(row, from as u8);
    }
}

/// timm's `solarize_add`: levels below 128 become lighter.
pub(super) fn solarize_add(row: &mut [u8], add: u8) {
    row.iter_mut().filter(|level| **level < 128).for_each(|level| *level = level.saturating_add(add));
}

/// `invert`.
pub(super) fn invert(row: &mut [u8]) {
    invert_from(row, 0);
}

/// `posterize`: keeps the highest `bits` of each level.
pub(super) fn posterize(row: &mut [u8], bits: u8) {
    let mask = u8::MAX.checked_shl(8 - u32::from(bits.min(8))).unwrap_or(0);
    row.iter_mut().for_each(|level| *level &= mask);
}

/// `autocontrast`: each colour's range becomes 0 to 255.
pub(super) fn autocontrast(row: &mut [u8]) {
    for plane in planes(row).into_iter().flatten() {
        let (least, most) = range(plane);
        if least < most {
            map(plane, &stretched(least, most));
        }
    }
}

/// `equalize`: each colour's levels become about equally frequent.
pub(super) fn equalize(row: &mut [u8]) {
    for plane in planes(row).into_iter().flatten() {
        if let Some(table) = equalized(&histogram(plane)) {
            map(plane, &table);
        }
    }
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn invert_from(row: &mut [u8], from: u8) {
    for level in row {
        *level = if *level < from { *level } else { 255 - *level };
    }
}

#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn range(plane: &[u8]) -> (u8, u8) {
    plane.iter().fold((255, 0), |(least, most), &level| (least.min(level), most.max(level)))
}

fn map(plane: &mut [u8], table: &[u8; LEVELS]) {
    for level in plane {
        *level = table[usize::from(*level)];
    }
}

/// Pillow's table for a range.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 255")]
fn stretched(least: u8, most: u8) -> [u8; LEVELS] {
    let scale = 255.0 / f64::from(most - least);
    let offset = -f64::from(least) * scale;
    std::array::from_fn(|level| (level as f64 * scale + offset).clamp(0.0, 255.0) as u8)
}

/// Number of pixels of each level. Four counts at a time, so that equal neighbours do not wait for
/// each other.
fn histogram(plane: &[u8]) -> [u32; LEVELS] {
    let mut counts = [[0_u32; LEVELS]; 4];
    let (quarters, rest) = plane.as_chunks::<4>();
    for levels in quarters {
        for (counts, &level) in counts.iter_mut().zip(levels) {
            counts[usize::from(level)] += 1;
        }
    }
    for &level in rest {
        counts[0][usize::from(level)] += 1;
    }
    std::array::from_fn(|level| counts.iter().map(|counts| counts[level]).sum())
}

/// Pillow's table for a histogram. `None` if it changes nothing.
fn equalized(histogram: &[u32; LEVELS]) -> Option<[u8; LEVELS]> {
    let last = *histogram.iter().rev().find(|&&count| count > 0)?;
    let step = (histogram.iter().sum::<u32>() - last) / 255;
    if step == 0 {
        return None;
    }
    let mut sum = step / 2;
    Some(std::array::from_fn(|level| {
        let equal = sum / step;
        sum += histogram[level];
        equal.min(255) as u8
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_and_bits_have_their_ends() {
        let mapped = |operation: &dyn Fn(&mut [u8])| {
            let mut row = vec![0, 127, 128, 255, 1, 254];
            operation(&mut row);
            row
        };
        assert_eq!(mapped(&|row| solarize(row, 128.0)), [0, 127, 127, 0, 1, 1]);
        assert_eq!(mapped(&|row| solarize(row, 127.5)), [0, 127, 127, 0, 1, 1]);
        assert_eq!(mapped(&|row| solarize(row, 256.0)), [0, 127, 128, 255, 1, 254]);
        assert_eq!(mapped(&|row| solarize(row, 0.0)), mapped(&invert));
        assert_eq!(mapped(&|row| posterize(row, 0)), [0; 6]);
        assert_eq!(mapped(&|row| posterize(row, 1)), [0, 0, 128, 128, 0, 128]);
        assert_eq!(mapped(&|row| posterize(row, 8)), [0, 127, 128, 255, 1, 254]);
    }

    #[test]
    fn a_constant_colour_stays() {
        for operation in [autocontrast, equalize] {
            let mut row = vec![9; 3 * 300];
            operation(&mut row);
            assert!(row.iter().all(|&level| level == 9));
            operation(&mut []);
        }
    }
}
