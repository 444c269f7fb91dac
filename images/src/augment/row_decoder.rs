//! From a record to a row of a batch: one decoder per worker thread, with all buffers that images
//! share.

use shade_formats::Draw;
use shade_formats::control::ImageSpec;
use shade_formats::index::Media;

use super::crop_box::CropBox;
use super::randomness::Randomness;
use super::row::{RowFault, RowWriter};
use super::whole::write_whole;
use crate::{Decoder, ImageFault, JpegDecoder, Part, Size};

/// Decodes records to images of one size, or of their own. Keeps its buffers from image to image,
/// so that small images cost no allocation of ours.
#[derive(Default)]
pub struct RowDecoder {
    images: Decoder,
    rows: RowWriter,
    /// A piece of an image that is delivered whole.
    piece: Vec<u8>,
}

impl RowDecoder {
    /// A decoder without buffers: the first images grow them. JPEGs are decoded by `jpeg`.
    #[must_use]
    pub fn new(jpeg: JpegDecoder) -> Self {
        Self { images: Decoder::with_jpeg(jpeg), ..Self::default() }
    }

    /// Decodes `bytes` to the image that `spec` asks for and `draw` decides, and gives it to
    /// `write` piece by piece, each with its first byte in the row: [`ImageSpec::bytes`] in all.
    ///
    /// # Errors
    /// The image is damaged, of an unknown kind, or too large or too small; or what `write` gave.
    /// The row is unspecified then.
    pub fn decode<E: From<ImageFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        spec: &ImageSpec,
        draw: Draw,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let written = self.decode_to(media, bytes, spec, draw, write);
        self.images.shrink();
        self.rows.shrink();
        written
    }

    /// Decodes all of `bytes`, an image whose size is to be `indexed`, and gives it to `write`
    /// piece by piece, each with its first byte in the row: `3 * width * height` in all. Returns
    /// the image's size: `indexed`, or that of a TIFF turned by its orientation, which takes as
    /// many bytes.
    ///
    /// # Errors
    /// The image is damaged, of an unknown kind, too large, or of another size; nothing is written
    /// then. Or what `write` gave.
    pub fn decode_whole<E: From<ImageFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        indexed: Size,
        channels_last: bool,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Size, E> {
        let written = self.decode_whole_to(media, bytes, indexed, channels_last, write);
        self.images.shrink();
        written
    }

    /// The part that [`decode`](Self::decode) asks for of an image of `source`'s size.
    ///
    /// # Errors
    /// The image is too small.
    pub fn part(spec: &ImageSpec, draw: Draw, source: Size) -> Result<Part, ImageFault> {
        CropBox::new(source, spec, &mut Randomness::new(draw)).map(|crop| crop.part())
    }

    fn decode_to<E: From<ImageFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        spec: &ImageSpec,
        draw: Draw,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut random = Randomness::new(draw);
        let mut crop = None;
        let decoded = self.images.decode_part(media, bytes, |source| {
            let found = crop.insert(CropBox::new(source, spec, &mut random));
            found.as_ref().map_or(Part::whole(source), CropBox::part)
        });
        let pixels = decoded?;
        // Only a JPEG asks which part is wanted.
        let crop = crop.unwrap_or_else(|| CropBox::new(pixels.source, spec, &mut random))?;
        self.rows.write(&pixels, &crop, spec, write).map_err(|fault| match fault {
            RowFault::Missing => {
                let text = "what shows in the row was not decoded".to_owned();
                ImageFault::Corrupt { media, text }.into()
            }
            RowFault::Write(error) => error,
        })
    }

    fn decode_whole_to<E: From<ImageFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        indexed: Size,
        channels_last: bool,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Size, E> {
        let pixels = self.images.decode_part(media, bytes, Part::whole)?;
        let image = pixels.area.size;
        // The index has the size before any orientation, by which only a TIFF is turned while it is
        // decoded.
        let turned = Size { width: indexed.height, height: indexed.width };
        if image != indexed && !(media == Media::Tiff && image == turned) {
            return Err(ImageFault::OtherSize { image, indexed }.into());
        }
        write_whole(pixels.rgb, channels_last, &mut self.piece, write)?;
        Ok(image)
    }
}
