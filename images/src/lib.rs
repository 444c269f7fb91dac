//! The one home of pixels: encoded images to RGB and back as Pillow would, rows of batches as
//! torchvision would, bytes to floats.
//!
//! ```text
//!   bytes ── Decoder ──▶ Image ── oriented ── resized ──▶ encode_jpeg, encode_ppm         (packer)
//!            (Pixels)    width, height, RGB of 8 bits
//!   bytes ── RowDecoder ──▶ row of a batch: a part of the image, resized, mirrored         (daemon)
//!   rows  ── normalize  ──▶ floats                                                         (bridge)
//! ```
//!
//! **Decoding** gives what `PIL.Image.open(f).convert("RGB")` gives, which is what torchvision's
//! `ImageFolder` hands to a transform: alpha is dropped, not blended; colours of 16 bits keep their
//! high byte; grey of 16 bits is cut off at 255; CMYK becomes RGB by Pillow's formula; of an
//! animation or a file of many pages, the first. The kind of image is told by its content, never by
//! a name.
//!
//! Where we differ, and by how much:
//! - JPEG and lossy WebP are decoded by other code or another version of it: equal in all our
//!   tests, but a step of 1 in 255 here and there is no defect (baseline JPEGs are decoded by code
//!   of our own, with the pixels of libjpeg-turbo);
//! - TIFF: palettes, samples of 12 or 32 bits, Lab and YCbCr are errors, as are the compressions of
//!   fax, JPEG, WebP, zstd and LZMA; so are GIF, plain (ASCII) netpbm and PBM;
//! - an orientation that stands in XMP only is not seen;
//! - damage below the part of a JPEG that is decoded ([`Decoder::decode_part`]) is not seen, and
//!   with restart markers ([`with_restart_markers`]) none around it; where a progressive one lacks
//!   scans its pixels may be a step or two off, as libjpeg smooths with what lies beside it.
//!
//! **Orientation** is applied only when it is asked for ([`orientation`], [`Image::oriented`]), as
//! `ImageFolder` ignores it, except in TIFF: Pillow turns that while loading.
//!
//! No file is opened here and no thread started. Bytes may be anything: they give an error, never a
//! panic, and no image of more than [`IMAGE_PIXELS_MAX`] pixels is begun.
//!
//! Without the feature `codecs` there is [`normalize`] alone, and nothing to build but this crate.

#[cfg(feature = "codecs")]
mod augment;
#[cfg(feature = "codecs")]
mod decode;
#[cfg(feature = "codecs")]
mod encode;
#[cfg(feature = "codecs")]
mod fault;
#[cfg(feature = "codecs")]
mod image;
#[cfg(feature = "codecs")]
mod limits;
pub mod normalize;
#[cfg(feature = "codecs")]
mod orientation;
#[cfg(feature = "codecs")]
mod part;
#[cfg(feature = "codecs")]
mod resample;
#[cfg(feature = "codecs")]
mod size;

#[cfg(feature = "codecs")]
pub use augment::RowDecoder;
#[cfg(feature = "codecs")]
pub use decode::{Decoder, JPEG_REDUCTIONS, JpegDecoder, Pixels, baseline, with_restart_markers};
#[cfg(feature = "codecs")]
pub use fault::ImageFault;
#[cfg(feature = "codecs")]
pub use image::Image;
#[cfg(feature = "codecs")]
pub use limits::{SCRATCH_KEEP_BYTES, scratch, shrink};
#[cfg(feature = "codecs")]
pub use orientation::{Orientation, orientation};
#[cfg(feature = "codecs")]
pub use part::{Area, Part};
#[cfg(feature = "codecs")]
pub use resample::Filter;
#[cfg(feature = "codecs")]
pub use shade_formats::limits::IMAGE_PIXELS_MAX;
#[cfg(feature = "codecs")]
pub use shade_formats::{Draw, Size};
#[cfg(feature = "codecs")]
pub use size::{resize_both, resize_max, resize_short};
