//! Resizing, a band of lines at a time: bilinear with antialias, as PIL's `BILINEAR`.
//!
//! ```text
//!   lines of the source       band: lines             band: columns         columns of the row
//!   R G B R G B R ..          R G B R G B R ..        R R R ..              R R R ..
//!   R G B R G B R ..   down   R G B R G B R ..        G G G ..              G G G ..
//!   R G B R G B R ..  ----->  ..                turn  B B B ..     across   B B B ..
//!   ..                                         ---->  R R R ..    ------->  ..
//!
//!   columns of the row            lines of the row
//!   R R R ..                      R R R .. G G G .. B B B ..
//!   G G G ..        turn_back     R R R .. G G G .. B B B ..
//!   B B B ..       ----------->   ..
//! ```
//!
//! `down` adds whole lines and `across` whole columns, so that each step is the same for
//! neighbouring values and suits vectors. Delivery as planes and mirroring only choose which
//! columns are taken, at no cost. A step's working set fits into the L1 and L2 caches, unless the
//! source is very wide.
//!
//! Between the steps a value is its difference from 128 in 256ths: a signed number of 16 bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod plain;
mod weights;

use multiversion::multiversion;
use multiversion::target::match_target;

use super::source::Source;
use crate::SCRATCH_KEEP_BYTES;
use crate::Size;
use crate::part::Span;
pub(crate) use plain::LINES;
pub(super) use plain::{CHUNK, chunk};
use plain::{Column, TILE, Tile};
use weights::Weights;

/// Tiles that are turned as soon as all lines are in them: 16 KiB.
const STRIP: usize = 64;

/// Resizes; keeps its buffers between images.
#[derive(Default)]
pub(super) struct Bands {
    across: Weights,
    down: Weights,
    /// A band, in the used part of the source's width and in the result's width.
    tiles: Vec<Tile>,
    done: Vec<[[u8; LINES]; 3]>,
    lines: Vec<u8>,
}

impl Bands {
    /// Prepares resizing a source of size `source`, as [`Resampler`](super::Resampler) does.
    pub(super) fn start(&mut self, source: Size, [across, down]: &[Span; 2], mirrored: bool) {
        self.across.set(source.width, across, mirrored);
        self.down.set(source.height, down, false);
        let width = across.count as usize;
        let chunks = (3 * self.across.seen).div_ceil(CHUNK);
        self.tiles.resize(chunks * (CHUNK / TILE), [0; LINES * TILE]);
        self.done.resize(width, Default::default());
        self.lines.resize(3 * LINES * width, 0);
    }

    /// As [`Resampler::band`](super::Resampler::band).
    pub(super) fn band(&mut self, source: &Source<'_>, first: usize, channels_last: bool) -> &[u8] {
        let seen = self.down.skipped * source.pitch + 3 * self.across.skipped;
        let rgb = source.rgb.get(seen..).unwrap_or_default();
        down(rgb, source.pitch, &self.down, first, &mut self.tiles);
        let (columns, _) = self.tiles.as_flattened().as_chunks::<LINES>();
        across(columns.as_chunks().0, &self.across, &mut self.done);
        turn_back(&self.done, channels_last, &mut self.lines);
        &self.lines
    }

    /// Frees the buffers if a large image made them grow.
    pub(super) fn shrink(&mut self) {
        let bytes = self.across.bytes()
            + self.down.bytes()
            + size_of::<Tile>() * self.tiles.capacity()
            + size_of::<[[u8; LINES]; 3]>() * self.done.capacity()
            + self.lines.capacity();
        if bytes > SCRATCH_KEEP_BYTES {
            *self = Self::default();
        }
    }
}

