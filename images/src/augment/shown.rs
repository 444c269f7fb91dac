//! What a view shows of its image, for what follows it there: the levels of a mask, boxes, and
//! points.
//!
//! A mask takes the nearest pixel as torch's `interpolate` of that mode does, and boxes move as
//! torchvision's v2 moves them, in its order and in single precision. So both are what its
//! transforms make of its `Mask`, `BoundingBoxes` and `KeyPoints`, with `ClampBoundingBoxes` and
//! `SanitizeBoundingBoxes` last.

use shade_formats::Draw;
use shade_job::{BoxFormat, Framing, ImageSpec};

use super::crop_box::CropBox;
use super::randomness::Randomness;
use crate::{ImageFault, Levels, Size};

/// `SanitizeBoundingBoxes`: least sides of a box, and least area, in pixels of the row.
const BOX_SIDE_MIN: f32 = 1.0;
const BOX_AREA_MIN: f32 = 1.0;

/// A view of one image.
pub struct Shown {
    crop: CropBox,
    framing: Framing,
}

impl Shown {
    /// Each of `views` of an image of this size, as [`decode_views`](crate::RowDecoder) shows it.
    ///
    /// # Errors
    /// The image is too small.
    pub fn of_views(source: Size, views: &[ImageSpec], draw: Draw) -> Result<Vec<Self>, ImageFault> {
        let of_view = |(number, spec): (u8, &ImageSpec)| {
            let crop = CropBox::new(source, spec, &mut Randomness::new(draw, number))?;
            Ok(Self { crop, framing: spec.framing })
        };
        (0..).zip(views).map(of_view).collect()
    }

    /// The image's size, which its mask has, too.
    #[must_use]
    pub fn source(&self) -> Size {
        self.crop.source
    }

    /// Makes `to` the row of a mask of the image's size: a byte for each pixel, `fill` outside the
    /// image.
    pub fn mask(&self, mask: &Levels<'_>, fill: u8, to: &mut Vec<u8>) {
        let CropBox { source, scope, resized, corner, row, flips, upside_down, .. } = self.crop;
        assert!(mask.size == source, "a mask is as large as its image");
        let across = Along { scope: scope.size.width, resized: resized.width, first: corner.0, flips };
        let down =
            Along { scope: scope.size.height, resized: resized.height, first: corner.1, flips: upside_down };
        let columns: Vec<Option<usize>> = across.places(scope.left, row.width).collect();
        let (width, pitch) = (row.width as usize, source.width as usize);
        to.clear();
        to.resize(width * row.height as usize, fill);
        for (line, place) in to.chunks_exact_mut(width.max(1)).zip(down.places(scope.top, row.height)) {
            let Some(from) = place.and_then(|place| mask.levels.chunks_exact(pitch).nth(place)) else {
                continue;
            };
            for (level, place) in line.iter_mut().zip(&columns) {
                *level = place.and_then(|place| from.get(place).copied()).unwrap_or(fill);
            }
        }
    }

    /// A box of the image in the row, clamped to it; `None` if nothing is left of it.
    #[must_use]
    pub fn moved(&self, format: BoxFormat, found: [f32; 4]) -> Option<[f32; 4]> {
        let CropBox { row, flips, upside_down, .. } = self.crop;
        let mut moving = Moving { numbers: found, format };
        self.frame(&mut moving, Moving::clamp);
        if flips {
            moving.mirror(0, row.width);
        }
        if upside_down {
            moving.mirror(1, row.height);
        }
        moving.clamp(row);
        moving.is_left(row).then_some(moving.numbers)
    }

    /// A point of the image in the row, or outside of it: torchvision mirrors it by pixels, so that
    /// the first one becomes the last.
    #[must_use]
    pub fn point(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let CropBox { row, flips, upside_down, .. } = self.crop;
        let mut moving = Moving { numbers: [x, y, 0.0, 0.0], format: BoxFormat::Xywh };
        self.frame(&mut moving, |_, _| ());
        let [x, y, _, _] = moving.numbers;
        let mirrored = |place: f32, side: u32| -(place - (side - 1) as f32);
        [
            if flips { mirrored(x, row.width) } else { x },
            if upside_down { mirrored(y, row.height) } else { y },
        ]
    }

