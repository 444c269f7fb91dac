//! Operations that move pixels: shear, translate and rotate as Pillow's `transform` and `rotate` do
//! them, and the erased part.

use shade_formats::control::Moved;

use super::operation::Motion;
use crate::{Area, Size, scratch};

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
    let planes = Planes { bytes: source, size };
    if moved.bilinear {
        planes.bilinear(&matrix, moved.fill, row);
    } else {
        planes.nearest(&matrix, moved.fill, row);
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
    bytes: &'a [u8],
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
        let plane = self.bytes.len() / 3;
        let (red, rest) = self.bytes.split_at(plane);
        let (green, blue) = rest.split_at(plane);
        let (to_red, rest) = to.split_at_mut(plane);
        let (to_green, to_blue) = rest.split_at_mut(plane);
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
        let (width, height) = (f64::from(self.size.width), f64::from(self.size.height));
        let columns = self.size.width as usize;
        let plane = self.bytes.len() / 3;
        let [a, b, c, d, e, f] = *matrix;
        for line in 0..self.size.height {
            for column in 0..self.size.width {
                let (x, y) = (f64::from(column) + 0.5, f64::from(line) + 0.5);
                let (from_x, from_y) = (a * x + b * y + c, d * x + e * y + f);
                let is_inside = (0.0..width).contains(&from_x) && (0.0..height).contains(&from_y);
                let found = is_inside.then(|| self.blended(from_x - 0.5, from_y - 0.5)).flatten();
                let at = line as usize * columns + column as usize;
                for (colour, level) in found.unwrap_or(fill).into_iter().enumerate() {
                    if let Some(to) = to.get_mut(colour * plane + at) {
                        *to = level;
                    }
                }
            }
        }
    }

    /// The colour at a place between pixels, of which at least one is in the image.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "inside the image; levels are cut as Pillow cuts them"
    )]
    fn blended(&self, x: f64, y: f64) -> Option<[u8; 3]> {
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        let clipped = |at: f64, side: u32| (at.max(0.0) as usize).min(side as usize - 1);
        let columns = [left, left + 1.0].map(|x| clipped(x, self.size.width));
        let lines = [top, top + 1.0].map(|y| clipped(y, self.size.height));
        let plane = self.bytes.len() / 3;
        let mut colour = [0; 3];
        for (nth, level) in colour.iter_mut().enumerate() {
            let along = |line: usize| {
                let at = nth * plane + line * self.size.width as usize;
                let [first, second] = columns.map(|column| self.bytes.get(at + column).copied());
                let (first, second) = (f64::from(first?), f64::from(second?));
                Some(first + (second - first) * dx)
            };
            let (above, below) = (along(lines[0])?, along(lines[1])?);
            *level = (above + (below - above) * dy) as u8;
        }
        Some(colour)
    }
}

/// In 16.16 fixed point. Sides are below 2^15, so every place is in range.
#[expect(clippy::cast_possible_truncation, reason = "far inside of 64 bits")]
fn fixed(number: f64) -> i64 {
    (number * 65_536.0 + 0.5).floor() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

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
