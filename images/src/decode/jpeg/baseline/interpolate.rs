//! Cb and Cr in the resolution of the image: libjpeg's "fancy" upsampling, bit for bit.

use std::ops::Range;

use multiversion::multiversion;

use super::planes::Plane;

/// A line of Cb or Cr; its buffers are kept.
#[derive(Default)]
pub(super) struct Line {
    /// The values to interpolate between, and one more at either end.
    values: Vec<u16>,
    line: Vec<u8>,
}

impl Line {
    /// The values of `columns` in line `y` of the image. Each sample of `plane` covers `per_colour`
    /// pixels across and down.
    pub(super) fn of<'a>(
        &'a mut self,
        plane: &'a Plane,
        per_colour: [u32; 2],
        y: usize,
        columns: Range<usize>,
    ) -> Option<&'a [u8]> {
        if per_colour == [1, 1] {
            return plane.row(y, columns);
        }
        let Self { values, line } = self;
        // The samples that the line shows, and one on either side where there is one.
        let (first, last) = (columns.start / 2, columns.end.checked_sub(1)? / 2);
        let end = plane.size.width as usize;
        let sources = first.saturating_sub(1)..(last + 2).min(end);
        let count = last + 1 - first;
        values.resize(count + 2, 0);
        line.resize(2 * count, 0);
        let from = usize::from(first == 0);
        let inner = values.get_mut(from..from + sources.len())?;
        let is_between_lines = per_colour == [2, 2];
        if is_between_lines {
            let near = y / 2;
            let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { near + 1 };
            sum(plane.row(near, sources.clone())?, plane.row(far, sources)?, inner);
        } else {
            for (value, &sample) in inner.iter_mut().zip(plane.row(y, sources)?) {
                *value = sample.into();
            }
        }
        // Beyond the image its edge is repeated.
        if first == 0 {
            *values.first_mut()? = *values.get(1)?;
        }
        if last + 1 == end {
            *values.last_mut()? = *values.get(count)?;
        }
        if is_between_lines {
            widen::<4>(values, line);
        } else {
            widen::<2>(values, line);
        }
        line.get(columns.start % 2..)?.get(..columns.len())
    }
}

/// Three times the nearer line plus the farther one: four times the interpolated line.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn sum(near: &[u8], far: &[u8], sums: &mut [u16]) {
    for ((sum, &near), &far) in sums.iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(near) + u16::from(far);
    }
}

/// Two pixels for each of `values`, which are `2^BITS / 4` times as large as samples: three
/// quarters of the value and a quarter of the one before or after it.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
#[expect(clippy::cast_possible_truncation, reason = "a mean of samples")]
fn widen<const BITS: u32>(values: &[u16], line: &mut [u8]) {
    // Halves are rounded up and down in turn.
    let [left, right] = if BITS == 2 { [1, 2] } else { [8, 7] };
    let (middle, behind) = (values.get(1..).unwrap_or_default(), values.get(2..).unwrap_or_default());
    for (((pair, &value), &before), &behind) in
        line.as_chunks_mut().0.iter_mut().zip(middle).zip(values).zip(behind)
    {
        *pair = [(before, left), (behind, right)]
            .map(|(beside, rounding)| ((3 * value + beside + rounding) >> BITS) as u8);
    }
}
