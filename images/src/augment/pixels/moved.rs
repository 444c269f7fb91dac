//! Operations that move pixels: shear, translate and rotate as Pillow's `transform` and `rotate` do
//! them, and the erased part.

use super::colours::planes;
use super::operation::{Motion, Moved};
use crate::{Area, Size, scratch};
use multiversion::multiversion;

/// From a pixel of the result to its place in the source:
/// `x' = a x + b y + c`, `y' = d x + e y + f`.
type Matrix = [f64; 6];

/// Moves the row's pixels, with a copy of the row in `spare`.
pub(super) fn shift(row: &mut [u8], size: Size, motion: Motion, moved: Moved, spare: &mut Vec<u8>) {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let matrix = match motion {
        Motion::ShearX(0.0) | Motion::ShearY(0.0) => return,
        Motion::ShearX(x) => sheared(x, 0.0),
        Motion::ShearY(y) => sheared(0.0, y),
        Motion::TranslateX(0) | Motion::TranslateY(0) => return,
        Motion::TranslateX(x) => [1.0, 0.0, -f64::from(x), 0.0, 1.0, 0.0],
        Motion::TranslateY(y) => [1.0, 0.0, 0.0, 0.0, 1.0, -f64::from(y)],
        Motion::Rotate(degrees) => match rotated(degrees, width, height) {
            Some(matrix) => matrix,
            None => return,
        },
    };
    let source = scratch(spare, row.len());
    source.copy_from_slice(row);
    let Some(colours) = planes(source) else { return };
    let source = Planes { colours: colours.map(|colour| &*colour), size };
    if moved.bilinear {
        source.bilinear(&matrix, moved.fill, row);
    } else {
        source.nearest(&matrix, moved.fill, row);
    }
}

/// `erase`: fills a part of the row with a colour.
pub(super) fn erase(row: &mut [u8], size: Size, area: Area, colour: [u8; 3]) {
    let (width, height) = (size.width as usize, size.height as usize);
    let (from, to) = (area.left as usize, (area.left + area.size.width) as usize);
    for (plane, level) in row.chunks_exact_mut((width * height).max(1)).zip(colour) {
        let lines = plane.chunks_exact_mut(width).skip(area.top as usize).take(area.size.height as usize);
        lines.filter_map(|line| line.get_mut(from..to)).for_each(|part| part.fill(level));
    }
}

/// torchvision's inverse matrix for shears about the corner, given as tangents.
fn sheared(x: f64, y: f64) -> Matrix {
    let angle = |tangent: f64| tangent.atan().to_degrees().to_radians();
    let (x, y) = (angle(x), angle(y));
    let a = (-y).cos() / y.cos();
    let b = -(-y).cos() * x.tan() / y.cos();
    let c = (-y).sin() / y.cos();
    let d = -(-y).sin() * x.tan() / y.cos() + 1.0;
    [d, -b, 0.0, -c, a, 0.0]
}

/// Pillow's matrix for a rotation about the middle; `None` for no rotation.
fn rotated(degrees: f64, width: f64, height: f64) -> Option<Matrix> {
    let degrees = degrees.rem_euclid(360.0);
    if degrees == 0.0 {
        return None;
    }
    let angle = -degrees.to_radians();
    // To 15 decimals, so that a right angle is one.
    let rounded = |number: f64| (number * 1e15).round_ties_even() / 1e15;
    let (cos, sin) = (rounded(angle.cos()), rounded(angle.sin()));
    let (x, y) = (width / 2.0, height / 2.0);
    Some([cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y])
}

/// The source of moved pixels.
struct Planes<'a> {
    colours: [&'a [u8]; 3],
    size: Size,
}

