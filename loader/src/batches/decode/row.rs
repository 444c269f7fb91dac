//! From decoded pixels to a row of the batch: resize, mirror, order of colours, and out, some lines at a time.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use shade_formats::control::ImageSpec;
use shade_images::{Area, Pixels, SCRATCH_KEEP_BYTES, scratch, shrink};

use super::colours::{split, split_mirrored};
use super::cut::{Cut, FloatBox};

/// Bytes of the lines that are written at a time: few enough for the CPU's first cache, so many that small images are one write for each
/// colour.
const BAND_BYTES: usize = 16 * 1024;

/// Why a row could not be written.
pub(super) enum RowFault<E> {
    /// In the resizer's words.
    Resize(String),
    /// What the caller's function gave.
    Write(E),
}

/// Resizes and writes rows; keeps its buffers between images.
#[derive(Default)]
pub(super) struct RowWriter {
    resizer: Resizer,
    resized: Vec<u8>,
    band: Vec<u8>,
}

impl RowWriter {
    /// Gives what `cut` takes of `pixels` to `write`, piece by piece, each with its byte in the row. Every byte of the row is
    /// written.
    ///
    /// Bilinear with antialias, the filter and the rounding of PIL's `BILINEAR`, which is torchvision's default.
    pub(super) fn write<E>(
        &mut self,
        pixels: &Pixels<'_>,
        cut: &Cut,
        spec: &ImageSpec,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), RowFault<E>> {
        let place = cut.place();
        if place != Some(Area::whole(shade_images::Size { width: spec.width, height: spec.height })) {
            let line = scratch(&mut self.band, 3 * spec.width as usize);
            line.fill(0);
            for row in 0..u64::from(spec.height) {
                write(row * 3 * u64::from(spec.width), line).map_err(RowFault::Write)?;
            }
        }
        let (Some(place), Some(source_box)) = (place, cut.source_box(pixels.reduced_by)) else {
            return Ok(());
        };
        let uncut = cut.crop_only().filter(|_| pixels.reduced_by == 1);
        let (rgb, columns, left, top) = match uncut {
            Some(crop) => {
                let Area { left, top, size } = pixels.area;
                (pixels.rgb, size.width, crop.left.saturating_sub(left), crop.top.saturating_sub(top))
            }
            None => {
                let bytes = place.size.width as usize * place.size.height as usize * 3;
                let resized = scratch(&mut self.resized, bytes);
                resize(&mut self.resizer, pixels, cut.scope(pixels.reduced_by), source_box, place, resized)
                    .map_err(RowFault::Resize)?;
                (&*resized, place.size.width, 0, 0)
            }
        };
        let shown = 3 * place.size.width as usize;
        let lines = rgb.chunks_exact(3 * columns as usize).skip(top as usize);
        let mut lines = lines.filter_map(|line| line.get(3 * left as usize..)?.get(..shown));
        let x = if cut.flips { spec.width - place.left - place.size.width } else { place.left };
        let target = Target { spec, x, width: place.size.width, flips: cut.flips };
        let band_lines = target.band_lines();
        let band = scratch(&mut self.band, shown * band_lines as usize);
        let bottom = place.top + place.size.height;
        for row in (place.top..bottom).step_by(band_lines as usize) {
            let count = band_lines.min(bottom - row);
            let band = band.get_mut(..shown * count as usize).unwrap_or_default();
            target
                .band(row, count, lines.by_ref().take(count as usize), band, &mut write)
                .map_err(RowFault::Write)?;
        }
        Ok(())
    }

    /// Gives back what one large image made the buffers grow to.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.resized);
        if self.resizer.size_of_internal_buffers() > SCRATCH_KEEP_BYTES {
            self.resizer.reset_internal_buffers();
        }
    }
}

/// Resizes what lies in `source_box` to the size of `place`, looking at nothing outside of `scope`.
fn resize(
    resizer: &mut Resizer,
    pixels: &Pixels<'_>,
    scope: Area,
    source_box: FloatBox,
    place: Area,
    resized: &mut [u8],
) -> Result<(), String> {
    let Area { left, top, size } = pixels.area;
    let all = TypedImageRef::<U8x3>::from_buffer(size.width, size.height, pixels.rgb).map_err(text)?;
    // Of the scope, what was decoded.
    let from_left = scope.left.max(left);
    let from_top = scope.top.max(top);
    let width = (scope.left + scope.size.width).min(left + size.width).saturating_sub(from_left);
    let height = (scope.top + scope.size.height).min(top + size.height).saturating_sub(from_top);
    let view =
        TypedCroppedImage::from_ref(&all, from_left - left, from_top - top, width, height).map_err(text)?;
    let mut to =
        TypedImage::<U8x3>::from_buffer(place.size.width, place.size.height, resized).map_err(text)?;
    // Division may leave an edge a rounding error outside.
    let box_left = (source_box.left - f64::from(from_left)).max(0.0);
    let box_top = (source_box.top - f64::from(from_top)).max(0.0);
    let box_width = source_box.width.min(f64::from(width) - box_left);
    let box_height = source_box.height.min(f64::from(height) - box_top);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .crop(box_left, box_top, box_width, box_height);
    resizer.resize_typed(&view, &mut to, &options).map_err(text)
}

/// Where the lines of an image go in a row.
struct Target<'a> {
    spec: &'a ImageSpec,
    /// First column and number of columns, in the row as it is delivered.
    x: u32,
    width: u32,
    flips: bool,
}

impl Target<'_> {
    /// How many lines are written at a time, at least 1.
    fn band_lines(&self) -> u32 {
        let line = 3 * self.width.max(1) as usize;
        u32::try_from(BAND_BYTES / line).unwrap_or(1).max(1)
    }

    /// Writes `count` lines of interleaved colours as lines `row..`. `band` has room for just these.
    fn band<'l, E>(
        &self,
        row: u32,
        count: u32,
        lines: impl Iterator<Item = &'l [u8]>,
        band: &mut [u8],
        write: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let width = self.width as usize;
        if self.spec.channels_last {
            for (line, to) in lines.zip(band.chunks_exact_mut(3 * width)) {
                self.interleaved(line, to);
            }
            return self.out(row, 3, 0, band, write);
        }
        let plane = width * count as usize;
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
        let pixels = u64::from(self.spec.width) * u64::from(self.spec.height);
        (0..)
            .zip(band.chunks_exact(plane))
            .try_for_each(|(colour, plane)| self.out(row, 1, colour * pixels, plane, write))
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

    /// Writes `lines`, from line `row` on and with `values` a pixel, into what begins at `base`: at once where they fill the
    /// row's width.
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

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
