//! The one home of pixels: encoded images to RGB and back as Pillow would, rows of batches as
//! torchvision would, bytes to floats.
//!
//! ```text
//!   bytes ── Decoder ──▶ Image ── oriented ── resized ──▶ encode_jpeg, encode_ppm       (packer)
//!            (Pixels)    width, height, RGB of 8 bits
//!   bytes ── RowDecoder ──▶ row of a batch: a part of the image, resized, mirrored      (daemon)
//!   mask  ── MaskDecoder, Shown ──▶ its row, boxes theirs, by the same draw             (daemon)
//!   rows  ── normalize  ──▶ floats                                              (daemon, bridge)
//! ```
//!
//! **Decoding** gives what `PIL.Image.open(f).convert("RGB")` gives, which is what torchvision's
//! `ImageFolder` passes to a transform:
//! - alpha is dropped, not blended;
//! - colours of 16 bits keep their high byte, grey of 16 bits is clamped to 255;
//! - CMYK becomes RGB by Pillow's formula;
//! - an animation or a file of many pages gives its first image.
//!
//! The content tells the kind of image, never the name.
//!
//! Differences from Pillow, and their size:
//! - JPEG and lossy WebP are decoded by other code or another version of it. Pixels are equal in
//!   all our tests, but a step of 1 in 255 is no defect. (Our own decoder of baseline JPEGs gives
//!   libjpeg-turbo's pixels.)
//! - TIFF with palettes, samples of 12 or 32 bits, Lab or YCbCr is an error, as are its fax, JPEG,
//!   WebP, zstd and LZMA compressions. So are GIF, plain (ASCII) netpbm and PBM. Pillow misreads
//!   some planes that are not compressed (of 16 bits, or with bit order 2).
//! - A lossy WebP whose coded data are damaged may have other pixels than libwebp's.
//! - A JPEG without its end marker is an error, also where Pillow makes up the rest.
//! - An orientation that is only in XMP is not seen.
//! - Damage below the decoded part of a JPEG ([`Decoder::decode_part`]) is not seen, and with
//!   restart markers ([`with_restart_markers`]) no damage around it either.
//! - Where a progressive JPEG lacks scans, pixels at the edge of a decoded part may be a step or
//!   two off, as libjpeg smooths with their neighbours.
//!
//! **Orientation** is applied only on request ([`orientation`], [`Image::oriented`]), as
//! `ImageFolder` ignores it. The exception is TIFF, which Pillow turns while loading.
//!
//! Files that are not quite right are read where Pillow reads them ([`Pixels::note`]).
//!
//! No file is opened here and no thread started. Bytes may be anything: they give an error, never a
//! panic ([`caught`]), and no image of more than [`IMAGE_PIXELS_MAX`] pixels is decoded.
//!
//! Without the feature `codecs` there is only [`normalize`], and no C to build.

#[cfg(feature = "codecs")]
mod augment;
#[cfg(feature = "codecs")]
mod decode;
#[cfg(feature = "codecs")]
mod fault;
#[cfg(feature = "codecs")]
mod guard;
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
pub use self::{
    augment::{RowDecoder, Shown},
    decode::{
        Decoder, JPEG_REDUCTIONS, Levels, MaskDecoder, MaskFile, Pixels, baseline, with_restart_markers,
    },
    fault::ImageFault,
    guard::{caught, is_caught},
    image::Image,
    limits::{SCRATCH_KEEP_BYTES, scratch, shrink},
    orientation::{Orientation, orientation},
    part::{Area, Part},
    resample::Filter,
    size::{resize_both, resize_max, resize_short},
};
#[cfg(feature = "codecs")]
pub use shade_formats::{Draw, Size, limits::IMAGE_PIXELS_MAX};
