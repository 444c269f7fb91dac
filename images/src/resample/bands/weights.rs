//! Weights of PIL's `BILINEAR`: of each source pixel in each pixel of the result, along one side.

use crate::part::Span;

/// Sum of a pixel's weights: the largest `i16`, as a single weight must fit.
const UNIT: f64 = 32767.0;

/// The pixels of the result along one side: each is the weighted sum of the same number of
/// neighbouring source pixels.
#[derive(Default)]
pub(super) struct Weights {
    /// Source pixels in each pixel's sum: at least 1 once set.
    pub(super) taps: usize,
    /// Source pixels before the first used one, and from there to the last used one.
    pub(super) skipped: usize,
    pub(super) seen: usize,
    /// The first source pixel of each pixel, counted from the first used one.
    starts: Vec<u32>,
    /// The weights, pixel by pixel: none is negative, and a pixel's add up to 32,767.
    weights: Vec<i16>,
}

impl Weights {
    /// Sets the weights of the pixels of `span`, whose source has `source` pixels. They come from
    /// the last to the first if `mirrored`.
    ///
    /// The weights are a triangle around each pixel's middle. It is two pixels wide: of the result
    /// if that has fewer, else of the source. The part beside the source is left out.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the casts saturate")]
    pub(super) fn set(&mut self, source: u32, span: &Span, mirrored: bool) {
        let reach = span.scale.max(1.0);
        // At most this number of middles of pixels are below the triangle.
        let taps = ((2.0 * reach).ceil() as u32).clamp(1, source.max(1));
        self.taps = taps as usize;
        self.starts.clear();
        self.weights.clear();
        for at in 0..span.count {
            let middle = span.middle(if mirrored { span.count - 1 - at } else { at });
            let start = ((middle - reach + 0.5) as u32).min(source.saturating_sub(taps));
            self.starts.push(start);
            let first = f64::from(start) + 0.5 - middle;
            let weight = |tap: u32| (reach - (first + f64::from(tap)).abs()).max(0.0);
            let unit = UNIT / (0..taps).map(weight).sum::<f64>();
            // Sums are rounded, not weights, so that the last sum is the unit.
            let (mut sum, mut given) = (0.0, 0);
            self.weights.extend((0..taps).map(|tap| {
                sum += weight(tap);
                let all = (sum * unit + 0.5) as i16;
                all - std::mem::replace(&mut given, all)
            }));
        }
        let ends = [self.starts.first(), self.starts.last()].map(|end| end.copied().unwrap_or(0));
        let (first, last) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        self.starts.iter_mut().for_each(|start| *start -= first);
        self.skipped = first as usize;
        self.seen = (last - first + taps) as usize;
    }

    /// For each pixel from `first` on: its first source pixel, counted from the first used one, and
    /// the weights of that and the next ones.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = (usize, &[i16])> {
        let starts = self.starts.get(first..).unwrap_or_default();
        let weights = self.weights.get(first * self.taps..).unwrap_or_default();
        starts.iter().map(|&start| start as usize).zip(weights.chunks_exact(self.taps.max(1)))
    }

    /// Allocated memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<u32>() * self.starts.capacity() + size_of::<i16>() * self.weights.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(source: u32, start: f64, span: f64, count: u32) -> Vec<(usize, Vec<i16>)> {
        let mut weights = Weights::default();
        weights.set(source, &Span { start, scale: span / f64::from(count), first: 0, count }, false);
        weights.from(0).map(|(start, taps)| (weights.skipped + start, taps.to_vec())).collect()
    }

    #[test]
    fn a_triangle_stands_over_each_pixel() {
        assert_eq!(weights(3, 0.0, 3.0, 3), [(0, vec![32767, 0]), (1, vec![32767, 0]), (1, vec![0, 32767])]);
        // Half as many pixels: 1 and 3 of 8 on each side; the part beside the source is left out.
        assert_eq!(weights(8, 0.0, 8.0, 4)[1], (1, vec![4096, 12288, 12287, 4096]));
        assert_eq!(weights(8, 0.0, 8.0, 4)[0], (0, vec![14043, 14043, 4681, 0]));
        // Twice as many: the middle of the second lies a quarter from the first source pixel's.
        assert_eq!(weights(2, 0.0, 2.0, 4)[1], (0, vec![24575, 8192]));
        assert_eq!(weights(1, 0.0, 1.0, 2), [(0, vec![32767]), (0, vec![32767])]);
    }

    #[test]
    fn what_does_not_count_is_skipped() {
        for mirrored in [false, true] {
            let mut weights = Weights::default();
            // The middle of the image at half of its size.
            weights.set(100, &Span { start: 20.0, scale: 2.0, first: 10, count: 10 }, mirrored);
            assert_eq!((weights.skipped, weights.seen), (39, 22));
            assert_eq!(weights.from(0).map(|(start, _)| start).min(), Some(0));
            assert_eq!(weights.from(0).map(|(start, _)| start).max(), Some(18));
        }
    }

    #[test]
    fn the_weights_are_a_unit_however_many_they_are() {
        for (source, from, span, result) in
            [(65_535, 0.0, 65_535.0, 1), (65_535, 0.3, 65_534.5, 7), (9, 8.9, 0.1, 5), (1, 0.0, 1.0, 4000)]
        {
            for (start, weights) in weights(source, from, span, result) {
                assert_eq!(weights.iter().map(|&weight| i32::from(weight)).sum::<i32>(), 32767);
                assert!(weights.iter().all(|&weight| weight >= 0));
                assert!(start + weights.len() <= source as usize);
            }
        }
    }
}
