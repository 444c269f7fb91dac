//! Operations that move pixels: shear, translate and rotate as Pillow's `transform` and `rotate` do
//! them, and the erased part.

use super::colours::planes;
use super::operation::{Motion, Moved};
use super::perspective::Coefficients;
use crate::{Area, Size, scratch};
use multiversion::multiversion;
use shade_job::Interpolation;
use std::ops::AddAssign;

/// From a pixel of the result to its place in the source:
/// `x' = a x + b y + c`, `y' = d x + e y + f`.
type Matrix = [f64; 6];

/// Places that Pillow has in 16.16 fixed point are below this.
const FIXED_MAX: f64 = 32_768.0;

/// Moves the row's pixels, with a copy of the row in `spare`.
pub(super) fn shift(row: &mut [u8], size: Size, motion: Motion, moved: Moved, spare: &mut Vec<u8>) {
    let Some(places) = Places::of(motion, size) else { return };
    let source = scratch(spare, row.len());
    source.copy_from_slice(row);
    let Some(colours) = planes(source) else { return };
    let source = Planes { colours: colours.map(|colour| &*colour), size };
    match (moved.interpolation, &places) {
        (Interpolation::Bilinear, _) => source.line_by_line(&places, moved.fill, bilinear, row),
        (Interpolation::Bicubic, _) => source.line_by_line(&places, moved.fill, bicubic, row),
        (Interpolation::Nearest, Places::Perspective(_)) => {
            source.line_by_line(&places, moved.fill, nearest, row);
        }
        (Interpolation::Nearest, Places::Affine(matrix)) if matrix[1] == 0.0 && matrix[3] == 0.0 => {
            source.nearest_upright(matrix, moved.fill, row);
        }
        (Interpolation::Nearest, Places::Affine(matrix)) => source.nearest(matrix, moved.fill, row),
    }
}

/// Where the pixels of a result lie in the source.
enum Places {
    Affine(Matrix),
    Perspective(Coefficients),
}

impl Places {
    /// Those of a row of this size; `None` if all pixels stay.
    fn of(motion: Motion, size: Size) -> Option<Self> {
        let middle = [size.width, size.height].map(|side| f64::from(side) / 2.0);
        let matrix = match motion {
            Motion::ShearX(0.0) | Motion::ShearY(0.0) | Motion::Rotate(0.0) => return None,
            Motion::TranslateX(0) | Motion::TranslateY(0) => return None,
            Motion::ShearX(x) => sheared(x, 0.0),
            Motion::ShearY(y) => sheared(0.0, y),
            Motion::TranslateX(x) => [1.0, 0.0, -f64::from(x), 0.0, 1.0, 0.0],
            Motion::TranslateY(y) => [1.0, 0.0, 0.0, 0.0, 1.0, -f64::from(y)],
            Motion::Rotate(degrees) => rotated(degrees, middle),
            Motion::RotateAbout(center, degrees) => rotated(degrees, center),
            Motion::By(matrix) => matrix,
            Motion::Affine { degrees, translate, scale, shear, center } => {
                affine(degrees, translate, scale, shear, center.unwrap_or(middle))
            }
            Motion::Perspective(coefficients) => return Some(Self::Perspective(coefficients)),
        };
        Some(Self::Affine(matrix))
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
    affine(0.0, [0, 0], 1.0, [x, y].map(|tangent| tangent.atan().to_degrees()), [0.0, 0.0])
}

/// torchvision's inverse matrix of an affine motion about `middle`, in its order of operations.
pub(super) fn affine(
    degrees: f64,
    translate: [i32; 2],
    scale: f64,
    shear: [f64; 2],
    [middle_x, middle_y]: [f64; 2],
) -> Matrix {
    let (angle, [x, y]) = (degrees.to_radians(), shear.map(f64::to_radians));
    let a = (angle - y).cos() / y.cos();
    let b = -(angle - y).cos() * x.tan() / y.cos() - angle.sin();
    let c = (angle - y).sin() / y.cos();
    let d = -(angle - y).sin() * x.tan() / y.cos() + angle.cos();
    let [a, b, d, e] = [d, -b, -c, a].map(|number| number / scale);
    let [right, below] = translate.map(f64::from);
    let (x, y) = (-middle_x - right, -middle_y - below);
    [a, b, a * x + b * y + middle_x, d, e, d * x + e * y + middle_y]
}

/// Pillow's matrix for a rotation about a place.
fn rotated(degrees: f64, [x, y]: [f64; 2]) -> Matrix {
    let angle = -degrees.rem_euclid(360.0).to_radians();
    // To 15 decimals, so that a right angle is one.
    let rounded = |number: f64| (number * 1e15).round_ties_even() / 1e15;
    let (cos, sin) = (rounded(angle.cos()), rounded(angle.sin()));
    [cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y]
}

/// A walk over places in the source: x and y of the first one, and of the way from one to its
/// neighbour on the right and below.
struct Steps<T> {
    start: [T; 2],
    right: [T; 2],
    down: [T; 2],
}

/// The source of moved pixels.
struct Planes<'a> {
    colours: [&'a [u8]; 3],
    size: Size,
}

impl Planes<'_> {
    /// Takes the nearest pixel, as Pillow does: at places in 16.16 fixed point, or in double
    /// precision where a corner lies too far away for that.
    fn nearest(&self, matrix: &Matrix, fill: [u8; 3], to: &mut [u8]) {
        let [a, b, c, d, e, f] = *matrix;
        let [width, height] = [self.size.width, self.size.height].map(f64::from);
        let is_near = [[0.0, 0.0], [width, 0.0], [0.0, height], [width, height]].iter().all(|[x, y]| {
            let place = [x * a + y * b + c, x * d + y * e + f];
            place.iter().all(|place| place.abs() < FIXED_MAX)
        });
        let start = [c + b * 0.5 + a * 0.5, f + e * 0.5 + d * 0.5];
        if is_near {
            let steps = Steps { start: start.map(fixed), right: [a, d].map(fixed), down: [b, e].map(fixed) };
            self.walk(steps, |place| usize::try_from(place >> 16).ok(), fill, to);
        } else {
            self.walk(Steps { start, right: [a, d], down: [b, e] }, whole, fill, to);
        }
    }

