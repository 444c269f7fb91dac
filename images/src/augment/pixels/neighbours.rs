//! Operations in which a pixel depends on its neighbours: sharpness and Gaussian blur.

use multiversion::multiversion;

use super::colours::blend;
use crate::{Size, scratch};

/// Taps of a kernel from the middle outwards, at most.
const TAPS_MAX: usize = 128;
/// Weight of a tap that is left out: all of them together change no level by a twentieth.
const TAP_MIN: f32 = 1e-6;

/// `adjust_sharpness`: Pillow's `SMOOTH` of the row is blended with it. `spare` is for one plane.
pub(super) fn sharpness(row: &mut [u8], size: Size, factor: f32, spare: &mut Vec<u8>) {
    let (width, plane_bytes) = (size.width as usize, row.len() / 3);
    // The outer pixels are not smoothed, so nothing changes there.
    if factor == 1.0 || size.width < 3 || size.height < 3 {
        return;
    }
    let mut sums = vec![0; width];
    for plane in row.chunks_exact_mut(plane_bytes) {
        let source = scratch(spare, plane_bytes);
        source.copy_from_slice(plane);
        let source = &*source;
        let (Some(second), Some(third)) = (source.get(width..), source.get(2 * width..)) else { return };
        let lines = source.chunks_exact(width).zip(second.chunks_exact(width)).zip(third.chunks_exact(width));
        for (((above, line), below), to) in lines.zip(plane.chunks_exact_mut(width).skip(1)) {
            if let Some(to) = to.get_mut(1..width - 1) {
                sharpen([above, line, below], &mut sums, to, factor);
            }
        }
    }
}

/// One line without its ends. The weights are 1 / 13, in the middle 5 / 13. `sums` has a line's
/// length.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
#[expect(clippy::cast_possible_truncation, reason = "a mean of bytes")]
fn sharpen([above, line, below]: [&[u8]; 3], sums: &mut [u16], to: &mut [u8], factor: f32) {
    for (((sum, &above), &level), &below) in sums.iter_mut().zip(above).zip(line).zip(below) {
        *sum = u16::from(above) + u16::from(level) + u16::from(below);
    }
    let from = |first: usize| sums.get(first..).unwrap_or_default();
    let levels = line.get(1..).unwrap_or_default();
    for ((((to, &level), left), middle), right) in
        to.iter_mut().zip(levels).zip(from(0)).zip(from(1)).zip(from(2))
    {
        // A sum of levels over 13 is never a half, so that this rounds like any arithmetic.
        let smooth = (left + middle + right + 4 * u16::from(level) + 6) / 13;
        *to = blend(smooth as u8, level, factor);
    }
}

/// Buffers of the blur.
#[derive(Default)]
pub(super) struct Blur {
    /// A line with its reflections at both ends.
    line: Vec<f32>,
    /// A plane, blurred along its lines.
    plane: Vec<f32>,
    /// A line of sums.
    sums: Vec<f32>,
}

impl Blur {
    /// `gaussian_blur`: beyond its edge the row is continued by its reflection.
    pub(super) fn blur(&mut self, row: &mut [u8], size: Size, kernel: [u8; 2], sigma: f32) {
        let (width, height) = (size.width as usize, size.height as usize);
        let [across, down] = kernel.map(|length| Kernel::new(length, sigma));
        let (across, down) = (across.taps(), down.taps());
        for plane in row.chunks_exact_mut((width * height).max(1)) {
            self.plane.resize(width * height, 0.0);
            self.sums.resize(width, 0.0);
            let lines = self.plane.chunks_exact_mut(width);
            for (from, to) in plane.chunks_exact(width).zip(lines) {
                reflect(from, across.len() - 1, &mut self.line);
                blur_line(&self.line, across, to);
            }
            for (y, to) in plane.chunks_exact_mut(width).enumerate() {
                // A half, so that levels are rounded when they are cut.
                sum_down(&self.plane, y, down, 0.5, &mut self.sums);
                cut(&self.sums, to);
            }
        }
    }

    /// Blurs a field of numbers, by kernels of one length along lines and columns.
    pub(super) fn blur_field(&mut self, field: &mut [f32], size: Size, length: u8, sigma: [f32; 2]) {
        let width = size.width as usize;
        let [across, down] = sigma.map(|sigma| Kernel::new(length, sigma));
        let (across, down) = (across.taps(), down.taps());
        self.plane.resize(field.len(), 0.0);
        for (from, to) in field.chunks_exact(width).zip(self.plane.chunks_exact_mut(width)) {
            reflect(from, across.len() - 1, &mut self.line);
            blur_line(&self.line, across, to);
        }
        for (y, to) in field.chunks_exact_mut(width).enumerate() {
            sum_down(&self.plane, y, down, 0.0, to);
        }
    }

    /// Frees the buffers if a large row made them grow.
    pub(super) fn shrink(&mut self) {
        if size_of::<f32>() * self.plane.capacity() > crate::SCRATCH_KEEP_BYTES {
            *self = Self::default();
        }
    }
}

/// Half of a symmetric kernel.
struct Kernel {
    taps: [f32; TAPS_MAX],
    count: usize,
}

impl Kernel {
    /// The weights of torchvision's kernel of `length` taps, of which those far out are left out.
    fn new(length: u8, sigma: f32) -> Self {
        let half = usize::from(length / 2);
        let mut taps = [0.0; TAPS_MAX];
        for (distance, tap) in taps.iter_mut().enumerate().take(half + 1) {
            let share = distance as f32 / sigma;
            *tap = (-0.5 * share * share).exp();
        }
        let sum = taps.iter().sum::<f32>() * 2.0 - 1.0;
        taps.iter_mut().for_each(|tap| *tap /= sum);
        let count = taps.iter().take_while(|&&tap| tap > TAP_MIN).count().max(1);
        Self { taps, count }
    }