impl Planes<'_> {
    /// Takes the nearest pixel, at places in 16.16 fixed point, as Pillow does.
    fn nearest(&self, matrix: &Matrix, fill: [u8; 3], to: &mut [u8]) {
        let (width, height) = (i64::from(self.size.width), i64::from(self.size.height));
        let [a, b, c, d, e, f] = *matrix;
        let middle = |along: f64, across: f64, start: f64| fixed(start + along * 0.5 + across * 0.5);
        let (mut line_x, mut line_y) = (middle(a, b, c), middle(d, e, f));
        let [a, b, d, e] = [a, b, d, e].map(fixed);
        let [red, green, blue] = self.colours;
        let Some([to_red, to_green, to_blue]) = planes(to) else { return };
        let columns = self.size.width as usize;
        let lines = to_red.chunks_exact_mut(columns).zip(to_green.chunks_exact_mut(columns));
        for ((to_red, to_green), to_blue) in lines.zip(to_blue.chunks_exact_mut(columns)) {
            let (mut x, mut y) = (line_x, line_y);
            for ((to_red, to_green), to_blue) in to_red.iter_mut().zip(to_green).zip(to_blue) {
                let (column, line) = (x >> 16, y >> 16);
                let is_inside = (0..width).contains(&column) && (0..height).contains(&line);
                let at = usize::try_from(line * width + column).ok().filter(|_| is_inside);
                let found = at.and_then(|at| Some([*red.get(at)?, *green.get(at)?, *blue.get(at)?]));
                [*to_red, *to_green, *to_blue] = found.unwrap_or(fill);
                (x, y) = (x + a, y + d);
            }
            (line_x, line_y) = (line_x + b, line_y + e);
        }
    }

    /// Blends the four nearest pixels. At the edge the outermost ones count twice.
    fn bilinear(&self, matrix: &Matrix, fill: [u8; 3], to: &mut [u8]) {
        let columns = self.size.width as usize;
        let Some([to_red, to_green, to_blue]) = planes(to) else { return };
        let lines = to_red.chunks_exact_mut(columns).zip(to_green.chunks_exact_mut(columns));
        for (line, ((red, green), blue)) in (0..).zip(lines.zip(to_blue.chunks_exact_mut(columns))) {
            blended_line(self, matrix, line, fill, [red, green, blue]);
        }
    }
}

/// Line `line` of a result. Compiled for newer CPUs as well, as older ones have no instruction that
/// rounds down.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn blended_line(source: &Planes<'_>, matrix: &Matrix, line: u32, fill: [u8; 3], to: [&mut [u8]; 3]) {
    let (width, height) = (f64::from(source.size.width), f64::from(source.size.height));
    let [a, b, c, d, e, f] = *matrix;
    let y = f64::from(line) + 0.5;
    let [red, green, blue] = to;
    for (column, ((red, green), blue)) in (0_u32..).zip(red.iter_mut().zip(green).zip(blue)) {
        let x = f64::from(column) + 0.5;
        let (from_x, from_y) = (a * x + b * y + c, d * x + e * y + f);
        let is_inside = (0.0..width).contains(&from_x) && (0.0..height).contains(&from_y);
        let found = if is_inside { blended(source, from_x - 0.5, from_y - 0.5) } else { None };
        [*red, *green, *blue] = found.unwrap_or(fill);
    }
}

/// The colour at a place between pixels, of which at least one is in the image.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "inside the image; levels are cut as Pillow cuts them"
)]
fn blended(source: &Planes<'_>, x: f64, y: f64) -> Option<[u8; 3]> {
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let (left, top) = (left as i32, top as i32);
    let clipped = |at: i32, side: u32| (at.max(0) as u32).min(side - 1) as usize;
    let (first, second) = (clipped(left, source.size.width), clipped(left + 1, source.size.width));
    let pitch = source.size.width as usize;
    let above = clipped(top, source.size.height) * pitch;
    let below = clipped(top + 1, source.size.height) * pitch;
    let level = |plane: &[u8]| {
        let at = |place: usize| plane.get(place).map(|&level| f64::from(level));
        let along = |line: usize| {
            let (first, second) = (at(line + first)?, at(line + second)?);
            Some(first + (second - first) * dx)
        };
        let (above, below) = (along(above)?, along(below)?);
        Some((above + (below - above) * dy) as i32 as u8)
    };
    let [red, green, blue] = source.colours;
    Some([level(red)?, level(green)?, level(blue)?])
}

