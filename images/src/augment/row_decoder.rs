//! From a record to a row of a batch: one decoder per worker thread, with the buffers that all
//! images share.

use shade_formats::Draw;
use shade_formats::control::ImageSpec;
use shade_formats::index::Media;

use super::crop_box::CropBox;
use super::pixels::Workbench;
use super::randomness::Randomness;
use super::row::{RowFault, RowWriter};
use super::whole::{write_planes, write_whole};
use crate::{Decoder, ImageFault, JpegDecoder, Part, Size};

/// Decodes records to images of one size, or of their own sizes. Keeps its buffers from image to
/// image, so that small images cost no allocation of ours.
#[derive(Default)]
pub struct RowDecoder {
    images: Decoder,
    rows: RowWriter,
    /// A row whose pixels change once more.
    bench: Workbench,
    /// A piece of an image that is delivered whole.
    piece: Vec<u8>,
}

impl RowDecoder {
    /// A decoder without buffers: the first images grow them. JPEGs are decoded by `jpeg`.
    #[must_use]
    pub fn new(jpeg: JpegDecoder) -> Self {
        Self { images: Decoder::with_jpeg(jpeg), ..Self::default() }
    }

    /// Decodes `bytes` to the image that `spec` and `draw` define, and passes it to `write` piece
    /// by piece, each with its offset in the row: [`ImageSpec::bytes`] in all.
    ///
    /// # Errors
    /// The image is damaged, of an unknown kind, too large or too small; or `write`'s error. The
    /// row is unspecified then.
    pub fn decode<E: From<ImageFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        spec: &ImageSpec,
        draw: Draw,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let decode = || {
            let mut random = Randomness::new(draw);
            let mut crop = None;
            let decoded = self.images.decode_part(media, bytes, |source| {
                let found = crop.insert(CropBox::new(source, spec, &mut random));
                found.as_ref().map_or(Part::whole(source), CropBox::part)
            });
            let pixels = decoded?;
            // Only a JPEG's decoder asks for the part.
            let crop = crop.unwrap_or_else(|| CropBox::new(pixels.source, spec, &mut random))?;
            let unseen = || ImageFault::corrupt(media, "a visible part of the image was not decoded");
            if spec.pixels.is_empty() && !crop.upside_down {
                return self.rows.write(&pixels, &crop, spec, write).map_err(|fault| match fault {
                    RowFault::Missing => unseen().into(),
                    RowFault::Write(error) => error,
                });
            }
            let planar = ImageSpec { channels_last: false, ..*spec };
            let row = self.bench.room(spec);
            let copy = |at, piece: &[u8]| {
                let at = usize::try_from(at).ok();
                let place = at.and_then(|at| row.get_mut(at..)?.get_mut(..piece.len()));
                place.map(|place| place.copy_from_slice(piece)).ok_or(())
            };
            self.rows.write(&pixels, &crop, &planar, copy).map_err(|_| unseen())?;
            let row = self.bench.finish(spec, draw, crop.upside_down);
            write_planes(row, spec.channels_last, &mut self.piece, write)
        };
        let written = decode();
        self.images.shrink();
        self.rows.shrink();
        self.bench.shrink();
        written
    }

    /// Decodes all of `bytes`, an image of size `indexed`, and passes it to `write` piece by piece,
    /// each with its offset in the row: `3 * width * height` bytes in all. Returns the image's
    /// size: `indexed`, with its sides swapped for a TIFF that its orientation turns.
    ///
    /// # Errors
    /// The image is damaged, of an unknown kind, too large, or of another size; nothing is written
    /// then. Or `write`'s error.
    pub fn decode_whole<E: From<ImageFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        indexed: Size,
        channels_last: bool,
        write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Size, E> {
        let decode = || {
            let pixels = self.images.decode_part(media, bytes, Part::whole)?;
            let image = pixels.area.size;
            // The index has the size before orientation; only a TIFF is turned while it is decoded.
            let turned = Size { width: indexed.height, height: indexed.width };
            if image != indexed && !(media == Media::Tiff && image == turned) {
                return Err(ImageFault::OtherSize { image, indexed }.into());
            }
            write_whole(pixels.rgb, channels_last, &mut self.piece, write)?;
            Ok(image)
        };
        let written = decode();
        self.images.shrink();
        written
    }

    /// The part of an image of size `source` that [`decode`](Self::decode) needs.
    ///
    /// # Errors
    /// The image is too small.
    pub fn part(spec: &ImageSpec, draw: Draw, source: Size) -> Result<Part, ImageFault> {
        CropBox::new(source, spec, &mut Randomness::new(draw)).map(|crop| crop.part())
    }
}