    /// Takes the pixel of which `at` tells column and line, step by step.
    fn walk<T: Copy + AddAssign>(
        &self,
        Steps { start: [mut line_x, mut line_y], right, down }: Steps<T>,
        at: impl Fn(T) -> Option<usize>,
        fill: [u8; 3],
        to: &mut [u8],
    ) {
        let columns = self.size.width as usize;
        let Some([to_red, to_green, to_blue]) = planes(to) else { return };
        let lines = to_red.chunks_exact_mut(columns).zip(to_green.chunks_exact_mut(columns));
        for ((to_red, to_green), to_blue) in lines.zip(to_blue.chunks_exact_mut(columns)) {
            let (mut x, mut y) = (line_x, line_y);
            for ((to_red, to_green), to_blue) in to_red.iter_mut().zip(to_green).zip(to_blue) {
                let found = at(x).zip(at(y)).and_then(|(x, y)| self.pixel(x, y));
                [*to_red, *to_green, *to_blue] = found.unwrap_or(fill);
                x += right[0];
                y += right[1];
            }
            line_x += down[0];
            line_y += down[1];
        }
    }

    /// The pixel in this column and line; `None` outside.
    #[inline(always)]
    fn pixel(&self, column: usize, line: usize) -> Option<[u8; 3]> {
        let is_inside = column < self.size.width as usize && line < self.size.height as usize;
        let at = is_inside.then(|| line * self.size.width as usize + column)?;
        let [red, green, blue] = self.colours;
        Some([*red.get(at)?, *green.get(at)?, *blue.get(at)?])
    }

    /// As [`Planes::nearest`], where columns stay columns: Pillow then adds places in double
    /// precision.
    fn nearest_upright(&self, &[a, _, c, _, e, f]: &Matrix, fill: [u8; 3], to: &mut [u8]) {
        let along = |step: f64, start: f64, side: u32| {
            let places = std::iter::successors(Some(start + step * 0.5), move |place| Some(place + step));
            places.take(side as usize).map(move |place| whole(place).filter(|&at| at < side as usize))
        };
        let columns: Vec<Option<usize>> = along(a, c, self.size.width).collect();
        let Some(to) = planes(to) else { return };
        for ((to, from), fill) in to.into_iter().zip(self.colours).zip(fill) {
            let lines = to.chunks_exact_mut(columns.len()).zip(along(e, f, self.size.height));
            for (to, line) in lines {
                let from = line.and_then(|line| from.chunks_exact(columns.len()).nth(line));
                for (to, &column) in to.iter_mut().zip(&columns) {
                    *to = column.and_then(|column| from?.get(column).copied()).unwrap_or(fill);
                }
            }
        }
    }