/// Fills `tiles` with the columns of the band of lines from `first` on, in the width of `rgb`,
/// whose lines are `pitch` bytes apart.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn down(rgb: &[u8], pitch: usize, weights: &Weights, first: usize, tiles: &mut [Tile]) {
    for (strip, tiles) in tiles.chunks_mut(STRIP).enumerate() {
        for (line, (start, weights)) in weights.from(first).take(LINES).enumerate() {
            let rgb = rgb.get(start * pitch + strip * STRIP * TILE..).unwrap_or_default();
            match_target! {
                "x86_64+avx2" => match *weights {
                    [a] => avx2::down(rgb, pitch, [a], tiles, line),
                    [a, b] => avx2::down(rgb, pitch, [a, b], tiles, line),
                    [a, b, c] => avx2::down(rgb, pitch, [a, b, c], tiles, line),
                    [a, b, c, d] => avx2::down(rgb, pitch, [a, b, c, d], tiles, line),
                    _ if weights.len() <= avx2::TAPS_MAX => avx2::down_many(rgb, pitch, weights, tiles, line),
                    _ => plain::down(rgb, pitch, weights, tiles, line),
                },
                _ => plain::down(rgb, pitch, weights, tiles, line),
            }
        }
        for tile in tiles {
            match_target! {
                "x86_64+avx2" => avx2::turn(tile),
                _ => plain::turn(tile),
            }
        }
    }
}

/// Fills `done` with the band in the result's width.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn across(pixels: &[[Column; 3]], weights: &Weights, done: &mut [[[u8; LINES]; 3]]) {
    match_target! {
        "x86_64+avx2" => match weights.taps {
            1 => avx2::across::<1>(pixels, weights, done),
            2 => avx2::across::<2>(pixels, weights, done),
            3 => avx2::across::<3>(pixels, weights, done),
            4 => avx2::across::<4>(pixels, weights, done),
            5..=avx2::TAPS_MAX => avx2::across_many(pixels, weights, done),
            _ => plain::across(pixels, weights, done),
        },
        _ => plain::across(pixels, weights, done),
    }
}

/// Writes the columns of `done` as lines: interleaved, or colour after colour.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn turn_back(done: &[[[u8; LINES]; 3]], channels_last: bool, lines: &mut [u8]) {
    let turn = |columns: [&[u8; LINES]; LINES]| {
        match_target! {
            "x86_64+avx2" => avx2::turn_back(columns),
            _ => plain::turn_back(columns),
        }
    };
    if channels_last {
        let columns = done.as_flattened();
        columns_to_lines(columns.len(), |at| columns.get(at), lines, turn);
        return;
    }
    for (colour, lines) in lines.chunks_exact_mut((LINES * done.len()).max(1)).enumerate() {
        columns_to_lines(done.len(), |at| done.get(at)?.get(colour), lines, turn);
    }
}

/// Fills `columns` with those of the first `count` lines of interleaved colours, which are `pitch`
/// bytes apart. Lines behind them, and columns beside them, are 0.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
pub(super) fn turn_lines(rgb: &[u8], pitch: usize, count: usize, columns: &mut [[u8; LINES]]) {
    for (at, columns) in columns.as_chunks_mut::<LINES>().0.iter_mut().enumerate() {
        let mut lines = [[0; LINES]; LINES];
        for (line, to) in lines.iter_mut().take(count).enumerate() {
            let from = rgb.get(line * pitch + at * LINES..).unwrap_or_default();
            match from.first_chunk() {
                Some(from) => *to = *from,
                None => to.iter_mut().zip(from).for_each(|(to, &from)| *to = from),
            }
        }
        // Lines become columns as columns become lines.
        *columns = match_target! {
            "x86_64+avx2" => avx2::turn_back(lines.each_ref()),
            _ => plain::turn_back(lines.each_ref()),
        };
    }
}