    /// Crops and resizes; `clamp` cuts off what lies outside an image of this size.
    fn frame(&self, moving: &mut Moving, clamp: impl Fn(&mut Moving, Size)) {
        let CropBox { scope, resized, corner, row, .. } = self.crop;
        match self.framing {
            Framing::RandomResized { .. } => {
                moving.shift(-i64::from(scope.left), -i64::from(scope.top));
                clamp(moving, scope.size);
                moving.resize(scope.size, resized);
            }
            Framing::Whole | Framing::Stretch => moving.resize(scope.size, resized),
            Framing::Cover | Framing::Center { .. } | Framing::Corner { .. } => {
                moving.resize(scope.size, resized);
                moving.shift(-corner.0, -corner.1);
                clamp(moving, row);
            }
            Framing::Random { padding, before, .. } => {
                moving.resize(scope.size, resized);
                // By `Pad`, and then by the crop itself.
                let mut around = 0;
                for padding in [before, padding - before].into_iter().filter(|padding| *padding > 0) {
                    around += 2 * padding;
                    moving.shift(padding.into(), padding.into());
                    clamp(moving, Size { width: resized.width + around, height: resized.height + around });
                }
                moving.shift(-corner.0 - i64::from(padding), -corner.1 - i64::from(padding));
                clamp(moving, row);
            }
        }
    }
}

/// One side of a view.
#[derive(Clone, Copy)]
struct Along {
    /// Pixels that are resized, and what they become.
    scope: u32,
    resized: u32,
    /// The row's first pixel in the resized scope.
    first: i64,
    flips: bool,
}

impl Along {
    /// The pixel of the image for each of a row of `count`, where the scope begins at `start`;
    /// `None` outside the image.
    fn places(self, start: u32, count: u32) -> impl Iterator<Item = Option<usize>> {
        (0..count).map(move |at| {
            let at = if self.flips { count - 1 - at } else { at };
            let inside = u32::try_from(self.first + i64::from(at)).ok().filter(|&at| at < self.resized)?;
            Some((start + self.nearest(inside)) as usize)
        })
    }

    /// The scope's pixel for one of the resized scope, in single precision as torch finds it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    fn nearest(self, at: u32) -> u32 {
        if self.scope == self.resized {
            return at;
        }
        let scale = self.scope as f32 / self.resized as f32;
        ((at as f32 * scale).floor() as u32).min(self.scope - 1)
    }
}

/// A box on its way, as torchvision's functions for bounding boxes move it.
struct Moving {
    numbers: [f32; 4],
    format: BoxFormat,
}

impl Moving {
    fn shift(&mut self, right: i64, down: i64) {
        let [x, y, x2, y2] = &mut self.numbers;
        let (right, down) = (right as f32, down as f32);
        (*x, *y) = (*x + right, *y + down);
        if self.format == BoxFormat::Xyxy {
            (*x2, *y2) = (*x2 + right, *y2 + down);
        }
    }

    fn resize(&mut self, from: Size, to: Size) {
        if from != to {
            let ratio = |from: u32, to: u32| single(f64::from(to) / f64::from(from));
            let [across, down] = [ratio(from.width, to.width), ratio(from.height, to.height)];
            let [a, b, c, d] = self.numbers;
            self.numbers = [a * across, b * down, c * across, d * down];
        }
    }

    /// Mirrors it along an axis: 0 from left to right, 1 from top to bottom.
    fn mirror(&mut self, axis: usize, side: u32) {
        let [x, y, x2, y2] = &mut self.numbers;
        let (near, far) = if axis == 0 { (x, x2) } else { (y, y2) };
        let side = side as f32;
        (*near, *far) = match self.format {
            BoxFormat::Xyxy => (-(*far - side), -(*near - side)),
            BoxFormat::Xywh => (-(*near + *far - side), *far),
            BoxFormat::Cxcywh => (-(*near - side), *far),
        };
    }

    /// Left, top, right and bottom.
    fn corners(&self) -> [f32; 4] {
        let [a, b, c, d] = self.numbers;
        match self.format {
            BoxFormat::Xyxy => self.numbers,
            BoxFormat::Xywh => [a, b, c + a, d + b],
            BoxFormat::Cxcywh => {
                let [left, top] = [a - c / 2.0, b - d / 2.0];
                [left, top, c + left, d + top]
            }
        }
    }

