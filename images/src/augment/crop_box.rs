//! The box of an image that becomes the row: torchvision's transforms as numbers, before anything
//! is decoded.
//!
//! ```text
//!   source                     the scope, resized                 the row
//!   +--------------------+     +-------------+
//!   |  +--------------+  |     |   +-----+   |  corner            +-----+
//!   |  |    scope     |  |  -> |   |     |   |                ->  |     |
//!   |  +--------------+  |     |   +-----+   |                    +-----+
//!   +--------------------+     +-------------+
//! ```
//!
//! The scope is the area that the resizing filter may read: all of the image for `Resize`, the part
//! itself for `RandomResizedCrop`. Only the row's box is resized. The result is the same, as the
//! filter's taps may reach beyond the box.

use shade_formats::{Geometry, MIRRORED, UPSIDE_DOWN};
use shade_job::{Filters, Framing, ImageSpec, Resampling};

use super::randomness::Randomness;
use crate::part::Span;
use crate::resample::{Order, reach};
use crate::size::scaled;
use crate::{Area, ImageFault, JPEG_REDUCTIONS, Part, Size};

/// Random parts that `RandomResizedCrop` tries before it takes the middle.
const TRIES: u32 = 10;
/// Largest side of a resized image: with its padding it has a place in 32 bits.
const RESIZED_SIDE_MAX: u32 = 1 << 31;
/// Least number of pixels of the reduced source for each of the result, along each side.
const FILTERED: u32 = 2;

/// Geometry of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CropBox {
    pub(super) source: Size,
    pub(super) scope: Area,
    /// Size of the resized scope: neither side is 0.
    pub(super) resized: Size,
    /// The row's first column and row in the resized scope; below 0 where black is added.
    pub(super) corner: (i64, i64),
    pub(super) row: Size,
    /// Whether the row is mirrored from left to right.
    pub(super) flips: bool,
    /// Whether the finished row is mirrored from top to bottom.
    pub(super) upside_down: bool,
    exact: bool,
    /// The filter that resizes it.
    pub(super) resampling: Resampling,
}

impl CropBox {
    /// The box that `spec` and `random` choose of `source`, which has no empty side.
    pub(super) fn new(source: Size, spec: &ImageSpec, random: &mut Randomness) -> Result<Self, ImageFault> {
        let row = Size { width: spec.width, height: spec.height };
        let whole = Area::whole(source);
        let mut crop = Self {
            source,
            scope: whole,
            resized: row,
            corner: (0, 0),
            row,
            flips: false,
            upside_down: false,
            // What comes before the geometry changes all of the image.
            exact: spec.exact || !spec.before.is_empty(),
            resampling: Resampling::default(),
        };
        match spec.framing {
            Framing::Whole if source != row => return Err(ImageFault::Unlike { image: source, row }),
            Framing::Whole | Framing::Stretch => {}
            Framing::Cover => {
                crop.resized = covering(source, row)?;
                crop.corner = middle(crop.resized, row);
            }
            Framing::Center { short } => {
                crop.resized = resized_short(source, short)?;
                crop.corner = middle(crop.resized, row);
            }
            Framing::Corner { short, right, bottom } => {
                crop.resized = resized_short(source, short)?;
                crop.corner = corner(crop.resized, row, right, bottom)?;
            }
            Framing::Random { short, padding, .. } => {
                crop.resized = resized_short(source, short)?;
                crop.corner = random_corner(crop.resized, row, padding, random)?;
            }
            Framing::RandomResized { scale, ratio } => crop.scope = random_part(source, scale, ratio, random),
        }
        // Behind the part, which is the same by one filter and by either.
        crop.resampling = match spec.resampling {
            Filters::One(filter) => filter,
            Filters::Either([one, _]) if random.share() < 0.5 => one,
            Filters::Either([_, other]) => other,
        };
        crop.flips = spec.flip > 0.0 && random.share() < spec.flip;
        crop.upside_down = spec.flip_down > 0.0 && random.share() < spec.flip_down;
        Ok(crop)
    }