/// In 16.16 fixed point. Sides are below 2^15, so every place is in range.
#[expect(clippy::cast_possible_truncation, reason = "far inside of 64 bits")]
fn fixed(number: f64) -> i64 {
    (number * 65_536.0 + 0.5).floor() as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A level of Pillow's bilinear `transform`, in its words: columns and lines are clipped one by
    /// one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "inside the image")]
    fn bilinear_level(plane: &[u8], size: Size, matrix: &Matrix, x: u32, y: u32) -> Option<u8> {
        let (width, height) = (i64::from(size.width), i64::from(size.height));
        let (x, y) = (f64::from(x) + 0.5, f64::from(y) + 0.5);
        let [a, b, c, d, e, f] = *matrix;
        let (x, y) = (a * x + b * y + c, d * x + e * y + f);
        if x < 0.0 || x >= width as f64 || y < 0.0 || y >= height as f64 {
            return None;
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor() as i64, y.floor() as i64);
        let along = |line: i64| {
            let level = |column: i64| f64::from(plane[(line * width + column.clamp(0, width - 1)) as usize]);
            level(left) + (level(left + 1) - level(left)) * (x - left as f64)
        };
        let above = along(top.clamp(0, height - 1));
        let below = if (0..height).contains(&(top + 1)) { along(top + 1) } else { above };
        Some((above + (below - above) * (y - top as f64)) as u8)
    }

    proptest! {
        #[test]
        fn moved_pixels_are_blended_as_pillow_does(
            [width, height] in [1_u32..7, 1_u32..7],
            levels: Vec<u8>,
            motion in prop_oneof![
                (-1.0..1.0).prop_map(Motion::ShearX),
                (-1.0..1.0).prop_map(Motion::ShearY),
                (-8..8).prop_map(Motion::TranslateX),
                (-400.0..400.0).prop_map(Motion::Rotate),
            ],
        ) {
            let (size, pixels) = (Size { width, height }, (width * height) as usize);
            let row: Vec<u8> = levels.into_iter().chain([255, 0, 7]).cycle().take(3 * pixels).collect();
            let fill = [9, 100, 201];
            let mut found = row.clone();
            shift(&mut found, size, motion, Moved { bilinear: true, fill }, &mut vec![1; 2]);
            let matrix = match motion {
                Motion::ShearX(x) => sheared(x, 0.0),
                Motion::ShearY(y) => sheared(0.0, y),
                Motion::TranslateX(x) => [1.0, 0.0, -f64::from(x), 0.0, 1.0, 0.0],
                Motion::TranslateY(y) => [1.0, 0.0, 0.0, 0.0, 1.0, -f64::from(y)],
                Motion::Rotate(degrees) => rotated(degrees, f64::from(width), f64::from(height)).unwrap(),
            };
            for (plane, (found, fill)) in row.chunks(pixels).zip(found.chunks(pixels).zip(fill)) {
                for (at, &found) in (0..).zip(found) {
                    let expected = bilinear_level(plane, size, &matrix, at % width, at / width);
                    prop_assert_eq!(found, expected.unwrap_or(fill), "{:?} of {:?}, pixel {}", motion, size, at);
                }
            }
        }
    }

    const SIZE: Size = Size { width: 3, height: 2 };
    const PLANE: [u8; 6] = [1, 2, 3, 4, 5, 6];

    fn shifted(motion: Motion, bilinear: bool) -> [u8; 6] {
        let mut row = [PLANE; 3].concat();
        shift(&mut row, SIZE, motion, Moved { bilinear, fill: [9; 3] }, &mut Vec::new());
        assert!(row.chunks(6).all(|plane| plane == &row[..6]), "each colour moves alike");
        row[..6].try_into().unwrap()
    }

    #[test]
    fn whole_pixels_move_alike_with_both_interpolations() {
        for bilinear in [false, true] {
            assert_eq!(shifted(Motion::TranslateX(1), bilinear), [9, 1, 2, 9, 4, 5]);
            assert_eq!(shifted(Motion::TranslateY(-1), bilinear), [4, 5, 6, 9, 9, 9]);
            assert_eq!(shifted(Motion::Rotate(180.0), bilinear), [6, 5, 4, 3, 2, 1]);
            for nothing in [Motion::Rotate(0.0), Motion::Rotate(-360.0), Motion::ShearX(0.0)] {
                assert_eq!(shifted(nothing, bilinear), PLANE);
            }
        }
    }

    #[test]
    fn a_part_is_erased_in_its_colour() {
        let mut row = [PLANE; 3].concat();
        let area = Area { left: 1, top: 1, size: Size { width: 2, height: 1 } };
        erase(&mut row, SIZE, area, [7, 8, 9]);
        assert_eq!(row, [1, 2, 3, 4, 7, 7, 1, 2, 3, 4, 8, 8, 1, 2, 3, 4, 9, 9]);
    }
}
