//! EXIF orientation: how a camera was held, and the turn that undoes it.

use std::io::Cursor;

use exif::{Error, Exif, In, Reader, Tag};
use shade_formats::index::{Media, sniff};

use crate::Size;
use crate::decode::webp_exif;

/// The bytes before EXIF data in a JPEG, and, by mistake, in the WebP of some writers.
const EXIF_PREFIX: &[u8] = b"Exif\0\0";

/// The turn that makes the stored pixels stand upright; the numbers are EXIF's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// Nothing.
    #[default]
    Upright = 1,
    /// Swap left and right.
    MirrorColumns = 2,
    /// Rotate by 180 degrees.
    Rotate180 = 3,
    /// Swap top and bottom.
    MirrorRows = 4,
    /// Swap rows and columns: the top left corner stays.
    Transpose = 5,
    /// Rotate by 90 degrees clockwise.
    Rotate90 = 6,
    /// Swap rows and columns: the top right corner stays.
    Transverse = 7,
    /// Rotate by 270 degrees clockwise.
    Rotate270 = 8,
}

impl Orientation {
    /// The orientation with EXIF's number `value`; upright for a number that EXIF does not know.
    #[must_use]
    pub fn from_exif(value: u32) -> Self {
        match value {
            2 => Self::MirrorColumns,
            3 => Self::Rotate180,
            4 => Self::MirrorRows,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => Self::Upright,
        }
    }

    /// The size of an image of `size` once it is turned.
    #[must_use]
    pub fn turned(self, size: Size) -> Size {
        match self {
            Self::Upright | Self::MirrorColumns | Self::Rotate180 | Self::MirrorRows => size,
            Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270 => {
                Size { width: size.height, height: size.width }
            }
        }
    }

    /// The pixels of an image of `size`, turned.
    pub(crate) fn turn(self, rgb: &[u8], size: Size) -> Vec<u8> {
        let (pixels, _) = rgb.as_chunks::<3>();
        let width = size.width as usize;
        let rows = pixels.chunks_exact(width.max(1));
        let column = |x: usize| pixels.get(x..).unwrap_or_default().iter().step_by(width.max(1));
        let mut turned = Vec::with_capacity(rgb.len());
        match self {
            Self::Upright => turned.extend_from_slice(rgb),
            Self::MirrorColumns => rows.for_each(|row| turned.extend(row.iter().rev().flatten())),
            Self::Rotate180 => turned.extend(pixels.iter().rev().flatten()),
            Self::MirrorRows => rows.rev().for_each(|row| turned.extend_from_slice(row.as_flattened())),
            Self::Transpose => (0..width).for_each(|x| turned.extend(column(x).flatten())),
            Self::Rotate90 => (0..width).for_each(|x| turned.extend(column(x).rev().flatten())),
            Self::Transverse => (0..width).rev().for_each(|x| turned.extend(column(x).rev().flatten())),
            Self::Rotate270 => (0..width).rev().for_each(|x| turned.extend(column(x).flatten())),
        }
        turned
    }
}

/// The turn that the decoded pixels of `bytes` still need, from EXIF in JPEG (APP1), PNG (`eXIf`)
/// and WebP (`EXIF`). Upright where EXIF is missing or broken.
///
/// Always upright for TIFF: the decoder applies its tag 274, as Pillow does. So
/// `decode(bytes)?.oriented(orientation(bytes))` is right for every kind.
#[must_use]
pub fn orientation(bytes: &[u8]) -> Orientation {
    let mut reader = Reader::new();
    // One broken entry does not spoil the others.
    reader.continue_on_error(true);
    let found = match sniff(bytes).0 {
        Media::Jpeg | Media::Png => reader.read_from_container(&mut Cursor::new(bytes)),
        Media::Webp => {
            let chunk = webp_exif(bytes).unwrap_or_default();
            reader.read_raw(chunk.strip_prefix(EXIF_PREFIX).unwrap_or(chunk).to_vec())
        }
        _ => return Orientation::Upright,
    };
    let value = match found {
        Ok(exif) => first(&exif),
        Err(Error::PartialResult(partial)) => first(&partial.into_inner().0),
        Err(_) => None,
    };
    value.map_or(Orientation::Upright, Orientation::from_exif)
}

fn first(exif: &Exif) -> Option<u32> {
    exif.get_field(Tag::Orientation, In::PRIMARY)?.value.get_uint(0)
}