    /// The part of the source that must be decoded.
    pub(super) fn part(&self) -> Part {
        if self.exact {
            return Part::whole(self.source);
        }
        let Some(visible) = self.visible() else { return Part::whole(self.source) };
        // A filter reaches as far as some pixels of the result are wide, and at least some pixels.
        let beside = |scope: u32, resized: u32| reach(self.resampling, scope.div_ceil(resized)) + 1;
        let along = |from: u32, len: u32, scope: u32, resized: u32, start: u32| {
            let beside = u64::from(beside(scope, resized));
            let (scope, resized) = (u64::from(scope), u64::from(resized));
            let first = (u64::from(from) * scope / resized).saturating_sub(beside);
            let end = (u64::from(from + len) * scope).div_ceil(resized) + beside;
            (start + to_u32(first), to_u32(end.min(scope) - first.min(scope)))
        };
        let Self { scope, resized, .. } = *self;
        let (left, width) =
            along(visible.left, visible.size.width, scope.size.width, resized.width, scope.left);
        let (top, height) =
            along(visible.top, visible.size.height, scope.size.height, resized.height, scope.top);
        Part { area: Area { left, top, size: Size { width, height } }, reduce_by: self.reduction() }
    }

    /// The largest divisor that leaves the source twice the result's pixels along each side, so
    /// that the resizer's filter, not the decoder's, shapes the result.
    ///
    /// Measured with 60 grainy photographs: the worst differs by 2.1 grey levels on average from
    /// PIL's result for the whole, at any size. With a reduced source just as large as the result
    /// it is 6.8. The cost, where the divisor is half of what it could be: `Resize(256)`, 374 or
    /// 512 and the middle 224 pixels of a JPEG of 2000 x 1500 take 1.12 to 1.17 times as long.
    fn reduction(&self) -> u32 {
        if self.resampling == Resampling::Nearest {
            // Each pixel is one of the source's.
            return 1;
        }
        let covers = |by: u32| {
            let by = u64::from(FILTERED * by);
            u64::from(self.scope.size.width) >= u64::from(self.resized.width) * by
                && u64::from(self.scope.size.height) >= u64::from(self.resized.height) * by
        };
        JPEG_REDUCTIONS.into_iter().find(|&by| covers(by)).unwrap_or(1)
    }

    /// The part of the resized scope that is visible in the row; `None` if nothing is.
    fn visible(&self) -> Option<Area> {
        let along = |corner: i64, row: u32, resized: u32| {
            let from = corner.clamp(0, resized.into());
            let to = (corner + i64::from(row)).clamp(from, resized.into());
            (to_u32(from.unsigned_abs()), to_u32((to - from).unsigned_abs()))
        };
        let (left, width) = along(self.corner.0, self.row.width, self.resized.width);
        let (top, height) = along(self.corner.1, self.row.height, self.resized.height);
        let size = Size { width, height };
        (size.pixels() > 0).then_some(Area { left, top, size })
    }

    /// What the row shows of the source, also outside of it, where it is black.
    pub(super) fn geometry(&self) -> Geometry {
        let Self { scope, resized, corner, row, .. } = *self;
        let along = |start: u32, corner: i64, row: u32, scope: u32, resized: u32| {
            let pixel = f64::from(scope) / f64::from(resized);
            (narrowed(f64::from(start) + corner as f64 * pixel), narrowed(f64::from(row) * pixel))
        };
        let (left, width) = along(scope.left, corner.0, row.width, scope.size.width, resized.width);
        let (top, height) = along(scope.top, corner.1, row.height, scope.size.height, resized.height);
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flipped = bit(self.flips, MIRRORED) | bit(self.upside_down, UPSIDE_DOWN);
        Geometry { crop: [left, top, width, height], flipped }
    }

    /// The image's place in the row; the rest is black.
    pub(super) fn place(&self) -> Option<Area> {
        let visible = self.visible()?;
        // `visible` has cut off the part outside.
        let inside = |corner: i64| to_u32((-corner).max(0).unsigned_abs());
        Some(Area { left: inside(self.corner.0), top: inside(self.corner.1), ..visible })
    }

