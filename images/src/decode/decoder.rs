//! One decoder per thread, with the buffers that all its images share.

use shade_formats::index::{Media, sniff};

use super::jpeg::JpegDecoder;
use super::{bmp, jpeg, png, ppm, tiff, webp};
use crate::limits::shrink;
use crate::{Area, Image, ImageFault, Part, Size};

/// Decodes images of every kind. Keeps its buffers from image to image, except large ones, so that
/// small images cost no allocation of ours.
#[derive(Default)]
pub struct Decoder {
    jpeg: jpeg::Jpeg,
    /// Pixels before they are converted to RGB.
    samples: Vec<u8>,
    rgb: Vec<u8>,
}

/// A decoded image, in the decoder's own buffer or in the bytes that it was decoded from.
#[derive(Clone, Copy)]
pub struct Pixels<'a> {
    /// 8-bit RGB, interleaved: 3 bytes for each pixel of `area`.
    pub rgb: &'a [u8],
    /// The place of these pixels in the image divided by `reduced_by`.
    pub area: Area,
    /// The image's true size.
    pub source: Size,
    /// 1, 2, 4 or 8; 1 for all but JPEG. Sides are rounded up.
    pub reduced_by: u32,
}

impl Decoder {
    /// A decoder without buffers: the first images grow them.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that decodes JPEGs by `jpeg`.
    #[must_use]
    pub fn with_jpeg(jpeg: JpegDecoder) -> Self {
        Self { jpeg: jpeg::Jpeg::new(jpeg), ..Self::default() }
    }

    /// Decodes `bytes` to the pixels of `PIL.Image.open(f).convert("RGB")`. The first bytes tell
    /// the kind of image.
    ///
    /// # Errors
    /// The image is damaged, of a kind or variant that cannot be decoded, or too large.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Image, ImageFault> {
        let decoded = self.decode_part(sniff(bytes).0, bytes, Part::whole);
        let image = decoded.and_then(|pixels| Image::new(pixels.area.size, pixels.rgb.to_vec()));
        self.shrink();
        image
    }

    /// Decodes a part of `bytes`, an image of the kind `media`. `part` chooses it by the image's
    /// size.
    ///
    /// Only a JPEG is decoded in part. Rows below the part are not read, so damage there is not
    /// found. Call [`Decoder::shrink`] once the pixels are used.
    ///
    /// # Errors
    /// As for [`Decoder::decode`], and for an unknown reduction.
    pub fn decode_part<'a>(
        &'a mut self,
        media: Media,
        bytes: &'a [u8],
        part: impl FnOnce(Size) -> Part,
    ) -> Result<Pixels<'a>, ImageFault> {
        let Self { jpeg, samples, rgb } = self;
        let mut in_place = None;
        let whole = |size| (size, Area::whole(size), 1);
        let (source, area, reduced_by) = match media {
            Media::Jpeg => {
                let decoded = jpeg.decode(bytes, part, samples, rgb)?;
                (decoded.source, decoded.area, decoded.reduced_by)
            }
            Media::Png => whole(png::decode(bytes, samples, rgb)?),
            Media::Webp => whole(webp::decode(bytes, samples, rgb)?),
            Media::Ppm => {
                let (size, pixels) = ppm::decode(bytes, rgb)?;
                in_place = pixels;
                whole(size)
            }
            Media::Bmp => whole(bmp::decode(bytes, rgb)?),
            Media::Tiff => whole(tiff::decode(bytes, rgb)?),
            Media::Gif | Media::Other => {
                let detail = "only jpeg, png, webp, ppm, bmp and tiff can";
                return Err(ImageFault::unsupported(media, detail));
            }
        };
        let bytes = area.size.width as usize * area.size.height as usize * 3;
        let rgb = in_place.unwrap_or(rgb).get(..bytes).unwrap_or_default();
        Ok(Pixels { rgb, area, source, reduced_by })
    }

    /// Frees buffers that a large image made grow.
    pub fn shrink(&mut self) {
        self.jpeg.shrink();
        shrink(&mut self.samples);
        shrink(&mut self.rgb);
    }
}
