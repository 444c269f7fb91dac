//! The weights of Pillow's filters, in its arithmetic.

use std::f64::consts::PI;

use shade_job::Resampling;

use crate::part::Span;

/// Bits of a weight behind the point. With 8 bits of a byte that leaves room for sums beyond white
/// and below black.
pub(super) const PRECISION: u32 = 22;

/// Pixels from the first one on that `Nearest` counts one by one, as Pillow does.
const COUNTED: u32 = 1 << 20;

/// Pixels of the source that a filter reaches at most from the middle of a pixel of the result that
/// is `scale` of them wide.
pub(crate) fn reach(filter: Resampling, scale: u32) -> u32 {
    let support = match filter {
        Resampling::Nearest | Resampling::Box | Resampling::Bilinear | Resampling::Hamming => 1,
        Resampling::Bicubic => 2,
        Resampling::Lanczos => 3,
    };
    scale.max(1).saturating_mul(support)
}

/// How far a filter reaches from a pixel's middle, in pixels of the smaller one of image and
/// result.
fn support(filter: Resampling) -> f64 {
    match filter {
        Resampling::Nearest | Resampling::Box => 0.5,
        Resampling::Bilinear | Resampling::Hamming => 1.0,
        Resampling::Bicubic => 2.0,
        Resampling::Lanczos => 3.0,
    }
}

/// The filter at `x` pixels from a pixel's middle.
fn weight(filter: Resampling, x: f64) -> f64 {
    let from_middle = x.abs();
    match filter {
        Resampling::Nearest | Resampling::Box => {
            if x > -0.5 && x <= 0.5 {
                1.0
            } else {
                0.0
            }
        }
        Resampling::Bilinear => (1.0 - from_middle).max(0.0),
        Resampling::Hamming if from_middle == 0.0 => 1.0,
        Resampling::Hamming if from_middle >= 1.0 => 0.0,
        Resampling::Hamming => {
            let x = from_middle * PI;
            // Pillow's constants have single precision.
            x.sin() / x * (f64::from(0.54_f32) + f64::from(0.46_f32) * x.cos())
        }
        Resampling::Bicubic => bicubic(from_middle),
        Resampling::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        Resampling::Lanczos => 0.0,
    }
}

/// The cubic with a = -0.5.
fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// The pixels of the result along one side: each is the weighted sum of the same number of
/// neighbouring source pixels.
#[derive(Default)]
pub(super) struct Kernels {
    /// Source pixels in each pixel's sum: at least 1 once set.
    taps: usize,
    /// Source pixels before the first used one, and from there to the last used one.
    pub(super) skipped: usize,
    pub(super) seen: usize,
    /// The first source pixel of each pixel, counted from the first used one.
    starts: Vec<u32>,
    /// The weights, pixel by pixel, in units of 2^-[`PRECISION`].
    weights: Vec<i32>,
}

impl Kernels {
    /// Sets the weights of the pixels of `span`, whose source has `source` pixels. They come from
    /// the last to the first if `mirrored`.
    pub(super) fn set(&mut self, filter: Resampling, source: u32, span: &Span, mirrored: bool) {
        self.starts.clear();
        self.weights.clear();
        if filter == Resampling::Nearest {
            self.nearest(source, span);
        } else {
            self.convolution(filter, source, span);
        }
        if mirrored {
            self.starts.reverse();
            let last_first = self.weights.chunks_exact(self.taps).rev().flatten().copied();
            self.weights = last_first.collect();
        }
        let first = self.starts.iter().min().copied().unwrap_or(0);
        let last = self.starts.iter().max().copied().unwrap_or(0);
        self.starts.iter_mut().for_each(|start| *start -= first);
        self.skipped = first as usize;
        self.seen = (last - first) as usize + self.taps;
    }

    /// Each pixel is the one of the source in which its middle lies.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the casts saturate")]
    fn nearest(&mut self, source: u32, span: &Span) {
        self.taps = 1;
        // Pillow adds pixel by pixel, and its rounding errors decide where a middle lies between
        // two pixels.
        let counted = span.first.min(COUNTED);
        let skipped = f64::from(span.first - counted) * span.scale;
        let mut middle = span.start + skipped + span.scale * 0.5;
        for at in 0..counted + span.count {
            if at >= counted {
                self.starts.push((middle as u32).min(source.saturating_sub(1)));
                self.weights.push(1 << PRECISION);
            }
            middle += span.scale;
        }
    }

