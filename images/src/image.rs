//! A decoded image.

use crate::limits::check_size;
use crate::{ImageFault, Orientation, Size};

/// Pixels of 8-bit RGB, interleaved, row after row from the top. Has at least one pixel and exactly
/// 3 bytes for each.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    size: Size,
    rgb: Vec<u8>,
}

impl Image {
    /// An image of `size` with the pixels `rgb`: `3 * width * height` bytes.
    ///
    /// # Errors
    /// [`ImageFault::Size`] for no pixels or more than [`crate::IMAGE_PIXELS_MAX`];
    /// [`ImageFault::Pixels`] for another number of bytes.
    pub fn new(size: Size, rgb: Vec<u8>) -> Result<Self, ImageFault> {
        check_size(size.width.into(), size.height.into())?;
        let (got, expected) = (rgb.len() as u64, size.pixels() * 3);
        if got != expected {
            return Err(ImageFault::Pixels { got, expected });
        }
        Ok(Self { size, rgb })
    }

    /// Columns and rows.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// The pixels: `3 * width * height` bytes.
    #[must_use]
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Takes the pixels out.
    #[must_use]
    pub fn into_rgb(self) -> Vec<u8> {
        self.rgb
    }

    /// The image turned upright, as Pillow's `ImageOps.exif_transpose` does it.
    #[must_use]
    pub fn oriented(self, orientation: Orientation) -> Self {
        if orientation == Orientation::Upright {
            return self;
        }
        Self { size: orientation.turned(self.size), rgb: orientation.turn(&self.rgb, self.size) }
    }
}

impl std::fmt::Debug for Image {
    /// Its size only.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} x {})", self.size.width, self.size.height)
    }
}
