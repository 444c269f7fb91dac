//! From interleaved RGB to the target's three planes: resize, then one plane per colour.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use shade_images::{SCRATCH_KEEP_BYTES, Size, scratch, shrink};

use super::fit::{Fit, SourceBox};

/// Resizes and writes planes; keeps its buffers between images.
#[derive(Default)]
pub(super) struct Planes {
    resizer: Resizer,
    resized: Vec<u8>,
}

impl Planes {
    /// Writes `rgb`, which is the source reduced `by` and has `size`, fitted to `target`, as planes into `out`.
    ///
    /// Bilinear with antialias, the filter and the rounding of PIL's `BILINEAR`, which is torchvision's default.
    /// The text of an error is the resizer's.
    pub(super) fn write(
        &mut self,
        rgb: &[u8],
        size: Size,
        by: u32,
        fit: &Fit,
        target: Size,
        out: &mut [u8],
    ) -> Result<(), String> {
        if by == 1
            && let Some((left, top)) = fit.crop_only()
        {
            split(rgb, size.width as usize, left, top, target, out);
            return Ok(());
        }
        let resized = scratch(&mut self.resized, out.len());
        let from = TypedImageRef::<U8x3>::from_buffer(size.width, size.height, rgb).map_err(text)?;
        let mut to = TypedImage::<U8x3>::from_buffer(target.width, target.height, resized).map_err(text)?;
        let SourceBox { left, top, width, height } = fit.source_box(by);
        // Division may leave the far edge a rounding error outside.
        let width = width.min(f64::from(size.width) - left);
        let height = height.min(f64::from(size.height) - top);
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .crop(left, top, width, height);
        self.resizer.resize_typed(&from, &mut to, &options).map_err(text)?;
        drop(to);
        split(resized, target.width as usize, 0, 0, target, out);
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

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Copies the box of `size` at (`left`, `top`) of an interleaved image of `stride` columns into three planes.
fn split(rgb: &[u8], stride: usize, left: usize, top: usize, size: Size, out: &mut [u8]) {
    let (width, height) = (size.width as usize, size.height as usize);
    let (red, rest) = out.split_at_mut(width * height);
    let (green, blue) = rest.split_at_mut(width * height);
    let rows = rgb.chunks_exact(stride * 3).skip(top);
    let planes =
        red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
    for (row, ((red, green), blue)) in rows.zip(planes) {
        let (pixels, _) = row.as_chunks::<3>();
        let colours = red.iter_mut().zip(green).zip(blue);
        for (&[r, g, b], ((red, green), blue)) in pixels.iter().skip(left).zip(colours) {
            (*red, *green, *blue) = (r, g, b);
        }
    }
}
