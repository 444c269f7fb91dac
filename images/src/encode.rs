//! Pixels to bytes: JPEG and PPM.

use shade_formats::index::Media;
use turbojpeg::{Compressor, Error, PixelFormat, Subsamp};

use crate::{Image, ImageFault};

impl Image {
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