    /// The filter stands over each pixel's middle, as wide as its support in pixels of the result,
    /// and at least of the source. The part beside the source is left out.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the casts saturate")]
    fn convolution(&mut self, filter: Resampling, source: u32, span: &Span) {
        let widened = span.scale.max(1.0);
        let reach = support(filter) * widened;
        let window = |at| {
            let middle = span.middle(at);
            let end = ((middle + reach + 0.5) as u32).min(source);
            ((middle - reach + 0.5) as u32).min(end)..end
        };
        let taps = (0..span.count).map(|at| window(at).len()).max().unwrap_or_default().max(1);
        self.taps = taps;
        let mut kernel = Vec::with_capacity(taps);
        for at in 0..span.count {
            let (window, middle) = (window(at), span.middle(at));
            let start = window.start.min(source.saturating_sub(taps as u32));
            let place = |tap: u32| (f64::from(tap) - middle + 0.5) * (1.0 / widened);
            kernel.clear();
            kernel.extend(window.clone().map(|tap| weight(filter, place(tap))));
            let sum: f64 = kernel.iter().sum();
            let before = (window.start - start) as usize;
            let fixed = kernel.iter().map(|&weight| fixed(if sum == 0.0 { weight } else { weight / sum }));
            self.starts.push(start);
            let padded = std::iter::repeat_n(0, before).chain(fixed).chain(std::iter::repeat(0));
            self.weights.extend(padded.take(taps));
        }
    }

    /// For each pixel from `first` on: its first source pixel, counted from the first used one, and
    /// the weights of that and the next ones.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = (usize, &[i32])> {
        let starts = self.starts.get(first..).unwrap_or_default();
        let weights = self.weights.get(first * self.taps..).unwrap_or_default();
        starts.iter().map(|&start| start as usize).zip(weights.chunks_exact(self.taps.max(1)))
    }

    /// Allocated memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<u32>() * self.starts.capacity() + size_of::<i32>() * self.weights.capacity()
    }
}

/// A weight in units of 2^-[`PRECISION`], rounded half away from 0.
#[expect(clippy::cast_possible_truncation, reason = "weights are below 2")]
fn fixed(weight: f64) -> i32 {
    (weight * f64::from(1 << PRECISION) + 0.5_f64.copysign(weight)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(filter: Resampling, source: u32, scale: f64, count: u32) -> Vec<(usize, Vec<i32>)> {
        let mut kernels = Kernels::default();
        kernels.set(filter, source, &Span { start: 0.0, scale, first: 0, count }, false);
        kernels.from(0).map(|(start, weights)| (kernels.skipped + start, weights.to_vec())).collect()
    }

    #[test]
    fn filters_stand_over_each_pixel() {
        const ONE: i32 = 1 << PRECISION;
        assert_eq!(kernels(Resampling::Nearest, 4, 2.0, 2), [(1, vec![ONE]), (3, vec![ONE])]);
        assert_eq!(kernels(Resampling::Box, 4, 2.0, 2), [(0, vec![ONE / 2; 2]), (2, vec![ONE / 2; 2])]);
        // The same size: each pixel is its own source, without blur.
        for filter in [Resampling::Hamming, Resampling::Bicubic, Resampling::Lanczos] {
            for (at, (start, weights)) in kernels(filter, 9, 1.0, 9).into_iter().enumerate() {
                let place = weights.iter().position(|&weight| weight == ONE).unwrap();
                assert_eq!(start + place, at, "{filter:?}");
                assert!(weights.iter().all(|weight| [0, ONE].contains(weight)), "{filter:?}: {weights:?}");
            }
        }
        // Bicubic between two pixels: -1 and 9 of 16 on each side.
        let (start, weights) = kernels(Resampling::Bicubic, 8, 2.0, 4).swap_remove(1);
        assert_eq!((start, weights.len()), (0, 7));
        assert!(weights.iter().sum::<i32>().abs_diff(ONE) <= 4, "each is rounded");
    }

    #[test]
    fn mirrored_pixels_come_from_the_last_to_the_first() {
        for filter in Resampling::ALL {
            let span = Span { start: 3.25, scale: 2.5, first: 2, count: 11 };
            let (mut plain, mut mirrored) = (Kernels::default(), Kernels::default());
            plain.set(*filter, 60, &span, false);
            mirrored.set(*filter, 60, &span, true);
            let mut expected: Vec<_> = plain.from(0).collect();
            expected.reverse();
            assert_eq!(mirrored.from(0).collect::<Vec<_>>(), expected);
            assert_eq!((mirrored.skipped, mirrored.seen), (plain.skipped, plain.seen));
            assert!(plain.skipped + plain.seen <= 60);
        }
    }
}
