//! Encoded images to RGB pixels and back, as Pillow would: what packer and loader both need to know about pictures.
//!
//! ```text
//!   bytes ── Decoder ──▶ Image ── oriented ── resized ──▶ encode_jpeg, encode_ppm
//!            (Pixels)    width, height, RGB of 8 bits
//! ```
//!
//! **Decoding** gives what `PIL.Image.open(f).convert("RGB")` gives, which is what torchvision's `ImageFolder` hands to
//! a transform: alpha is dropped, not blended; colours of 16 bits keep their high byte; grey of 16 bits is cut off at
//! 255; CMYK becomes RGB by Pillow's formula; of an animation or a file of many pages, the first. The kind of image is
//! told by its content, never by a name.
//!
//! Where we differ, and by how much:
//! - JPEG and lossy WebP are decoded by other code or another version of it: equal in all our tests, but a step of 1 in
//!   255 here and there is no defect (baseline JPEGs are decoded by code of our own, with the pixels of libjpeg-turbo);
//! - BMP of 16 bits a pixel: 5 and 6 bits are widened with rounding, where Pillow cuts off (a step of 1);
//! - TIFF: palettes, samples of 12 or 32 bits, Lab and YCbCr are errors, as are the compressions of fax, JPEG,
//!   WebP, zstd and LZMA; so are GIF, plain (ASCII) netpbm and PBM;
//! - an orientation that stands in XMP only is not seen;
//! - of a part of a JPEG ([`Decoder::decode_part`]) no damage below it is seen, and with restart markers
//!   ([`with_restart_markers`]) none around it; where a progressive one lacks scans its pixels may be a step or two off, as
//!   libjpeg smooths with what lies beside it.
//!
//! **Orientation** is applied only by who asks for it ([`orientation`], [`Image::oriented`]), as `ImageFolder` ignores
//! it, except in TIFF: Pillow turns that while loading.
//!
//! No file is opened here and no thread started. Bytes may be anything: they give an error, never a panic, and no image
//! of more than [`IMAGE_PIXELS_MAX`] pixels is begun.

mod decoder;
mod encode;
mod fault;
mod formats;
mod image;
mod limits;
mod orientation;
mod part;
mod resize;
mod size;

pub use decoder::{Decoder, Pixels};
pub use fault::ImageFault;
pub use formats::{JPEG_REDUCTIONS, with_restart_markers};
pub use image::Image;
pub use limits::{IMAGE_PIXELS_MAX, SCRATCH_KEEP_BYTES, scratch, shrink};
pub use orientation::{Orientation, orientation};
pub use part::{Area, Part};
pub use resize::Filter;
pub use size::{Size, resize_both, resize_max, resize_short};
