//! From decoded pixels to a row of the batch: resizes, mirrors, orders colours and writes, some
//! lines at a time.

use shade_job::ImageSpec;

use super::crop_box::CropBox;
use super::planes::{split, split_mirrored, to_grey};
use crate::part::Span;
use crate::resample::{LINES, Resampler, Source};
use crate::{Area, Pixels, Size, scratch, shrink};

/// Bytes of lines that are written at a time without resizing: few enough for the L1 cache, and
/// enough for small images to be one write per colour.
const BAND_BYTES: usize = 16 * 1024;

/// Why a row could not be written.
pub(super) enum RowFault<E> {
    /// A visible part of the image was not decoded.
    Missing,
    /// The error of the caller's function.
    Write(E),
}

/// Resizes and writes rows; keeps its buffers between images.
#[derive(Default)]
pub(super) struct RowWriter {
    resampler: Resampler,
    band: Vec<u8>,
    /// A band in grey.
    grey: Vec<u8>,
}

impl RowWriter {
    /// Passes the row that `crop` makes of `pixels` to `write`, piece by piece, each with its
    /// offset in the row. Every byte of the row is written.
    pub(super) fn write<E>(
        &mut self,
        pixels: &Pixels<'_>,
        crop: &CropBox,
        spec: &ImageSpec,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), RowFault<E>> {
        let place = crop.place();
        if place != Some(Area::whole(Size { width: spec.width, height: spec.height })) {
            let bytes = u64::from(spec.shape().channels) * u64::from(spec.width);
            let line = scratch(&mut self.band, usize::try_from(bytes).unwrap_or(usize::MAX));
            line.fill(0);
            for row in 0..u64::from(spec.height) {
                write(row * bytes, line).map_err(RowFault::Write)?;
            }
        }
        let (Some(place), Some(spans)) = (place, crop.spans(pixels.reduced_by)) else {
            return Ok(());
        };
        let x = if crop.flips { spec.width - place.left - place.size.width } else { place.left };
        let target = Target { spec, x, width: place.size.width, flips: crop.flips };
        if let Some(area) = crop.crop_only().filter(|_| pixels.reduced_by == 1) {
            return self.copy(pixels, area, place.top, &target, write).map_err(RowFault::Write);
        }
        let scope = crop.scope(pixels.reduced_by);
        let (source, spans) = within(pixels, scope, spans).ok_or(RowFault::Missing)?;
        let Self { resampler, grey, .. } = self;
        resampler.start(crop.resampling, crop.order(), source.size, spans, crop.flips);
        for first in (0..place.size.height).step_by(LINES) {
            let band = resampler.band(&source, first as usize, target.is_interleaved());
            let count = LINES.min((place.size.height - first) as usize);
            target.band(place.top + first, count, band, grey, &mut write).map_err(RowFault::Write)?;
        }
        Ok(())
    }

    /// Writes `crop` of `pixels` as it is, from line `top` on.
    fn copy<E>(
        &mut self,
        pixels: &Pixels<'_>,
        crop: Area,
        top: u32,
        target: &Target<'_>,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Area { left, top: decoded_top, size } = pixels.area;
        let (left, skipped) = (crop.left.saturating_sub(left), crop.top.saturating_sub(decoded_top));
        let shown = 3 * crop.size.width as usize;
        if target.takes_lines_whole(size.width) {
            let lines = pixels.rgb.get(shown * skipped as usize..).unwrap_or_default();
            let lines = lines.get(..shown * crop.size.height as usize).unwrap_or_default();
            return target.out(top, 3, 0, lines, &mut write);
        }
        let lines = pixels.rgb.chunks_exact(3 * size.width as usize).skip(skipped as usize);
        let mut lines = lines.filter_map(|line| line.get(3 * left as usize..)?.get(..shown));
        let band_lines = (BAND_BYTES / shown.max(1)).max(1);
        let Self { band, grey, .. } = self;
        let band = scratch(band, shown * band_lines);
        for first in (0..crop.size.height).step_by(band_lines) {
            let count = band_lines.min((crop.size.height - first) as usize);
            let band = band.get_mut(..shown * count).unwrap_or_default();
            target.order(lines.by_ref().take(count), band);
            target.band(top + first, count, band, grey, &mut write)?;
        }
        Ok(())
    }

    /// Frees the buffers if a large image made them grow.
    pub(super) fn shrink(&mut self) {
        self.resampler.shrink();
        shrink(&mut self.band);
        shrink(&mut self.grey);
    }
}