    /// The visible image's place in the source, if it is not resized.
    pub(super) fn crop_only(&self) -> Option<Area> {
        let visible = self.visible()?;
        let (left, top) = (self.scope.left + visible.left, self.scope.top + visible.top);
        (self.resized == self.scope.size).then_some(Area { left, top, ..visible })
    }

    /// The order of the passes that resize it, also of a reduced source.
    pub(super) fn order(&self) -> Order {
        Order::of(self.scope.size, self.resized)
    }

    /// The pixels that the filter may read in the source reduced `by`, rounded outwards.
    pub(super) fn scope(&self, by: u32) -> Area {
        self.scope.divided(by.max(1))
    }

    /// The columns and lines of the row that are visible, and where they lie in the source reduced
    /// `by`.
    ///
    /// They are computed from the true size and then divided: a reduced JPEG's sides are rounded
    /// up, so the reduced size would put them off by a fraction of a pixel.
    pub(super) fn spans(&self, by: u32) -> Option<[Span; 2]> {
        let visible = self.visible()?;
        let Self { scope, resized, .. } = *self;
        let by = f64::from(by.max(1));
        let along = |start: u32, scope: u32, resized: u32| {
            (f64::from(start) / by, f64::from(scope) / (f64::from(resized) * by))
        };
        let (left, width) = along(scope.left, scope.size.width, resized.width);
        let (top, height) = along(scope.top, scope.size.height, resized.height);
        Some([
            Span { start: left, scale: width, first: visible.left, count: visible.size.width },
            Span { start: top, scale: height, first: visible.top, count: visible.size.height },
        ])
    }
}

/// `source` resized so that it just covers `row`: one side is the row's, the other is rounded down.
fn covering(source: Size, row: Size) -> Result<Size, ImageFault> {
    if u64::from(source.width) * u64::from(row.height) <= u64::from(source.height) * u64::from(row.width) {
        enlarged(source, row.width, source.width)
    } else {
        enlarged(source, row.height, source.height)
    }
}

/// `source` with a shorter side of `short`, as by torchvision's `Resize`; 0 leaves it as it is.
fn resized_short(source: Size, short: u32) -> Result<Size, ImageFault> {
    if short == 0 { Ok(source) } else { enlarged(source, short, source.width.min(source.height)) }
}

/// [`scaled`], of a size with room for padding. An image of one row and millions of columns has
/// none.
fn enlarged(source: Size, to: u32, from: u32) -> Result<Size, ImageFault> {
    let resized = scaled(source, to, from);
    if resized.width.max(resized.height) <= RESIZED_SIDE_MAX {
        return Ok(resized);
    }
    let text = format!("resized to a side of {to}, the other one has more than {RESIZED_SIDE_MAX}");
    Err(ImageFault::Transform { image: source, text })
}

/// The corner of `row` in the middle of `resized`, as in torchvision's `CenterCrop`: an image
/// smaller than the row is padded on the left and above by half of the difference, rounded down.
fn middle(resized: Size, row: Size) -> (i64, i64) {
    let along = |resized: u32, row: u32| match resized.checked_sub(row) {
        Some(spare) => i64::from(half_to_even(spare)),
        None => -i64::from((row - resized) / 2),
    };
    (along(resized.width, row.width), along(resized.height, row.height))
}

/// A corner of torchvision's `FiveCrop`, which pads nothing.
fn corner(resized: Size, row: Size, right: bool, bottom: bool) -> Result<(i64, i64), ImageFault> {
    let along = |resized: u32, row: u32, is_last: bool| {
        resized.checked_sub(row).map(|spare| if is_last { i64::from(spare) } else { 0 })
    };
    let place = along(resized.width, row.width, right).zip(along(resized.height, row.height, bottom));
    place.ok_or(ImageFault::Small { image: resized, crop: row, padding: 0 })
}

