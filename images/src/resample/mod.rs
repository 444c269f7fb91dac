//! Resizing as Pillow's `Image.resize` does it: by convolution, antialiased when shrinking. TODO

mod bands;
mod whole;

pub(crate) use bands::{LINES, Resampler, Source};
pub use whole::Filter;