    /// Cuts off what lies outside an image of this size.
    fn clamp(&mut self, size: Size) {
        let [width, height] = [size.width as f32, size.height as f32];
        let [left, top, right, bottom] = self.corners();
        let [left, right] = [left, right].map(|x| x.clamp(0.0, width));
        let [top, bottom] = [top, bottom].map(|y| y.clamp(0.0, height));
        let [across, down] = [right - left, bottom - top];
        self.numbers = match self.format {
            BoxFormat::Xyxy => [left, top, right, bottom],
            BoxFormat::Xywh => [left, top, across, down],
            BoxFormat::Cxcywh => [(left * 2.0 + across) / 2.0, (top * 2.0 + down) / 2.0, across, down],
        };
    }

    /// Whether it is large enough, and inside: not so if one of its numbers is none.
    fn is_left(&self, size: Size) -> bool {
        let [width, height] = [size.width as f32, size.height as f32];
        let [left, top, right, bottom] = self.corners();
        let [across, down] = [right - left, bottom - top];
        let is_large = across >= BOX_SIDE_MIN && down >= BOX_SIDE_MIN && across * down >= BOX_AREA_MIN;
        let is_inside = |place: f32, side: f32| (0.0..=side).contains(&place);
        is_large
            && [left, right].iter().all(|&x| is_inside(x, width))
            && [top, bottom].iter().all(|&y| is_inside(y, height))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn single(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shade_formats::Geometry;
    use shade_formats::index::Media;

    use super::*;
    use crate::RowDecoder;

    fn framing() -> impl Strategy<Value = Framing> {
        prop_oneof![
            Just(Framing::Center { short: 0 }),
            (8..12_u32).prop_map(|padding| Framing::Random { short: 0, padding, before: 0 }),
        ]
    }

    proptest! {
        #[test]
        fn a_mask_has_the_place_of_its_image(
            width in 1..20_u32, height in 1..20_u32, row in (1..16_u32, 1..16_u32), framing in framing(), position: u32,
        ) {
            // Each pixel has another level, and none is 0.
            let source = Size { width, height };
            let levels: Vec<u8> = (1..=250).cycle().take((width * height) as usize).collect();
            let rgb = levels.iter().flat_map(|&level| [level; 3]);
            let image = [format!("P6 {width} {height} 255\n").as_bytes(), &rgb.collect::<Vec<_>>()].concat();
            let (flip, flip_down) = (0.5, 0.5);
            let spec = ImageSpec { framing, flip, flip_down, ..ImageSpec::cover(row.1, row.0) };
            let (draw, views) = (Draw::at(1, 2, position), [spec.clone(), spec]);
            let mut rows = [(); 2].map(|()| vec![0_u8; 3 * (row.0 * row.1) as usize]);
            let write = |view: usize, at: u64, piece: &[u8]| {
                let at = usize::try_from(at).unwrap();
                rows[view][at..at + piece.len()].copy_from_slice(piece);
                Ok::<(), ImageFault>(())
            };
            let mut geometry = [Geometry::default(); 2];
            let found = RowDecoder::default().decode_views(Media::Ppm, &image, &views, draw, &mut geometry, write);
            prop_assert_eq!(found, Ok(source));
            let mask = Levels { levels: &levels, size: source };
            let mut made = Vec::new();
            for (row, shown) in rows.iter().zip(Shown::of_views(source, &views, draw).unwrap()) {
                shown.mask(&mask, 0, &mut made);
                prop_assert_eq!(&made[..], &row[..made.len()]);
            }
        }

        #[test]
        fn boxes_stay_inside_whatever_they_were(
            format in 0..3_usize, found in prop::array::uniform4(prop::num::f32::ANY), position: u32,
        ) {
            let framing = Framing::RandomResized { scale: [0.1, 1.0], ratio: [0.5, 2.0] };
            let spec = ImageSpec { framing, flip: 0.5, flip_down: 0.5, ..ImageSpec::cover(9, 14) };
            let views = [spec];
            let [shown] = &Shown::of_views(Size { width: 30, height: 20 }, &views, Draw::at(0, 0, position)).unwrap()[..]
            else {
                panic!("one view");
            };
            let format = BoxFormat::ALL[format];
            if let Some(numbers) = shown.moved(format, found) {
                let [left, top, right, bottom] = Moving { numbers, format }.corners();
                prop_assert!(0.0 <= left && left + 1.0 <= right && right <= 14.0);
                prop_assert!(0.0 <= top && top + 1.0 <= bottom && bottom <= 9.0);
            }
        }
    }
}
