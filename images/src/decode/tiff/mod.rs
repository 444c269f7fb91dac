//! The first page of a TIFF: grey of 1 to 8 and of 16 bits, RGB and CMYK of 8 and 16, with other
//! samples or without, in strips, tiles or planes.
//!
//! Rules of layout are libtiff's, which Pillow uses, and are kept by our own code: predictors, bit
//! orders and samples that nobody described move every pixel where they are taken for another one.

mod colours;
mod directory;
mod layout;
mod unpack;

use crate::limits::scratch;
use crate::{ImageFault, Orientation, Size};
use colours::Colours;
use directory::{Directory, tag};
use layout::Layout;

/// Decodes `bytes` into `rgb`, over `samples`, turned by its orientation, as Pillow does while
/// loading a TIFF.
pub(crate) fn decode(bytes: &[u8], samples: &mut Vec<u8>, rgb: &mut Vec<u8>) -> Result<Size, ImageFault> {
    let directory = Directory::read(bytes)?;
    let layout = Layout::read(&directory)?;
    let colours = Colours::read(&directory, &layout)?;
    let samples = layout.samples(bytes, colours.shown(), samples)?;
    let size = layout.size;
    let room = scratch(rgb, 3 * size.width as usize * size.height as usize);
    colours.convert(samples, size.width as usize, room);
    // One of another type is ignored, as by Pillow.
    let orientation = directory.one(tag::ORIENTATION).ok().flatten();
    let orientation = orientation.and_then(|value| u32::try_from(value).ok());
    let orientation = orientation.map_or(Orientation::Upright, Orientation::from_exif);
    if orientation == Orientation::Upright {
        return Ok(size);
    }
    *rgb = orientation.turn(room, size);
    Ok(orientation.turned(size))
}