/// torchvision's `RandomCrop`, padded on all sides.
fn random_corner(
    resized: Size,
    row: Size,
    padding: u32,
    random: &mut Randomness,
) -> Result<(i64, i64), ImageFault> {
    let mut along = |resized: u32, row: u32| {
        let spare = (resized + 2 * padding).checked_sub(row)?;
        Some(i64::from(random.up_to(spare)) - i64::from(padding))
    };
    let top = along(resized.height, row.height);
    let left = along(resized.width, row.width);
    left.zip(top).ok_or(ImageFault::Small { image: resized, crop: row, padding })
}

/// torchvision's `RandomResizedCrop.get_params`.
fn random_part(source: Size, scale: [f64; 2], ratio: [f64; 2], random: &mut Randomness) -> Area {
    let pixels = source.pixels() as f64;
    for _ in 0..TRIES {
        let area = pixels * random.between(scale);
        let ratio = random.between(ratio.map(f64::ln)).exp();
        let size = Size { width: rounded((area * ratio).sqrt()), height: rounded((area / ratio).sqrt()) };
        if (1..=source.width).contains(&size.width) && (1..=source.height).contains(&size.height) {
            let top = random.up_to(source.height - size.height);
            return Area { left: random.up_to(source.width - size.width), top, size };
        }
    }
    let [narrowest, widest] = ratio;
    let (width, height) = (f64::from(source.width), f64::from(source.height));
    let size = if width / height < narrowest {
        Size { width: source.width, height: rounded(width / narrowest).clamp(1, source.height) }
    } else if width / height > widest {
        Size { width: rounded(height * widest).clamp(1, source.width), height: source.height }
    } else {
        source
    };
    Area { left: (source.width - size.width) / 2, top: (source.height - size.height) / 2, size }
}

/// To the nearest integer, ties to even, as Python's `round`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn rounded(value: f64) -> u32 {
    value.round_ties_even() as u32
}

/// Half of `span`, to the nearest integer, ties to even, as `CenterCrop` does by Python's `round`.
fn half_to_even(span: u32) -> u32 {
    let half = span / 2;
    if span % 2 == 1 { half + half % 2 } else { half }
}

/// The nearest single precision: whole pixels up to 2^24 are exact.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn narrowed(value: f64) -> f32 {
    value as f32
}

