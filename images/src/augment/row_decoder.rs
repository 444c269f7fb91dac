//! From a record to a row of a batch: one decoder per worker thread, with the buffers that all
//! images share.

use std::slice;

use shade_formats::index::{Media, sniff};
use shade_formats::{Draw, Geometry};
use shade_job::{ImageSpec, JpegDecoder};

use super::crop_box::CropBox;
use super::floats::FloatWriter;
use super::pixels::{Before, Workbench};
use super::randomness::Randomness;
use super::row::{RowFault, RowWriter};
use super::whole::write_whole;
use crate::{Decoder, ImageFault, Part, Size};

/// Decodes records to images of one size, or of their own sizes. Keeps its buffers from image to
/// image, so that small images cost no allocation of ours.
#[derive(Default)]
pub struct RowDecoder {
    images: Decoder,
    rows: RowWriter,
    /// The box of each view of the image at hand.
    crops: Vec<CropBox>,
    /// The image whose pixels change before its geometry.
    before: Before,
    /// A row whose pixels change once more.
    bench: Workbench,
    floats: FloatWriter,
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
    /// by piece, each with its offset in the row: [`ImageSpec::bytes`] in all. Returns what it
    /// shows of the source.
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
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Geometry, E> {
        let mut geometry = [Geometry::default()];
        let write = |_, at, bytes: &[u8]| write(at, bytes);
        self.decode_views(media, bytes, slice::from_ref(spec), draw, &mut geometry, write)?;
        let [geometry] = geometry;
        Ok(geometry)
    }

    /// Decodes `bytes` once to an image of each of `views`, and passes them to `write` as
    /// [`RowDecoder::decode`] does, each piece with the number of its view. `geometry`, which has a
    /// place for each view, gets what they show.
    ///
    /// What is decoded is the smallest rectangle around all views, reduced as the view allows that
    /// needs most. The random numbers of a view depend on its number, not on the other views.
    /// Returns the image's true size, of which [`Shown`](crate::Shown) knows what the views show.
    ///
    /// # Errors
    /// As for [`RowDecoder::decode`].
    pub fn decode_views<E: From<ImageFault>>(
        &mut self,
        media: Media,
        bytes: &[u8],
        views: &[ImageSpec],
        draw: Draw,
        geometry: &mut [Geometry],
        mut write: impl FnMut(usize, u64, &[u8]) -> Result<(), E>,
    ) -> Result<Size, E> {
        let mut decode = || {
            let Self { images, rows, crops, before, bench, floats, .. } = self;
            let mut drawn = None;
            let decoded = images.decode_part(media, bytes, |source| {
                let found = drawn.insert(draw_crops(source, views, draw, crops));
                found.as_ref().map_or(Part::whole(source), |()| part_of_all(source, crops))
            });
            let pixels = decoded?;
            // Only a JPEG's decoder asks for the part.
            drawn.unwrap_or_else(|| draw_crops(pixels.source, views, draw, crops))?;
            for (geometry, crop) in geometry.iter_mut().zip(crops.iter()) {
                *geometry = crop.geometry();
            }
            for (view, (spec, crop)) in (0..).zip(views.iter().zip(crops.iter())) {
                let write = |at, bytes: &[u8]| {
                    let view = usize::from(view);
                    floats.write(spec, at, bytes, |at, values| write(view, at, values))
                };
                let mut numbers = Randomness::of_pixels(draw, view);
                let pixels = if spec.before.is_empty() {
                    pixels
                } else {
                    before.change(&pixels, spec, &mut numbers).ok_or_else(|| not_decoded(media))??
                };
                let written = if spec.pixels.is_empty() && !crop.upside_down {
                    rows.write(&pixels, crop, spec, write)
                } else {
                    bench.write(rows, &pixels, crop, spec, numbers, write)
                };
                written.map_err(|fault| match fault {
                    RowFault::Missing => not_decoded(media).into(),
                    RowFault::Write(error) => error,
                })?;
            }
            Ok(pixels.source)
        };
        let written = decode();
        self.images.shrink();
        self.rows.shrink();
        self.before.shrink();
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
        // The index has the size before orientation; only a TIFF is turned while it is decoded.
        let turned = Size { width: indexed.height, height: indexed.width };
        let check = |image| match image == indexed || (media == Media::Tiff && image == turned) {
            true => Ok(()),
            false => Err(ImageFault::OtherSize { image, indexed }),
        };
        let decode = || {
            // First, where the header says it: a small file may have many pixels.
            if let (kind, width @ 1.., height) = sniff(bytes)
                && kind == media
            {
                check(Size { width: width.into(), height: height.into() })?;
            }
            let pixels = self.images.decode_part(media, bytes, Part::whole)?;
            let image = pixels.area.size;
            check(image)?;
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
        CropBox::new(source, spec, &mut Randomness::new(draw, 0)).map(|crop| crop.part())
    }
}

fn not_decoded(media: Media) -> ImageFault {
    ImageFault::corrupt(media, "a visible part of the image was not decoded")
}

/// Fills `crops` with the box of each view.
fn draw_crops(
    source: Size,
    views: &[ImageSpec],
    draw: Draw,
    crops: &mut Vec<CropBox>,
) -> Result<(), ImageFault> {
    crops.clear();
    for (number, view) in (0..).zip(views) {
        crops.push(CropBox::new(source, view, &mut Randomness::new(draw, number))?);
    }
    Ok(())
}

/// The part of the source that all of `crops` need.
fn part_of_all(source: Size, crops: &[CropBox]) -> Part {
    let parts = crops.iter().map(CropBox::part);
    parts.reduce(Part::joined).unwrap_or(Part::whole(source))
}