/// Writes `count` columns as lines, sixteen at a time.
#[inline(always)]
fn columns_to_lines<'a>(
    count: usize,
    column: impl Fn(usize) -> Option<&'a [u8; LINES]>,
    lines: &mut [u8],
    turn: impl Fn([&[u8; LINES]; LINES]) -> [[u8; LINES]; LINES],
) {
    for from in (0..count).step_by(LINES) {
        let mut columns = [&[0; LINES]; LINES];
        for (at, to) in (from..).zip(&mut columns) {
            *to = column(at).unwrap_or(to);
        }
        for (values, line) in turn(columns).iter().zip(lines.chunks_exact_mut(count)) {
            let line = line.get_mut(from..).unwrap_or_default();
            match line.first_chunk_mut() {
                Some(line) => *line = *values,
                None => line.iter_mut().zip(values).for_each(|(to, &value)| *to = value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
    use fast_image_resize::pixels::U8x3;
    use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
    use proptest::prelude::*;

    use super::*;

    /// A box in fractional pixels.
    #[derive(Clone, Copy, Debug)]
    struct FloatBox {
        left: f64,
        top: f64,
        width: f64,
        height: f64,
    }

    /// Where a box lies that becomes a result of this size.
    fn spans(part: FloatBox, result: Size) -> [Span; 2] {
        let along = |start, len: f64, count| Span { start, scale: len / f64::from(count), first: 0, count };
        [along(part.left, part.width, result.width), along(part.top, part.height, result.height)]
    }

    /// How to resize a source within an image that is larger by `beside` pixels on each side.
    #[derive(Clone, Debug)]
    struct Case {
        source: Size,
        beside: u32,
        part: FloatBox,
        result: Size,
        mirrored: bool,
        channels_last: bool,
        seed: u32,
    }

    fn case(sides: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = Case> {
        let share = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
        let sizes = (sides.clone(), sides.clone(), sides.clone(), sides);
        let shares = (share(), share(), share(), share());
        (sizes, shares, 0..3_u32, any::<bool>(), any::<bool>(), any::<u32>()).prop_map(
            |((width, height, to_width, to_height), (x, y, w, h), beside, mirrored, channels_last, seed)| {
                let along = |side: u32, at: f64, share: f64| {
                    let span = (f64::from(side) * (1.0 - share)).max(0.1);
                    ((f64::from(side) - span) * at, span)
                };
                let ((left, width_of), (top, height_of)) = (along(width, x, w), along(height, y, h));
                Case {
                    source: Size { width, height },
                    beside,
                    part: FloatBox { left, top, width: width_of, height: height_of },
                    result: Size { width: to_width, height: to_height },
                    mirrored,
                    channels_last,
                    seed,
                }
            },
        )
    }

    impl Case {
        /// Noise, which has the largest differences between neighbours.
        fn image(&self) -> Vec<u8> {
            let Size { width, height } = self.source;
            let pixels = (width + 2 * self.beside) * (height + 2 * self.beside);
            let value = |at: u32| {
                (at ^ self.seed).wrapping_mul(0x9E37_79B1).rotate_left(11).wrapping_mul(0x85EB_CA6B) >> 24
            };
            (0..3 * pixels).map(|at| u8::try_from(value(at)).unwrap()).collect()
        }

        fn pitch(&self) -> usize {
            3 * (self.source.width + 2 * self.beside) as usize
        }

        fn first(&self) -> usize {
            self.beside as usize * (self.pitch() + 3)
        }

        /// In the order of `channels_last`, not mirrored.
        fn resampled(&self, bands: &mut Bands, image: &[u8]) -> Vec<u8> {
            let source = Source { rgb: &image[self.first()..], pitch: self.pitch(), size: self.source };
            bands.start(self.source, &spans(self.part, self.result), self.mirrored);
            let (width, height) = (self.result.width as usize, self.result.height as usize);
            let mut result = vec![0; 3 * width * height];
            for first in (0..height).step_by(LINES) {
                let band = bands.band(&source, first, self.channels_last);
                for (line, x, colour) in (0..LINES.min(height - first)).flat_map(|line| {
                    (0..width).flat_map(move |x| (0..3).map(move |colour| (line, x, colour)))
                }) {
                    let at = match self.channels_last {
                        true => (line * width + x) * 3 + colour,
                        false => (colour * LINES + line) * width + x,
                    };
                    let x = if self.mirrored { width - 1 - x } else { x };
                    result[((first + line) * width + x) * 3 + colour] = band[at];
                }
            }
            result
        }

        /// By the definition, one side after the other, without rounding.
        fn exactly(&self, image: &[u8]) -> Vec<f64> {
            let weights = |source: u32, from: f64, span: f64, result: u32| -> Vec<Vec<(usize, f64)>> {
                let scale = span / f64::from(result);
                let of = |at: u32| {
                    let middle = from + (f64::from(at) + 0.5) * scale;
                    let weight = |tap: u32| 1.0 - (f64::from(tap) + 0.5 - middle).abs() / scale.max(1.0);
                    let taps: Vec<_> = (0..source)
                        .map(|tap| (tap as usize, weight(tap)))
                        .filter(|tap| tap.1 > 0.0)
                        .collect();
                    let total: f64 = taps.iter().map(|tap| tap.1).sum();
                    taps.into_iter().map(|(tap, weight)| (tap, weight / total)).collect()
                };
                (0..result).map(of).collect()
            };
            let FloatBox { left, top, width, height } = self.part;
            let columns = weights(self.source.width, left, width, self.result.width);
            let rows = weights(self.source.height, top, height, self.result.height);
            let mut result = Vec::new();
            for row in &rows {
                let line: Vec<f64> = (0..3 * self.source.width as usize)
                    .map(|x| {
                        let value = |line: usize| f64::from(image[self.first() + line * self.pitch() + x]);
                        row.iter().map(|&(line, weight)| weight * value(line)).sum()
                    })
                    .collect();
                for (column, colour) in
                    columns.iter().flat_map(|column| (0..3).map(move |colour| (column, colour)))
                {
                    result.push(column.iter().map(|&(x, weight)| weight * line[3 * x + colour]).sum());
                }
            }
            result
        }
    }

    /// In addition to rounding to 8 bits once, the error is at most a tenth of a step.
    fn check(case: &Case) {
        let image = case.image();
        let found = case.resampled(&mut Bands::default(), &image);
        let off =
            found.iter().zip(case.exactly(&image)).map(|(&found, exact)| (f64::from(found) - exact).abs());
        let most = off.fold(0.0, f64::max);
        assert!(most < 0.6, "{case:?}: {most}");
    }

    proptest! {
        #[test]
        fn each_pixel_is_the_weighted_sum_of_the_source(case in case(1..=80)) {
            check(&case);
        }

        #[test]
        fn what_lies_beside_does_not_matter(case in case(1..=40)) {
            let image = case.image();
            let mut other = vec![0; image.len()];
            let shown = 3 * case.source.width as usize;
            for line in 0..case.source.height as usize {
                let at = case.first() + line * case.pitch();
                other[at..at + shown].copy_from_slice(&image[at..at + shown]);
            }
            let mut bands = Bands::default();
            prop_assert_eq!(case.resampled(&mut bands, &image), case.resampled(&mut bands, &other));
        }

        #[test]
        fn what_is_of_one_colour_stays_so(case in case(1..=300), colour in prop_oneof![Just(0), Just(255), any::<u8>()]) {
            let image = vec![colour; case.image().len()];
            prop_assert!(case.resampled(&mut Bands::default(), &image).iter().all(|&found| found == colour));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn large_images_are_as_exact(case in case(1..=600)) {
            check(&case);
        }

        #[test]
        fn it_is_what_fast_image_resize_gives(case in case(1..=300)) {
            let image = case.image();
            let all = Size {
                width: case.source.width + 2 * case.beside,
                height: case.source.height + 2 * case.beside,
            };
            let whole = TypedImageRef::<U8x3>::from_buffer(all.width, all.height, &image).unwrap();
            let Case { source, beside, part, result, .. } = case;
            let view = TypedCroppedImage::from_ref(&whole, beside, beside, source.width, source.height).unwrap();
            let mut expected = vec![0; 3 * result.width as usize * result.height as usize];
            let mut to = TypedImage::<U8x3>::from_buffer(result.width, result.height, &mut expected).unwrap();
            let options = ResizeOptions::new()
                .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
                .crop(part.left, part.top, part.width, part.height);
            Resizer::new().resize_typed(&view, &mut to, &options).unwrap();
            drop(to);
            let found = case.resampled(&mut Bands::default(), &image);
            // It rounds twice.
            prop_assert!(found.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= 1));
        }
    }

    #[test]
    fn any_size_becomes_any_size() {
        let sides = [(1, 65_535), (65_535, 1), (1, 1), (65_535, 17), (3, 4000)];
        for ((width, to_width), (height, to_height)) in
            sides.into_iter().zip([(1, 1), (3, 5), (40, 3), (1, 2), (2, 1)])
        {
            for (source, result) in [
                (Size { width, height }, Size { width: to_width, height: to_height }),
                (Size { width: height, height: width }, Size { width: to_height, height: to_width }),
            ] {
                let part = FloatBox {
                    left: 0.0,
                    top: 0.0,
                    width: source.width.into(),
                    height: source.height.into(),
                };
                let mirrored =
                    Case { source, beside: 0, part, result, mirrored: true, channels_last: false, seed: 1 };
                let image = vec![255; mirrored.image().len()];
                let found = mirrored.resampled(&mut Bands::default(), &image);
                assert!(found.iter().all(|&value| value == 255), "{source:?} to {result:?}");
            }
        }
    }

    /// Compares the steps compiled for this CPU with those for any.
    #[test]
    fn the_steps_are_the_same_on_any_cpu() {
        let case = Case {
            source: Size { width: 61, height: 50 },
            beside: 1,
            part: FloatBox { left: 0.0, top: 0.0, width: 61.0, height: 50.0 },
            result: Size { width: 37, height: 31 },
            mirrored: false,
            channels_last: false,
            seed: 7,
        };
        let image = case.image();
        let (rgb, pitch) = (&image[case.first()..], case.pitch());
        let mut bands = Bands::default();
        bands.start(case.source, &spans(case.part, case.result), false);
        let mut ours = bands.tiles.clone();
        down(rgb, pitch, &bands.down, 0, &mut ours);
        let mut plain = bands.tiles.clone();
        for (line, (start, weights)) in bands.down.from(0).take(LINES).enumerate() {
            plain::down(&rgb[start * pitch..], pitch, weights, &mut plain, line);
        }
        plain.iter_mut().for_each(plain::turn);
        let pairs = ours.as_flattened().iter().zip(plain.as_flattened());
        assert!(
            pairs.clone().all(|(a, b)| a.abs_diff(*b) <= 2),
            "each of 4 products is rounded, and their sum"
        );
        assert!(pairs.clone().filter(|(a, _)| **a != 0).count() > 1000);

        let (columns, _) = ours.as_flattened().as_chunks::<LINES>();
        let (pixels, _) = columns.as_chunks::<3>();
        let mut across_plain = bands.done.clone();
        across(pixels, &bands.across, &mut bands.done);
        plain::across(pixels, &bands.across, &mut across_plain);
        let done = bands.done.as_flattened().as_flattened();
        assert!(
            done.iter().zip(across_plain.as_flattened().as_flattened()).all(|(a, b)| a.abs_diff(*b) <= 1)
        );

        let columns = bands.done.as_flattened().first_chunk::<LINES>().unwrap().each_ref();
        let turned = plain::turn_back(columns);
        turn_back(&bands.done, true, &mut bands.lines);
        for (line, values) in bands.lines.chunks_exact(3 * 37).zip(turned) {
            assert_eq!(line[..LINES], values);
        }
    }
}
