//! One decoder per thread, with the buffers that all its images share.

use shade_formats::index::{KIND_BYTES, Kind, Media, sniff};
use shade_job::JpegDecoder;

use super::jpeg::{Decoded, Jpeg};
use super::{bmp, png, ppm, tiff, webp};
use crate::guard::caught;
use crate::limits::shrink;
use crate::{Area, Image, ImageFault, Part, Size};

/// Decodes images of every kind. Keeps its buffers from image to image, except large ones, so that
/// small images cost no allocation of ours.
#[derive(Default)]
pub struct Decoder {
    jpeg: Jpeg,
    /// Pixels before they are converted to RGB.
    samples: Vec<u8>,
    rgb: Vec<u8>,
    /// See [`Pixels::note`].
    note: Option<String>,
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
    /// What is wrong with the file although all its pixels are there, as in Pillow.
    pub note: Option<&'a str>,
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
        Self { jpeg: Jpeg::new(jpeg), ..Self::default() }
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
    /// As for [`Decoder::decode`], and for an unknown reduction. A panic of the decoder is a fault,
    /// too.
    pub fn decode_part<'a>(
        &'a mut self,
        media: Media,
        bytes: &'a [u8],
        part: impl FnOnce(Size) -> Part,
    ) -> Result<Pixels<'a>, ImageFault> {
        self.note = None;
        let decoded = caught(|| self.decode_any(media, bytes, part)).unwrap_or_else(|text| {
            // The panic may have left the buffers half-changed.
            *self = Self::with_jpeg(self.jpeg.decoder());
            Err(ImageFault::Panicked { media, text })
        });
        let (Decoded { source, area, reduced_by }, in_place) = decoded?;
        let bytes = area.size.width as usize * area.size.height as usize * 3;
        let rgb = in_place.unwrap_or(&self.rgb).get(..bytes).unwrap_or_default();
        Ok(Pixels { rgb, area, source, reduced_by, note: self.note.as_deref() })
    }

    /// Decodes into `self.rgb`, unless the pixels stand in `bytes`, which are returned then.
    fn decode_any<'b>(
        &mut self,
        media: Media,
        bytes: &'b [u8],
        part: impl FnOnce(Size) -> Part,
    ) -> Result<(Decoded, Option<&'b [u8]>), ImageFault> {
        let Self { jpeg, samples, rgb, note } = self;
        let size = match media {
            Media::Jpeg => return Ok((jpeg.decode(bytes, part, samples, rgb, note)?, None)),
            Media::Ppm => {
                let (size, in_place) = ppm::decode(bytes, rgb)?;
                return Ok((Decoded::whole(size), in_place));
            }
            Media::Png => png::decode(bytes, samples, rgb, note)?,
            Media::Webp => webp::decode(bytes, samples, rgb, note)?,
            Media::Bmp => bmp::decode(bytes, rgb)?,
            Media::Tiff => tiff::decode(bytes, samples, rgb)?,
            Media::Gif | Media::Other => {
                return Err(match Kind::of(bytes.get(..KIND_BYTES).unwrap_or(bytes)) {
                    Kind::NoImage(what) => ImageFault::NoImage { what },
                    Kind::OtherImage(kind) => ImageFault::NoDecoder { kind },
                    Kind::Image(kind) => {
                        ImageFault::corrupt(kind, "its index says that it is of another kind")
                    }
                });
            }
        };
        Ok((Decoded::whole(size), None))
    }

    /// Frees buffers that a large image made grow.
    pub fn shrink(&mut self) {
        self.jpeg.shrink();
        shrink(&mut self.samples);
        shrink(&mut self.rgb);
    }
}
