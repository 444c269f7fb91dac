//! Resizing as Pillow's `Image.resize` does it: by convolution, antialiased when shrinking.
//!
//! | | `whole` | `bands` |
//! |---|---|---|
//! | used by | packer | daemon |
//! | code | fast_image_resize | our own |
//! | filters | bilinear, bicubic | bilinear |
//! | source | all of an image | a box of it, at fractions of pixels |
//! | result | interleaved | interleaved or in planes, mirrored or not |
//!
//! Neither does the other's work well: see
//! `docs/decisions/013-a-resizer-of-our-own.md`.

mod bands;
mod whole;

pub(crate) use bands::{LINES, Resampler, Source};
pub use whole::Filter;