fn to_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shade_formats::Draw;

    const RESIZED_CROP: Framing = Framing::RandomResized { scale: [0.08, 1.0], ratio: [0.75, 4.0 / 3.0] };

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    fn crop_box(source: Size, row: Size, framing: Framing, position: u32) -> CropBox {
        let spec = ImageSpec { framing, ..ImageSpec::cover(row.height, row.width) };
        CropBox::new(source, &spec, &mut Randomness::new(Draw::at(1, 0, position), 0)).unwrap()
    }

    fn cover(source: Size, row: Size) -> CropBox {
        crop_box(source, row, Framing::Cover, 0)
    }

    #[test]
    fn the_short_side_is_resized_and_the_middle_cropped() {
        let landscape = cover(size(500, 375), size(224, 224));
        assert_eq!((landscape.resized, landscape.corner), (size(298, 224), (37, 0))); // int(224 * 500 / 375)
        let portrait = cover(size(375, 500), size(224, 224));
        assert_eq!((portrait.resized, portrait.corner), (size(224, 298), (0, 37)));
        let evaluation = crop_box(size(500, 375), size(224, 224), Framing::Center { short: 256 }, 0);
        assert_eq!((evaluation.resized, evaluation.corner), (size(341, 256), (58, 16)));
    }

    #[test]
    fn an_image_that_is_a_line_of_millions_of_pixels_is_refused() {
        let (line, row) = (size(1, 20_000_000), size(224, 224));
        let framings = [
            Framing::Cover,
            Framing::Center { short: 224 },
            Framing::Random { short: 224, padding: 4, before: 0 },
        ];
        for framing in framings {
            let spec = ImageSpec { framing, ..ImageSpec::cover(224, 224) };
            let found = CropBox::new(line, &spec, &mut Randomness::new(Draw::default(), 0));
            assert!(matches!(found, Err(ImageFault::Transform { image, .. }) if image == line), "{found:?}");
        }
        assert_eq!(cover(size(1, 2_000_000), row).resized, size(224, 448_000_000));
    }

    #[test]
    fn corners_of_five_crops_pad_nothing() {
        let at = |right, bottom| {
            crop_box(size(50, 40), size(9, 8), Framing::Corner { short: 20, right, bottom }, 0).corner
        };
        assert_eq!([at(false, false), at(true, false), at(false, true)], [(0, 0), (16, 0), (0, 12)]);
        assert_eq!(at(true, true), (16, 12));
        let framing = Framing::Corner { short: 0, right: true, bottom: true };
        let spec = ImageSpec { framing, ..ImageSpec::cover(8, 9) };
        let found = CropBox::new(size(8, 8), &spec, &mut Randomness::new(Draw::default(), 0));
        assert!(matches!(found, Err(ImageFault::Small { padding: 0, .. })));
    }

    #[test]
    fn corners_round_to_even_as_python_does() {
        // round(0.5) = 0, round(1.5) = 2, round(2.5) = 2, round(3.5) = 4
        assert_eq!([1, 3, 5, 7].map(half_to_even), [0, 2, 2, 4]);
        assert_eq!([0, 2, 4, 6].map(half_to_even), [0, 1, 2, 3]);
    }

    #[test]
    fn a_row_that_is_not_square_is_covered() {
        let square = cover(size(100, 100), size(40, 20));
        assert_eq!((square.resized, square.corner), (size(40, 40), (0, 10)));
        let strip = cover(size(1, 1000), size(30, 20));
        assert_eq!((strip.resized, strip.corner), (size(30, 30_000), (0, 14_990)));
    }

    #[test]
    fn a_crop_larger_than_the_image_is_padded_as_center_crop_does() {
        // padding_ltrb of torchvision: (10 - 7) // 2 = 1 left, (10 - 5) // 2 = 2 above.
        let padded = crop_box(size(7, 5), size(10, 10), Framing::Center { short: 0 }, 0);
        assert_eq!(padded.place(), Some(Area { left: 1, top: 2, size: size(7, 5) }));
        assert_eq!(padded.crop_only(), Some(Area::whole(size(7, 5))));
    }

    #[test]
    fn reduction_leaves_twice_the_resized_image() {
        let square = |side| cover(size(side, side), size(100, 100)).part().reduce_by;
        assert_eq!([99, 200, 399, 400, 799, 800, 1599, 1600].map(square), [1, 1, 1, 2, 2, 4, 4, 8]);
    }

    #[test]
    fn equal_sizes_are_only_cropped() {
        let crop = |source| cover(source, size(28, 28)).crop_only().map(|area| (area.left, area.top));
        assert_eq!(crop(size(28, 28)), Some((0, 0)));
        assert_eq!(crop(size(30, 28)), Some((1, 0)));
        assert_eq!(crop(size(30, 30)), None);
    }

    #[test]
    fn the_row_spans_the_source_where_nothing_is_cropped() {
        let side = Span { start: 0.0, scale: 1.005, first: 0, count: 100 };
        assert_eq!(cover(size(201, 201), size(100, 100)).spans(2), Some([side; 2]));
    }

    #[test]
    fn random_crops_are_each_as_likely_and_reach_the_padding() {
        let framing = Framing::Random { short: 0, padding: 1, before: 0 };
        let mut seen = [[0u32; 5]; 4];
        for position in 0..20_000 {
            let found = crop_box(size(6, 5), size(4, 4), framing, position);
            let (left, top) = (found.corner.0 + 1, found.corner.1 + 1);
            seen[usize::try_from(top).unwrap()][usize::try_from(left).unwrap()] += 1;
            let place = found.place().unwrap();
            assert_eq!(place.left, u32::from(left == 0));
            assert_eq!(place.size.width, 4 - u32::from(left == 0) - u32::from(left == 4));
        }
        // Standard deviation 31: five of them.
        assert!(seen.iter().flatten().all(|count| count.abs_diff(1000) < 155), "{seen:?}");
        let spec = ImageSpec { framing, ..ImageSpec::cover(8, 4) };
        let small = CropBox::new(size(6, 5), &spec, &mut Randomness::new(Draw::default(), 0));
        assert_eq!(small, Err(ImageFault::Small { image: size(6, 5), crop: size(4, 8), padding: 1 }));
        let whole = |source| {
            let spec = ImageSpec { framing: Framing::Whole, ..ImageSpec::cover(8, 4) };
            CropBox::new(source, &spec, &mut Randomness::new(Draw::default(), 0))
        };
        assert_eq!(whole(size(4, 8)).map(|found| found.corner), Ok((0, 0)));
        let (image, row) = (size(4, 9), size(4, 8));
        assert_eq!(whole(image), Err(ImageFault::Unlike { image, row }));
    }

    #[test]
    fn random_parts_have_torchvisions_areas_and_ratios() {
        let source = size(500, 375);
        let (mut area, mut log_ratio) = (0.0, 0.0);
        for position in 0..20_000 {
            let scope = crop_box(source, size(224, 224), RESIZED_CROP, position).scope;
            assert!(scope.left + scope.size.width <= 500 && scope.top + scope.size.height <= 375);
            area += scope.size.pixels() as f64 / source.pixels() as f64 / 20_000.0;
            log_ratio += (f64::from(scope.size.width) / f64::from(scope.size.height)).ln() / 20_000.0;
        }
        // 200,000 draws of torchvision's get_params: 0.4339 and 0.0308 (parts that do not fit are
        // drawn anew).
        assert!((area - 0.4339).abs() < 0.01, "{area}");
        assert!((log_ratio - 0.0308).abs() < 0.01, "{log_ratio}");
    }

    #[test]
    fn where_no_part_fits_the_middle_is_taken() {
        let narrow = |source| {
            let framing = Framing::RandomResized { scale: [1.0, 1.0], ratio: [1.0, 2.0] };
            crop_box(source, size(8, 8), framing, 0).scope
        };
        assert_eq!(narrow(size(10, 100)), Area { left: 0, top: 45, size: size(10, 10) });
        assert_eq!(narrow(size(100, 10)), Area { left: 40, top: 0, size: size(20, 10) });
    }

    #[test]
    fn the_geometry_is_the_box_of_the_source_that_the_row_shows() {
        let crop = |source, row, framing| crop_box(source, row, framing, 0).geometry().crop;
        let (source, square) = (size(500, 400), size(200, 200));
        assert_eq!(crop(source, square, Framing::Stretch), [0.0, 0.0, 500.0, 400.0]);
        // Resized to 250 x 200: two pixels of the source each.
        assert_eq!(crop(source, square, Framing::Cover), [50.0, 0.0, 400.0, 400.0]);
        assert_eq!(
            crop(source, size(100, 100), Framing::Center { short: 200 }),
            [150.0, 100.0, 200.0, 200.0]
        );
        // Padded: the box reaches beyond the source.
        assert_eq!(crop(size(7, 5), size(10, 10), Framing::Center { short: 0 }), [-1.0, -2.0, 10.0, 10.0]);
        for position in 0..100 {
            let random = crop_box(source, square, RESIZED_CROP, position);
            let Area { left, top, size } = random.scope;
            let whole =
                [left, top, size.width, size.height].map(|side| f32::from(u16::try_from(side).unwrap()));
            assert_eq!(random.geometry().crop, whole, "whole pixels");
        }
    }

    #[test]
    fn half_of_the_rows_are_mirrored() {
        let spec = ImageSpec { flip: 0.5, ..ImageSpec::cover(8, 8) };
        let flips = |position| {
            CropBox::new(size(8, 8), &spec, &mut Randomness::new(Draw::at(0, 0, position), 0)).unwrap().flips
        };
        let count = (0..10_000).filter(|&position| flips(position)).count();
        assert!(count.abs_diff(5000) < 250, "{count}");
        let always = ImageSpec { flip: 1.0, ..spec };
        assert!(CropBox::new(size(8, 8), &always, &mut Randomness::new(Draw::default(), 0)).unwrap().flips);
    }
}