    /// The weights from the middle outwards, at least one.
    fn taps(&self) -> &[f32] {
        self.taps.get(..self.count).unwrap_or(&self.taps)
    }
}

/// `from` as floats, with `reach` pixels more at both ends: its reflection, the outermost pixel not
/// repeated.
fn reflect<T: Copy + Into<f32>>(from: &[T], reach: usize, to: &mut Vec<f32>) {
    to.clear();
    to.extend(from.iter().skip(1).take(reach).rev().map(|&level| level.into()));
    to.extend(from.iter().map(|&level| level.into()));
    to.extend(from.iter().rev().skip(1).take(reach).map(|&level| level.into()));
}

/// Blurs a line that has `taps.len() - 1` pixels more at both ends.
#[multiversion(targets("x86_64+avx2+fma", "x86_64+avx2", "x86_64+sse4.1"))]
fn blur_line(line: &[f32], taps: &[f32], to: &mut [f32]) {
    let middle = taps.len() - 1;
    to.fill(0.0);
    for (distance, &tap) in taps.iter().enumerate() {
        let before = line.get(middle - distance..).unwrap_or_default();
        let behind = line.get(middle + distance..).unwrap_or_default();
        let tap = if distance == 0 { tap / 2.0 } else { tap };
        for ((to, before), behind) in to.iter_mut().zip(before).zip(behind) {
            *to += tap * (before + behind);
        }
    }
}

/// Blurs line `y` of `plane` with those above and below it, and adds `start`. `sums` have a line's
/// length.
#[multiversion(targets("x86_64+avx2+fma", "x86_64+avx2", "x86_64+sse4.1"))]
fn sum_down(plane: &[f32], y: usize, taps: &[f32], start: f32, sums: &mut [f32]) {
    let width = sums.len();
    let last = (plane.len() / width.max(1)).saturating_sub(1);
    let line = |y: usize| plane.get(y * width..(y + 1) * width).unwrap_or_default();
    sums.fill(start);
    for (distance, &tap) in taps.iter().enumerate() {
        let above = line(y.abs_diff(distance));
        let below = line(last - last.abs_diff(y + distance).min(last));
        let tap = if distance == 0 { tap / 2.0 } else { tap };
        for ((sum, above), below) in sums.iter_mut().zip(above).zip(below) {
            *sum += tap * (above + below);
        }
    }
}

/// The whole parts of sums, as levels.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a byte's values")]
pub(super) fn cut(sums: &[f32], to: &mut [u8]) {
    for (to, &sum) in to.iter_mut().zip(sums) {
        *to = sum.clamp(0.0, 255.0) as i32 as u8;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sharpness_blends_with_a_mean_of_nine(
            [width, height] in [1_u32..20, 1_u32..5], levels: Vec<u8>, factor in 0.0_f32..4.0,
        ) {
            let (columns, pixels) = (width as usize, (width * height) as usize);
            let row: Vec<u8> = levels.into_iter().chain([255, 0, 7]).cycle().take(3 * pixels).collect();
            let mut found = row.clone();
            sharpness(&mut found, Size { width, height }, factor, &mut vec![9; 5]);
            for (at, (&level, &found)) in row.iter().zip(&found).enumerate() {
                let (x, y) = (at % columns, at % pixels / columns);
                let is_inner = (1..columns.max(1) - 1).contains(&x) && y > 0 && y + 1 < height as usize;
                let expected = if is_inner {
                    let lines = [at - columns, at, at + columns];
                    let around = lines.iter().flat_map(|&line| &row[line - 1..=line + 1]);
                    let sum = around.map(|&level| u32::from(level)).sum::<u32>() + 4 * u32::from(level);
                    let nearest = (2 * sum + 13) / 26;
                    blend(u8::try_from(nearest).unwrap(), level, factor)
                } else {
                    level
                };
                prop_assert_eq!(found, expected, "pixel {} of {} x {}", at, height, width);
            }
        }
    }

    #[test]
    fn a_line_is_continued_by_its_reflection() {
        let mut line = Vec::new();
        reflect(&[1_u8, 2, 3, 4], 3, &mut line);
        assert_eq!(line, [4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0]);
        reflect(&[7_u8], 0, &mut line);
        assert_eq!(line, [7.0]);
    }

    #[test]
    fn a_kernel_has_the_sum_1_and_is_cut_where_it_is_nothing() {
        for (length, sigma, count) in [(3, 1.0, 2), (23, 0.1, 1), (23, 2.0, 10), (255, 1000.0, 128)] {
            let kernel = Kernel::new(length, sigma);
            let sum = kernel.taps().iter().sum::<f32>() * 2.0 - kernel.taps()[0];
            assert!((sum - 1.0).abs() < 1e-4, "{length} {sigma}: {sum}");
            assert_eq!(kernel.count, count, "{length} {sigma}");
        }
    }

    #[test]
    fn a_constant_row_stays() {
        let size = Size { width: 5, height: 4 };
        let mut row = vec![131; 60];
        Blur::default().blur(&mut row, size, [9, 7], 1.5);
        sharpness(&mut row, size, 1.9, &mut Vec::new());
        assert!(row.iter().all(|&level| level == 131), "{row:?}");
    }
}