/// The pixels in `scope`, and the places of `spans` in them. `None` if these are not there.
fn within<'a>(pixels: &Pixels<'a>, scope: Area, spans: [Span; 2]) -> Option<(Source<'a>, [Span; 2])> {
    let Area { left, top, size } = pixels.area;
    // The decoded part of the scope.
    let from_left = scope.left.max(left);
    let from_top = scope.top.max(top);
    let width = (scope.left + scope.size.width).min(left + size.width).checked_sub(from_left)?;
    let height = (scope.top + scope.size.height).min(top + size.height).checked_sub(from_top)?;
    let pitch = 3 * size.width as usize;
    let first = (from_top - top) as usize * pitch + 3 * (from_left - left) as usize;
    let source = Source { rgb: pixels.rgb.get(first..)?, pitch, size: Size { width, height } };
    let [mut across, mut down] = spans;
    across.start -= f64::from(from_left);
    down.start -= f64::from(from_top);
    let is_within = |span: &Span, side: u32| {
        let last = span.count.checked_sub(1).map(|last| span.middle(last));
        span.middle(0) >= 0.0 && last.is_some_and(|last| last <= f64::from(side))
    };
    (is_within(&across, width) && is_within(&down, height)).then_some((source, [across, down]))
}

/// The place of an image's lines in a row.
struct Target<'a> {
    spec: &'a ImageSpec,
    /// First column and number of columns, in the row as it is delivered.
    x: u32,
    width: u32,
    flips: bool,
}

impl Target<'_> {
    /// Whether a band's colours lie side by side. Grey is made of planes.
    fn is_interleaved(&self) -> bool {
        self.spec.channels_last && !self.spec.grey
    }

    /// Whether lines of `width` pixels are delivered as they are, without gaps.
    fn takes_lines_whole(&self, width: u32) -> bool {
        self.is_interleaved() && !self.flips && self.width == width && self.width == self.spec.width
    }

    /// Fills `band`, which has just the room, with `lines` of interleaved colours as they are
    /// delivered.
    fn order<'l>(&self, lines: impl Iterator<Item = &'l [u8]>, band: &mut [u8]) {
        let width = self.width as usize;
        if self.is_interleaved() {
            for (line, to) in lines.zip(band.chunks_exact_mut(3 * width)) {
                self.interleaved(line, to);
            }
            return;
        }
        let plane = band.len() / 3;
        let (red, rest) = band.split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        let colours =
            red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
        for (line, ((red, green), blue)) in lines.zip(colours) {
            let (pixels, _) = line.as_chunks::<3>();
            if self.flips {
                split_mirrored(pixels, red, green, blue);
            } else {
                split(pixels, red, green, blue);
            }
        }
    }

    /// A line as it is, or mirrored.
    fn interleaved(&self, line: &[u8], to: &mut [u8]) {
        if !self.flips {
            to.copy_from_slice(line);
            return;
        }
        let (mirrored, _) = to.as_chunks_mut::<3>();
        for (to, from) in mirrored.iter_mut().zip(line.as_chunks::<3>().0.iter().rev()) {
            *to = *from;
        }
    }

    /// Writes the first `count` lines of `band`, which may have more, as lines `row..`:
    /// interleaved, of each plane, or in grey, for which `grey` is a buffer.
    fn band<E>(
        &self,
        row: u32,
        count: usize,
        band: &[u8],
        grey: &mut Vec<u8>,
        write: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.width as usize * count;
        if self.is_interleaved() {
            return self.out(row, 3, 0, band.get(..3 * bytes).unwrap_or_default(), write);
        }
        let mut planes = band.chunks_exact((band.len() / 3).max(1));
        if self.spec.grey {
            let [red, green, blue] = [(); 3].map(|()| planes.next().unwrap_or_default());
            let grey = scratch(grey, bytes);
            to_grey(red, green, blue, grey);
            return self.out(row, 1, 0, grey, write);
        }
        let pixels = u64::from(self.spec.width) * u64::from(self.spec.height);
        (0..).zip(planes).try_for_each(|(colour, plane)| {
            self.out(row, 1, colour * pixels, plane.get(..bytes).unwrap_or_default(), write)
        })
    }

    /// Writes `lines` with `values` bytes a pixel at `base`, from line `row` on; in one piece if
    /// they fill the row's width.
    fn out<E>(
        &self,
        row: u32,
        values: u64,
        base: u64,
        lines: &[u8],
        write: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = |row: u32| base + values * (u64::from(row) * u64::from(self.spec.width) + u64::from(self.x));
        if self.width == self.spec.width {
            return write(at(row), lines);
        }
        let bytes = self.width as usize * if values == 3 { 3 } else { 1 };
        (row..).zip(lines.chunks_exact(bytes)).try_for_each(|(row, line)| write(at(row), line))
    }
}
