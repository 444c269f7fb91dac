//! One file per format: its bytes to interleaved RGB in the caller's buffer, and the image's size.

mod baseline;
pub(super) mod bmp;
mod colour;
pub(super) mod jpeg;
pub(super) mod png;
mod png_plain;
pub(super) mod ppm;
pub(super) mod tiff;
mod turbojpeg;
pub(super) mod webp;

pub use jpeg::{JPEG_REDUCTIONS, with_restart_markers};
