//! A decoded image, and its pixels as bytes again: JPEG and PPM.

use shade_formats::index::Media;
use turbojpeg::{Compressor, Error, PixelFormat, Subsamp};

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

    /// The image as a baseline JPEG of `quality` 1 to 100 (Pillow's default is 75) with 4:2:0
    /// chroma subsampling, which is Pillow's default at every quality.
    ///
    /// # Errors
    /// [`ImageFault::Encode`] for another quality and for a side of more than 65,500 pixels.
    pub fn encode_jpeg(&self, quality: u8) -> Result<Vec<u8>, ImageFault> {
        let size = self.size();
        let fault = |text: String| ImageFault::Encode { media: Media::Jpeg, size, text };
        if !(1..=100).contains(&quality) {
            return Err(fault(format!("a quality of {quality}, expected 1 to 100")));
        }
        let width = size.width as usize;
        let pixels = turbojpeg::Image {
            pixels: self.rgb(),
            width,
            pitch: width * 3,
            height: size.height as usize,
            format: PixelFormat::RGB,
        };
        let compress = || -> Result<Vec<u8>, Error> {
            let mut compressor = Compressor::new()?;
            compressor.set_quality(quality.into())?;
            compressor.set_subsamp(Subsamp::Sub2x2)?;
            compressor.compress_to_vec(pixels)
        };
        compress().map_err(|error| fault(error.to_string()))
    }

    /// The image as a binary PPM (`P6`): three lines of header, then the pixels as they are.
    /// Decoding costs no more than a copy.
    #[must_use]
    pub fn encode_ppm(&self) -> Vec<u8> {
        let size = self.size();
        let mut bytes = format!("P6\n{} {}\n255\n", size.width, size.height).into_bytes();
        bytes.extend_from_slice(self.rgb());
        bytes
    }
}

impl std::fmt::Debug for Image {
    /// Its size only.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} x {})", self.size.width, self.size.height)
    }
}
