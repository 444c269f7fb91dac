//! Resizing by any of Pillow's filters in Pillow's order and arithmetic, so that each pixel is its:
//! along lines, rounded to bytes, then down the columns; or first down the columns.
//!
//! ```text
//! across first:
//!   lines of the source    band: columns         band: columns of the row    lines, resized along
//!   R G B R G B R ..       R R R ..              R R R ..                    R R R ..
//!   R G B R G B R ..  turn G G G ..     across   G G G ..      turn_back     R R R ..
//!   ..               ----> B B B ..    ------->  ..           ---------->    ..
//!
//!   lines, resized along        lines of the row
//!   R R R ..            down    R R R ..
//!   ..                 ----->   ..
//!
//! down first:
//!   lines of the source      band: lines              band: columns          columns of the row
//!   R G B R G B R ..  down   R G B R G B R ..  turn   R R R ..      across   R R R ..  turn_back
//!   ..               ----->  ..               ----->  G G G ..     ------->  G G G ..  -------->
//! ```
//!
//! As in `bands`, `across` adds whole columns and `down` whole lines. Where a filter has weights
//! below 0, its sums leave the range of a byte. Then the order of the two shows, and the rounding
//! in between.

mod kernels;

use multiversion::multiversion;
use shade_job::Resampling;

use super::Order;
use super::bands::{CHUNK, LINES, chunk, turn_back, turn_lines};
use super::source::Source;
use crate::part::Span;
use crate::{SCRATCH_KEEP_BYTES, Size};
use kernels::{Kernels, PRECISION};

pub(crate) use kernels::reach;

/// A value of each of a band's lines.
type Column = [u8; LINES];

/// Half of a level.
const HALF: i32 = 1 << (PRECISION - 1);

/// Resizes; keeps its buffers between images.
#[derive(Default)]
pub(super) struct Passes {
    order: Order,
    across: Kernels,
    down: Kernels,
    /// Columns of the result.
    width: usize,
    /// Lines after the first pass. Across first: the used lines of the source in the result's
    /// width, plane by plane, or one plane of colours side by side; the first `ready` lines of each
    /// plane are there. Down first: a band of the result in the used width of the source.
    once: Vec<u8>,
    ready: usize,
    /// A band in the source's width, the same in the result's width, and its lines.
    pixels: Vec<[Column; 3]>,
    done: Vec<[Column; 3]>,
    band: Vec<u8>,
    /// A band of the result.
    lines: Vec<u8>,
}

impl Passes {
    /// Prepares resizing a source of size `source`, as [`Resampler`](super::Resampler) does.
    pub(super) fn start(
        &mut self,
        filter: Resampling,
        order: Order,
        source: Size,
        [across, down]: &[Span; 2],
        mirrored: bool,
    ) {
        self.order = order;
        self.across.set(filter, source.width, across, mirrored);
        self.down.set(filter, source.height, down, false);
        self.width = across.count as usize;
        self.ready = 0;
        let once = match order {
            Order::AcrossFirst => self.width * self.down.seen,
            Order::DownFirst => self.across.seen * LINES,
        };
        self.once.resize(3 * once, 0);
        // Sixteen columns are turned at a time.
        self.pixels.resize(self.across.seen.next_multiple_of(LINES), Default::default());
        self.done.resize(self.width, Default::default());
        let band = if order == Order::AcrossFirst { LINES * self.width } else { 0 };
        self.band.resize(3 * band, 0);
        self.lines.resize(3 * LINES * self.width, 0);
    }

    /// As [`Resampler::band`](super::Resampler::band).
    pub(super) fn band(&mut self, source: &Source<'_>, first: usize, channels_last: bool) -> &[u8] {
        match self.order {
            Order::AcrossFirst => self.across_first(source, first, channels_last),
            Order::DownFirst => self.down_first(source, first, channels_last),
        }
        &self.lines
    }

    /// Fills `lines` with a band, each line of which needs some lines in the result's width.
    fn across_first(&mut self, source: &Source<'_>, first: usize, channels_last: bool) {
        let pitch = if channels_last { 3 * self.width } else { self.width };
        let ends = self.down.from(first).take(LINES).map(|(start, weights)| start + weights.len());
        let end = ends.max().unwrap_or_default();
        while self.ready < end {
            self.next_lines(source, pitch, channels_last);
        }
        let planes = self.once.chunks_exact((pitch * self.down.seen).max(1));
        for (plane, lines) in planes.zip(self.lines.chunks_exact_mut((pitch * LINES).max(1))) {
            let kernels = self.down.from(first);
            for ((start, weights), line) in kernels.zip(lines.chunks_exact_mut(pitch.max(1))) {
                down(plane.get(start * pitch..).unwrap_or_default(), pitch, weights, line);
            }
        }
    }

