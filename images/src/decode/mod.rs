//! Encoded images to interleaved RGB: one file per format, and `decoder`, which chooses among them
//! and keeps their buffers.

mod bmp;
mod colour;
mod decoder;
mod jpeg;
mod png;
mod ppm;
mod tiff;
mod webp;

pub use decoder::{Decoder, Pixels};
pub use jpeg::{JPEG_REDUCTIONS, baseline, with_restart_markers};
pub(crate) use webp::exif as webp_exif;
