//! `RandomPerspective`: its corners, and the numbers that Pillow takes for them.

use crate::Size;
use crate::augment::randomness::Randomness;

/// A corner: x, then y.
type Corner = [i32; 2];

/// From a pixel of the result to its place in the source:
/// `x' = (a x + b y + c) / (g x + h y + 1)`, `y' = (d x + e y + f) / (g x + h y + 1)`.
pub(super) type Coefficients = [f64; 8];

/// The numbers for corners that are drawn for a row of this size. `None` if three of them lie on a
/// line, for which torchvision has an error or anything.
pub(super) fn drawn(distortion_scale: f64, row: Size, random: &mut Randomness) -> Option<Coefficients> {
    let [width, height] = [row.width, row.height];
    // The least distance of a corner from its place is 0, and the largest one this.
    let [most_x, most_y] = [width, height].map(|side| whole(distortion_scale * f64::from(side / 2)));
    let mut near = |most: u32| signed(random.up_to(most));
    let [first_x, first_y] = [near(most_x), near(most_y)];
    let [second_x, second_y] = [near(most_x), near(most_y)];
    let [third_x, third_y] = [near(most_x), near(most_y)];
    let [fourth_x, fourth_y] = [near(most_x), near(most_y)];
    let (right, bottom) = (signed(width - 1), signed(height - 1));
    let ends = [
        [first_x, first_y],
        [right - second_x, second_y],
        [right - third_x, bottom - third_y],
        [fourth_x, bottom - fourth_y],
    ];
    coefficients([[0, 0], [right, 0], [right, bottom], [0, bottom]], ends)
}

/// The numbers by which corners of the source come to `ends`. In single precision, in which
/// torchvision hands them to Pillow.
#[expect(clippy::cast_possible_truncation, reason = "as torchvision does")]
fn coefficients(source: [Corner; 4], ends: [Corner; 4]) -> Option<Coefficients> {
    if [source, ends].iter().any(has_three_on_a_line) {
        return None;
    }
    // Two equations for each corner: the factors of a to h, and what they make.
    let mut equations = [[0.0; 9]; 8];
    for (pair, (from, to)) in equations.chunks_exact_mut(2).zip(source.iter().zip(ends)) {
        let [x, y] = to.map(f64::from);
        for (nth, (equation, &place)) in pair.iter_mut().zip(from).enumerate() {
            let place = f64::from(place);
            let own = 3 * nth;
            for (factor, value) in equation.iter_mut().skip(own).zip([x, y, 1.0]) {
                *factor = value;
            }
            for (factor, value) in equation.iter_mut().skip(6).zip([-place * x, -place * y, place]) {
                *factor = value;
            }
        }
    }
    let found = solved(equations).map(|number| f64::from(number as f32));
    found.iter().all(|number| number.is_finite()).then_some(found)
}

/// The solution by Gauss's elimination with the largest pivots.
#[expect(clippy::indexing_slicing, reason = "eight equations of nine numbers")]
fn solved(mut equations: [[f64; 9]; 8]) -> [f64; 8] {
    let mut found = [0.0; 8];
    for column in 0..8 {
        let largest =
            |a: &usize, b: &usize| equations[*a][column].abs().total_cmp(&equations[*b][column].abs());
        let pivot = (column..8).max_by(largest).unwrap_or(column);
        equations.swap(column, pivot);
        let (above, below) = equations.split_at_mut(column + 1);
        let pivot = above[column];
        for equation in below {
            let share = equation[column] / pivot[column];
            for (factor, of_pivot) in equation.iter_mut().zip(pivot) {
                *factor -= share * of_pivot;
            }
        }
    }
    for column in (0..8).rev() {
        let equation = equations[column];
        let known: f64 = equation[column + 1..8].iter().zip(&found[column + 1..]).map(|(a, b)| a * b).sum();
        found[column] = (equation[8] - known) / equation[column];
    }
    found
}

fn has_three_on_a_line(corners: &[Corner; 4]) -> bool {
    (0..4).any(|left_out| {
        let mut three = corners.iter().enumerate().filter(|(nth, _)| *nth != left_out);
        let mut next = || three.next().map_or([0; 2], |(_, corner)| corner.map(i64::from));
        let [[ax, ay], [bx, by], [cx, cy]] = [next(), next(), next()];
        (bx - ax) * (cy - ay) == (by - ay) * (cx - ax)
    })
}

/// Below 2^15, as sides are.
fn signed(pixels: u32) -> i32 {
    i32::try_from(pixels).unwrap_or(i32::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "torchvision takes the whole part"
)]
fn whole(pixels: f64) -> u32 {
    pixels as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shade_formats::Draw;

    use super::*;

    proptest! {
        #[test]
        fn corners_of_the_source_come_to_their_ends(
            [width, height] in [2_i32..400, 2..400], corners in [[any::<u16>(), any::<u16>()]; 4],
        ) {
            let (right, bottom) = (width - 1, height - 1);
            let source = [[0, 0], [right, 0], [right, bottom], [0, bottom]];
            let ends = corners.map(|[x, y]| [i32::from(x) % width, i32::from(y) % height]);
            let Some([a, b, c, d, e, f, g, h]) = coefficients(source, ends) else {
                return Ok(());
            };
            for (from, to) in source.into_iter().zip(ends) {
                let ([x, y], [from_x, from_y]) = (to.map(f64::from), from.map(f64::from));
                let depth = g * x + h * y + 1.0;
                // The numbers have single precision.
                let parts = [a * x, b * y, c, d * x, e * y, f, g * x * from_x, h * y * from_x, g * x * from_y, h * y * from_y];
                let error = parts.iter().fold(1.0_f64, |most, part| most.max(part.abs())) * 1e-6;
                prop_assert!((a * x + b * y + c - from_x * depth).abs() <= error);
                prop_assert!((d * x + e * y + f - from_y * depth).abs() <= error);
            }
        }
    }

    #[test]
    fn torchvisions_numbers() {
        let source = [[0, 0], [223, 0], [223, 149], [0, 149]];
        let ends = [[17, 30], [201, 3], [180, 140], [40, 99]];
        let torchvisions: [f32; 8] = [
            2.562_403_2,
            -0.854_134_4,
            -17.936_823,
            0.237_002_13,
            1.615_125_7,
            -52.482_807,
            0.006_127_572,
            -0.004_652_268_7,
        ];
        assert_eq!(coefficients(source, ends), Some(torchvisions.map(f64::from)));
        let moved = [[3, 5], [226, 5], [226, 154], [3, 154]];
        assert_eq!(coefficients(source, moved).unwrap()[2], -3.0);
        assert_eq!(coefficients(source, [[17, 30], [17, 30], [180, 140], [40, 99]]), None);
        assert_eq!(coefficients(source, [[0, 0], [10, 10], [20, 20], [5, 90]]), None);
    }

    #[test]
    fn a_row_of_a_pixel_has_no_perspective() {
        for (width, height) in [(1, 1), (1, 9), (9, 1)] {
            let mut random = Randomness::of_pixels(Draw::at(1, 2, 3), 0);
            assert_eq!(drawn(1.0, Size { width, height }, &mut random), None);
        }
    }
}
