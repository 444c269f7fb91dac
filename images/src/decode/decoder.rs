//! One decoder per thread: all buffers that images of a kind share.

use shade_formats::index::{Media, sniff};

use super::jpeg::JpegDecoder;
use super::{bmp, jpeg, png, ppm, tiff, webp};
use crate::limits::shrink;
use crate::{Area, Image, ImageFault, Part, Size};

/// Decodes images of every kind. Keeps its buffers from image to image, unless one was large, so
/// that small images cost no allocation of ours.
#[derive(Default)]
pub struct Decoder {
    jpeg: jpeg::Jpeg,
    png: png::Png,
    webp: webp::Webp,
    rgb: Vec<u8>,
}

/// A decoded image, in the decoder's own buffer or in the bytes that it was decoded from.
#[derive(Clone, Copy)]
pub struct Pixels<'a> {
    /// 8-bit RGB, interleaved: 3 bytes for each pixel of `area`.
    pub rgb: &'a [u8],
    /// Which pixels these are of the image divided by `reduced_by`.
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

    /// One whose JPEGs are decoded by `jpeg`.
    #[must_use]
    pub fn with_jpeg(jpeg: JpegDecoder) -> Self {
        Self { jpeg: jpeg::Jpeg::new(jpeg), ..Self::default() }
    }

    /// Decodes `bytes`, whose kind their beginning tells, to what
    /// `PIL.Image.open(f).convert("RGB")` gives.
    ///
    /// # Errors
    /// The image is damaged, of a kind or variant that cannot be decoded, or too large.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Image, ImageFault> {
        let decoded = self.decode_part(sniff(bytes).0, bytes, Part::whole);
        let image = decoded.and_then(|pixels| Image::new(pixels.area.size, pixels.rgb.to_vec()));
        self.shrink();
        image
    }

    /// Decodes `bytes`, which are of the kind `media`, into the decoder's buffer, unless the pixels
    /// stand in them as they are. `part` is asked, for the image's size, what is wanted; of a JPEG
    /// little else is decoded: rows below the part are not even looked at, so that damage there is
    /// not found.
    ///
    /// [`Decoder::shrink`] belongs behind it once the pixels are used.
    ///
    /// # Errors
    /// As for [`Decoder::decode`], and for a reduction that there is not.
    pub fn decode_part<'a>(
        &'a mut self,
        media: Media,
        bytes: &'a [u8],
        part: impl FnOnce(Size) -> Part,
    ) -> Result<Pixels<'a>, ImageFault> {
        let rgb = &mut self.rgb;
        let mut in_place = None;
        let whole = |size| (size, Area::whole(size), 1);
        let (source, area, reduced_by) = match media {
            Media::Jpeg => {
                let decoded = self.jpeg.decode(bytes, part, rgb)?;
                (decoded.source, decoded.area, decoded.reduced_by)
            }
            Media::Png => whole(self.png.decode(bytes, rgb)?),
            Media::Webp => whole(self.webp.decode(bytes, rgb)?),
            Media::Ppm => {
                let (size, pixels) = ppm::decode(bytes, rgb)?;
                in_place = pixels;
                whole(size)
            }
            Media::Bmp => whole(bmp::decode(bytes, rgb)?),
            Media::Tiff => whole(tiff::decode(bytes, rgb)?),
            Media::Gif | Media::Other => {
                let detail = "only jpeg, png, webp, ppm, bmp and tiff can".to_owned();
                return Err(ImageFault::Unsupported { media, detail });
            }
        };
        let bytes = area.size.width as usize * area.size.height as usize * 3;
        let rgb = in_place.unwrap_or(&self.rgb).get(..bytes).unwrap_or_default();
        Ok(Pixels { rgb, area, source, reduced_by })
    }

    /// Gives back what one large image made the buffers grow to.
    pub fn shrink(&mut self) {
        self.jpeg.shrink();
        self.png.shrink();
        self.webp.shrink();
        shrink(&mut self.rgb);
    }
}