    /// Makes each line by `make`, one of the three functions below.
    fn line_by_line(&self, places: &Places, fill: [u8; 3], make: Line, to: &mut [u8]) {
        let columns = self.size.width as usize;
        let Some([to_red, to_green, to_blue]) = planes(to) else { return };
        let lines = to_red.chunks_exact_mut(columns).zip(to_green.chunks_exact_mut(columns));
        for (y, ((red, green), blue)) in (0..).zip(lines.zip(to_blue.chunks_exact_mut(columns))) {
            make(self, places, y, fill, [red, green, blue]);
        }
    }
}

/// Makes a line of a result: number `y`, of pixels that have no place in the source in the colour
/// `fill`.
type Line = fn(&Planes<'_>, &Places, u32, [u8; 3], [&mut [u8]; 3]);

/// A [`Line`] that blends the four nearest pixels. At the edge the outermost ones count again.
/// Compiled for newer CPUs as well, as older ones have no instruction that rounds down.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn bilinear(source: &Planes<'_>, places: &Places, y: u32, fill: [u8; 3], to: [&mut [u8]; 3]) {
    line(source, places, y, fill, to, |x, y| bilinear_pixel(source, x - 0.5, y - 0.5));
}

/// A [`Line`] that blends the sixteen nearest pixels.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn bicubic(source: &Planes<'_>, places: &Places, y: u32, fill: [u8; 3], to: [&mut [u8]; 3]) {
    line(source, places, y, fill, to, |x, y| bicubic_pixel(source, x - 0.5, y - 0.5));
}

/// A [`Line`] of nearest pixels.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn nearest(source: &Planes<'_>, places: &Places, y: u32, fill: [u8; 3], to: [&mut [u8]; 3]) {
    line(source, places, y, fill, to, |x, y| source.pixel(whole(x)?, whole(y)?));
}

/// Line `y` of a result, of pixels that `pixel` makes of a place in the source.
#[inline(always)]
fn line(
    source: &Planes<'_>,
    places: &Places,
    y: u32,
    fill: [u8; 3],
    to: [&mut [u8]; 3],
    pixel: impl Fn(f64, f64) -> Option<[u8; 3]>,
) {
    let (width, height) = (f64::from(source.size.width), f64::from(source.size.height));
    let y = f64::from(y) + 0.5;
    let at = |x: f64, y: f64| {
        let is_inside = (0.0..width).contains(&x) && (0.0..height).contains(&y);
        (if is_inside { pixel(x, y) } else { None }).unwrap_or(fill)
    };
    match *places {
        Places::Affine([a, b, c, d, e, f]) => {
            each_pixel(to, |x| at(a * x + b * y + c, d * x + e * y + f));
        }
        Places::Perspective([a, b, c, d, e, f, g, h]) => each_pixel(to, |x| {
            let depth = g * x + h * y + 1.0;
            at((a * x + b * y + c) / depth, (d * x + e * y + f) / depth)
        }),
    }
}

/// Fills a line with what `made` makes of the middle of each column.
#[inline(always)]
fn each_pixel([red, green, blue]: [&mut [u8]; 3], made: impl Fn(f64) -> [u8; 3]) {
    for (column, ((red, green), blue)) in (0_u32..).zip(red.iter_mut().zip(green).zip(blue)) {
        [*red, *green, *blue] = made(f64::from(column) + 0.5);
    }
}