    /// Fills `lines` with a band, which is made of the source's lines without another band.
    fn down_first(&mut self, source: &Source<'_>, first: usize, channels_last: bool) {
        let used = self.down.skipped * source.pitch + 3 * self.across.skipped;
        let rgb = source.rgb.get(used..).unwrap_or_default();
        let pitch = 3 * self.across.seen;
        let kernels = self.down.from(first).take(LINES);
        let mut count = 0;
        for ((start, weights), line) in kernels.zip(self.once.chunks_exact_mut(pitch.max(1))) {
            down(rgb.get(start * source.pitch..).unwrap_or_default(), source.pitch, weights, line);
            count += 1;
        }
        turn_lines(&self.once, pitch, count, self.pixels.as_flattened_mut());
        across(&self.pixels, &self.across, &mut self.done);
        turn_back(&self.done, channels_last, &mut self.lines);
    }

    /// Resizes the next band of the source along its lines, which become `pitch` bytes each.
    fn next_lines(&mut self, source: &Source<'_>, pitch: usize, channels_last: bool) {
        let first = (self.down.skipped + self.ready) * source.pitch + 3 * self.across.skipped;
        let rgb = source.rgb.get(first..).unwrap_or_default();
        let count = LINES.min(self.down.seen - self.ready);
        turn_lines(rgb, source.pitch, count, self.pixels.as_flattened_mut());
        across(&self.pixels, &self.across, &mut self.done);
        turn_back(&self.done, channels_last, &mut self.band);
        let planes = self.once.chunks_exact_mut((pitch * self.down.seen).max(1));
        for (plane, band) in planes.zip(self.band.chunks_exact((pitch * LINES).max(1))) {
            let lines = plane.chunks_exact_mut(pitch.max(1)).skip(self.ready);
            for (line, band) in lines.zip(band.chunks_exact(pitch.max(1))) {
                line.copy_from_slice(band);
            }
        }
        self.ready += count;
    }

    /// Frees the buffers if a large image made them grow.
    pub(super) fn shrink(&mut self) {
        let columns = self.pixels.capacity() + self.done.capacity();
        let bytes = self.across.bytes()
            + self.down.bytes()
            + self.once.capacity()
            + size_of::<[Column; 3]>() * columns
            + self.band.capacity()
            + self.lines.capacity();
        if bytes > SCRATCH_KEEP_BYTES {
            *self = Self::default();
        }
    }
}

/// Fills `done` with the band in the result's width.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn across(pixels: &[[Column; 3]], kernels: &Kernels, done: &mut [[Column; 3]]) {
    for (done, (start, weights)) in done.iter_mut().zip(kernels.from(0)) {
        let mut sums = [[HALF; LINES]; 3];
        for (pixel, &weight) in pixels.get(start..).unwrap_or_default().iter().zip(weights) {
            for (sum, &value) in sums.as_flattened_mut().iter_mut().zip(pixel.as_flattened()) {
                *sum += i32::from(value) * weight;
            }
        }
        *done = sums.map(|sums| sums.map(level));
    }
}

/// Fills `line` with the weighted sum of `lines`, which are `pitch` bytes apart.
#[multiversion(targets("x86_64+avx2", "x86_64+sse4.1"))]
fn down(lines: &[u8], pitch: usize, weights: &[i32], line: &mut [u8]) {
    for (at, to) in line.chunks_mut(CHUNK).enumerate() {
        let mut sums = [HALF; CHUNK];
        for (tap, &weight) in weights.iter().enumerate() {
            let values = chunk(lines.get(tap * pitch..).unwrap_or_default(), at);
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += i32::from(value) * weight;
            }
        }
        let levels = sums.map(level);
        match to.first_chunk_mut() {
            Some(to) => *to = levels,
            None => to.iter_mut().zip(levels).for_each(|(to, level)| *to = level),
        }
    }
}

