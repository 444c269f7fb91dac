//! One decoder per worker thread: all buffers that images of a kind share.

use shade_formats::control::ImageSpec;
use shade_formats::index::Media;
use shade_images::{ImageFault, Part, Size};

use super::DecodeFault;
use super::chance::{Chance, Draw};
use super::cut::Cut;
use super::row::{RowFault, RowWriter};
use super::whole::write_whole;

/// Decodes records to images of one size, or of their own. Keeps its buffers from image to image, so that small images cost
/// no allocation of ours.
#[derive(Default)]
pub struct Decoder {
    images: shade_images::Decoder,
    rows: RowWriter,
    /// A piece of an image that is delivered whole.
    piece: Vec<u8>,
}

impl Decoder {
    /// A decoder without buffers: the first images grow them.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes `bytes` to the image that `spec` asks for and `draw` decides, and gives it to `write` piece by piece, each
    /// with its first byte in the row: [`ImageSpec::bytes`] in all.
    ///
    /// # Errors
    /// The image is damaged, of an unknown kind, or too large or too small; or what `write` gave. What is written then, is
    /// unspecified.
    pub fn decode<E: From<DecodeFault>>(
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

    /// Decodes all of `bytes`, an image whose size is to be `indexed`, and gives it to `write` piece by piece, each with its
    /// first byte in the row: `3 * width * height` in all. Returns the image's size: `indexed`, or that of a TIFF turned by
    /// its orientation, which takes as many bytes.
    ///
    /// # Errors
    /// The image is damaged, of an unknown kind, too large, or of another size; nothing is written then. Or what `write` gave.
    pub fn decode_whole<E: From<DecodeFault>>(
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

    /// What of an image of `source`'s size [`decode`](Self::decode) asks the image's decoder for.
    ///
    /// # Errors
    /// The image is too small.
    pub fn part(spec: &ImageSpec, draw: Draw, source: Size) -> Result<Part, DecodeFault> {
        Cut::new(source, spec, &mut Chance::new(draw)).map(|cut| cut.part())
    }

    fn decode_to<E: From<DecodeFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        spec: &ImageSpec,
        draw: Draw,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut chance = Chance::new(draw);
        let mut cut = None;
        let decoded = self.images.decode_part(media, bytes, |source| {
            let found = cut.insert(Cut::new(source, spec, &mut chance));
            found.as_ref().map_or(Part::whole(source), Cut::part)
        });
        let pixels = decoded.map_err(DecodeFault::from)?;
        // Only a JPEG asks which part is wanted.
        let cut = cut.unwrap_or_else(|| Cut::new(pixels.source, spec, &mut chance))?;
        self.rows.write(&pixels, &cut, spec, write).map_err(|fault| match fault {
            RowFault::Missing => {
                let text = "what shows in the row was not decoded".to_owned();
                DecodeFault::from(ImageFault::Corrupt { media, text }).into()
            }
            RowFault::Write(error) => error,
        })
    }

    fn decode_whole_to<E: From<DecodeFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        indexed: Size,
        channels_last: bool,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Size, E> {
        let pixels = self.images.decode_part(media, bytes, Part::whole).map_err(DecodeFault::from)?;
        let image = pixels.area.size;
        // The index has the size before any orientation, by which only a TIFF is turned while it is decoded.
        let turned = Size { width: indexed.height, height: indexed.width };
        if image != indexed && !(media == Media::Tiff && image == turned) {
            return Err(DecodeFault::OtherSize { image, indexed }.into());
        }
        write_whole(pixels.rgb, channels_last, &mut self.piece, write)?;
        Ok(image)
    }
}