/// The colour at a place between pixels, of which at least one is in the image.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "inside the image; levels are cut as Pillow cuts them"
)]
fn bilinear_pixel(source: &Planes<'_>, x: f64, y: f64) -> Option<[u8; 3]> {
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

/// As [`bilinear_pixel`], by the cubic with a = -1 in Pillow's arithmetic.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "inside the image; levels are cut as Pillow cuts them"
)]
fn bicubic_pixel(source: &Planes<'_>, x: f64, y: f64) -> Option<[u8; 3]> {
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let Size { width, height } = source.size;
    let columns = [-1, 0, 1, 2].map(|beside| (left as i32 + beside).clamp(0, width as i32 - 1) as usize);
    let lines = [-1, 0, 1, 2].map(|beside| (top as i32 + beside).clamp(0, height as i32 - 1) as usize);
    let level = |plane: &[u8]| {
        let mut down = [0.0; 4];
        for (sum, line) in down.iter_mut().zip(lines) {
            let mut along = [0.0; 4];
            for (level, column) in along.iter_mut().zip(columns) {
                *level = f64::from(*plane.get(line * width as usize + column)?);
            }
            *sum = cubic(along, dx);
        }
        // Pillow cuts, and does not round.
        Some(cubic(down, dy).clamp(0.0, 255.0) as u8)
    };
    let [red, green, blue] = source.colours;
    Some([level(red)?, level(green)?, level(blue)?])
}

/// The cubic between the second and the third of four values, at `d` of the way.
#[inline(always)]
fn cubic([a, b, c, d]: [f64; 4], way: f64) -> f64 {
    let third = 2.0 * (a - b) + c - d;
    let fourth = -a + b - c + d;
    b + way * (-a + c + way * (third + way * fourth))
}

/// The pixel in which a place lies; `None` before the first one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not below 0, and it saturates")]
fn whole(place: f64) -> Option<usize> {
    (place >= 0.0).then_some(place as usize)
}

/// In 16.16 fixed point.
#[expect(clippy::cast_possible_truncation, reason = "far inside of 64 bits: see `FIXED_MAX`")]
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

    fn center() -> impl Strategy<Value = [f64; 2]> {
        [-9.0..9.0, -9.0..9.0]
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
                (center(), -400.0..400.0).prop_map(|(center, degrees)| Motion::RotateAbout(center, degrees)),
                (
                    -400.0..400.0,
                    [-8..8, -8..8],
                    0.1..9.0,
                    [-80.0..80.0, -80.0..80.0],
                    prop::option::of(center()),
                )
                    .prop_map(|(degrees, translate, scale, shear, center)| {
                        Motion::Affine { degrees, translate, scale, shear, center }
                    }),
            ],
        ) {
            let (size, pixels) = (Size { width, height }, (width * height) as usize);
            let row: Vec<u8> = levels.into_iter().chain([255, 0, 7]).cycle().take(3 * pixels).collect();
            let fill = [9, 100, 201];
            let mut found = row.clone();
            let moved = Moved { interpolation: Interpolation::Bilinear, fill };
            shift(&mut found, size, motion, moved, &mut vec![1; 2]);
            let matrix = match Places::of(motion, size) {
                Some(Places::Affine(matrix)) => matrix,
                Some(Places::Perspective(_)) => unreachable!("none is drawn"),
                None => [1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
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

    fn shifted(motion: Motion, interpolation: Interpolation) -> [u8; 6] {
        let mut row = [PLANE; 3].concat();
        shift(&mut row, SIZE, motion, Moved { interpolation, fill: [9; 3] }, &mut Vec::new());
        assert!(row.chunks(6).all(|plane| plane == &row[..6]), "each colour moves alike");
        row[..6].try_into().unwrap()
    }

    #[test]
    fn whole_pixels_move_alike_with_all_interpolations() {
        for how in [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic] {
            assert_eq!(shifted(Motion::TranslateX(1), how), [9, 1, 2, 9, 4, 5]);
            assert_eq!(shifted(Motion::TranslateY(-1), how), [4, 5, 6, 9, 9, 9]);
            assert_eq!(shifted(Motion::Rotate(180.0), how), [6, 5, 4, 3, 2, 1]);
            let right =
                Motion::Affine { degrees: 0.0, translate: [1, 0], scale: 1.0, shear: [0.0; 2], center: None };
            assert_eq!(shifted(right, how), [9, 1, 2, 9, 4, 5]);
            for nothing in [Motion::Rotate(0.0), Motion::Rotate(-360.0), Motion::ShearX(0.0)] {
                assert_eq!(shifted(nothing, how), PLANE);
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
