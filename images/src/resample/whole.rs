//! Resizes whole images as Pillow's `Image.resize` does, for packing.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use super::Order;
use crate::limits::check_size;
use crate::{Image, ImageFault, Size};

/// Weights of the source's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// A triangle over two pixels: Pillow's `BILINEAR`, torchvision's default.
    Bilinear,
    /// A cubic over four pixels (a = -0.5), sharper: Pillow's `BICUBIC`.
    Bicubic,
}

impl Image {
    /// The image at another size, stretched if the sides' ratio differs.
    ///
    /// # Errors
    /// [`ImageFault::Size`] for no pixels or more than [`crate::IMAGE_PIXELS_MAX`];
    /// [`ImageFault::Resize`] if the resizer refuses, for which no reason is known.
    pub fn resized(&self, to: Size, filter: Filter) -> Result<Self, ImageFault> {
        check_size(to.width.into(), to.height.into())?;
        let from = self.size();
        if from == to {
            return Ok(self.clone());
        }
        let filter = match filter {
            Filter::Bilinear => FilterType::Bilinear,
            // The cubic with a = -0.5, which Pillow means by "bicubic".
            Filter::Bicubic => FilterType::CatmullRom,
        };
        // Pillow rounds to bytes in between: where the cubic has overshot, the other order gives
        // other colours.
        let between = match Order::of(from, to) {
            Order::AcrossFirst => Size { width: to.width, height: from.height },
            Order::DownFirst => Size { width: from.width, height: to.height },
        };
        check_size(between.width.into(), between.height.into())?;
        let once = resize(self.rgb(), from, between, filter)?;
        Self::new(to, resize(&once, between, to, filter)?)
    }
}

/// Resizes the pixels `rgb` of size `from`, in one step.
fn resize(rgb: &[u8], from: Size, to: Size, filter: FilterType) -> Result<Vec<u8>, ImageFault> {
    if from == to {
        return Ok(rgb.to_vec());
    }
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));
    let mut resized = vec![0; to.width as usize * to.height as usize * 3];
    // Typed images: otherwise the resizer compiles for every kind of pixel, which takes minutes.
    let source = TypedImageRef::<U8x3>::from_buffer(from.width, from.height, rgb)
        .map_err(|error| fault(from, to, &error))?;
    let mut target = TypedImage::<U8x3>::from_buffer(to.width, to.height, &mut resized)
        .map_err(|error| fault(from, to, &error))?;
    Resizer::new().resize_typed(&source, &mut target, &options).map_err(|error| fault(from, to, &error))?;
    drop(target);
    Ok(resized)
}

fn fault(from: Size, to: Size, error: &dyn std::error::Error) -> ImageFault {
    ImageFault::Resize { from, to, text: error.to_string() }
}