/// A sum of weighted levels as a level.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "clamped to a byte's values")]
fn level(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use fast_image_resize::images::{TypedImage, TypedImageRef};
    use fast_image_resize::pixels::U8x3;
    use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
    use proptest::prelude::*;

    use super::*;

    /// Some of the pixels of a resized image.
    #[derive(Clone, Debug)]
    struct Case {
        filter: Resampling,
        source: Size,
        resized: Size,
        /// First and number of columns, then of lines.
        shown: [(u32, u32); 2],
        mirrored: bool,
        channels_last: bool,
        seed: u32,
    }

    fn case() -> impl Strategy<Value = Case> {
        let side = || prop_oneof![1..=8_u32, 1..=80_u32];
        let size = move || (side(), side()).prop_map(|(width, height)| Size { width, height });
        let filters = prop::sample::select(Resampling::ALL);
        let shown = |side: u32| (0..side).prop_flat_map(move |first| (Just(first), 1..=side - first));
        (filters, size(), size(), any::<(bool, bool, u32)>()).prop_flat_map(
            move |(filter, source, resized, (mirrored, channels_last, seed))| {
                (shown(resized.width), shown(resized.height)).prop_map(move |(columns, lines)| {
                    let shown = [columns, lines];
                    Case { filter, source, resized, shown, mirrored, channels_last, seed }
                })
            },
        )
    }

    impl Case {
        fn image(&self) -> Vec<u8> {
            let value = |at: u32| {
                (at ^ self.seed).wrapping_mul(0x9E37_79B1).rotate_left(11).wrapping_mul(0x85EB_CA6B) >> 24
            };
            let bytes = 3 * self.source.width * self.source.height;
            (0..bytes).map(|at| u8::try_from(value(at)).unwrap()).collect()
        }

        fn order(&self) -> Order {
            Order::of(self.source, self.resized)
        }

        fn spans(&self) -> [Span; 2] {
            let along = |source: u32, resized: u32, (first, count)| Span {
                start: 0.0,
                scale: f64::from(source) / f64::from(resized),
                first,
                count,
            };
            let [columns, lines] = self.shown;
            [
                along(self.source.width, self.resized.width, columns),
                along(self.source.height, self.resized.height, lines),
            ]
        }

        /// Interleaved, not mirrored.
        fn resampled(&self, passes: &mut Passes, image: &[u8]) -> Vec<u8> {
            let source = Source { rgb: image, pitch: 3 * self.source.width as usize, size: self.source };
            passes.start(self.filter, self.order(), self.source, &self.spans(), self.mirrored);
            let [(_, width), (_, height)] = self.shown;
            let (width, height) = (width as usize, height as usize);
            let mut result = vec![0; 3 * width * height];
            for first in (0..height).step_by(LINES) {
                let band = passes.band(&source, first, self.channels_last);
                for line in 0..LINES.min(height - first) {
                    for (x, colour) in (0..width).flat_map(|x| (0..3).map(move |colour| (x, colour))) {
                        let at = match self.channels_last {
                            true => (line * width + x) * 3 + colour,
                            false => (colour * LINES + line) * width + x,
                        };
                        let x = if self.mirrored { width - 1 - x } else { x };
                        result[((first + line) * width + x) * 3 + colour] = band[at];
                    }
                }
            }
            result
        }

        /// The same by another resizer, in Pillow's order.
        fn expected(&self, image: &[u8]) -> Vec<u8> {
            let between = match self.order() {
                Order::AcrossFirst => Size { width: self.resized.width, height: self.source.height },
                Order::DownFirst => Size { width: self.source.width, height: self.resized.height },
            };
            let once = resize(image, self.source, between, self.filter);
            let all = resize(&once, between, self.resized, self.filter);
            let [(left, width), (top, height)] = self.shown;
            let lines = all.chunks_exact(3 * self.resized.width as usize);
            let shown = lines.skip(top as usize).take(height as usize);
            shown.flat_map(|line| &line[3 * left as usize..][..3 * width as usize]).copied().collect()
        }
    }

    fn resize(image: &[u8], from: Size, to: Size, filter: Resampling) -> Vec<u8> {
        let whole = TypedImageRef::<U8x3>::from_buffer(from.width, from.height, image).unwrap();
        let mut resized = vec![0; 3 * to.width as usize * to.height as usize];
        let mut target = TypedImage::<U8x3>::from_buffer(to.width, to.height, &mut resized).unwrap();
        let options = ResizeOptions::new().resize_alg(match filter {
            Resampling::Nearest => ResizeAlg::Nearest,
            Resampling::Box => ResizeAlg::Convolution(FilterType::Box),
            Resampling::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Resampling::Hamming => ResizeAlg::Convolution(FilterType::Hamming),
            Resampling::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
            Resampling::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
        });
        Resizer::new().resize_typed(&whole, &mut target, &options).unwrap();
        drop(target);
        resized
    }

    proptest! {
        #[test]
        fn it_is_what_fast_image_resize_gives_in_two_steps(case in case()) {
            // Whether a pixel on the edge of these two counts depends on rounding errors:
            // test_loader_transforms.py compares them with Pillow's own.
            prop_assume!(![Resampling::Nearest, Resampling::Box].contains(&case.filter));
            let image = case.image();
            let mut passes = Passes::default();
            let found = case.resampled(&mut passes, &image);
            prop_assert_eq!(&case.resampled(&mut passes, &image), &found, "its buffers hold nothing back");
            // Its weights have fewer bits.
            prop_assert!(found.iter().zip(case.expected(&image)).all(|(a, b)| a.abs_diff(b) <= 2));
        }

        #[test]
        fn what_is_of_one_colour_stays_so(case in case(), colour in prop_oneof![Just(0), Just(255), any::<u8>()]) {
            let image = vec![colour; case.image().len()];
            let found = case.resampled(&mut Passes::default(), &image);
            prop_assert!(found.iter().all(|&found| found == colour));
        }
    }
}
